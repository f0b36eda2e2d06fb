"""The nouns of nearmetal as frozen dataclasses: no I/O, no statistics, no machine."""
