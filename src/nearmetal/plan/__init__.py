"""Converts a study and its seed to blocks of trials. No I/O, no knowledge of machines or statistics."""

from .blocks import make_block, make_plan
from .lengths import kalibera_jones_plan
from .nodes import looks_over_sets, node_of
from .slices import (
    FIXED_FROM,
    LONGEST_BLOCK,
    LOOKS,
    MOST_SLICES,
    VERIFIED_EVERY,
    SlicePlanner,
    block_length,
    late_lengths,
)
