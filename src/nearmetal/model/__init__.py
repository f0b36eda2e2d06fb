"""The data types of nearmetal as frozen dataclasses: no I/O, no statistics, no access to the machine."""
