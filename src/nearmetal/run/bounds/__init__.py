"""Upper bounds: what the bare machine gives at most, measured between the blocks of a run.

Must not change a verdict.
"""
