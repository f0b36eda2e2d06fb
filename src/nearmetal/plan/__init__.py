"""From a study and its seed to blocks of trials: pure, no I/O, knows nothing of machines or of statistics."""

from .blocks import aa_arms, make_block, make_plan
from .lengths import KaliberaJones, expected_blocks, kalibera_jones_plan
from .slices import MOST_SLICES, added_seconds, plan_slices

__all__ = [
    "MOST_SLICES",
    "KaliberaJones",
    "aa_arms",
    "added_seconds",
    "expected_blocks",
    "kalibera_jones_plan",
    "make_block",
    "make_plan",
    "plan_slices",
]
