"""Converts a study and its seed to blocks of trials. No I/O, no knowledge of machines or statistics."""

from .blocks import make_block, make_plan
from .lengths import kalibera_jones_plan
from .nodes import node_of
from .slices import (
    FIXED_FROM,
    LONGEST_BLOCK,
    MOST_SLICES,
    SHORTEST_RUN,
    VERIFIED_EVERY,
    SlicePlanner,
    block_length,
    late_length,
)

__all__ = [
    "FIXED_FROM",
    "LONGEST_BLOCK",
    "MOST_SLICES",
    "SHORTEST_RUN",
    "VERIFIED_EVERY",
    "SlicePlanner",
    "block_length",
    "kalibera_jones_plan",
    "late_length",
    "make_block",
    "make_plan",
    "node_of",
]
