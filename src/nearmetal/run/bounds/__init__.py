"""Upper bounds: the best values that the bare machine reaches, measured between the blocks of a run.

They must not change a verdict."""
