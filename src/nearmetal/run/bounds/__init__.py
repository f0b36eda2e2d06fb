"""Upper bounds: the best values that the bare machine reaches, measured between the blocks of a run.

This package must not change a verdict."""
