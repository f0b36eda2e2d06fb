"""From records to estimates and verdicts: pure, no I/O. Imports numpy: import it where it is used."""

from .assemble import analyse
from .looks import first_looks, next_looks
from .progress import Stop, all_cells, decided, furthest, half_width, settled, should_stop
from .two_level import StateCell, compare_boots, compare_states

__all__ = [
    "StateCell",
    "Stop",
    "all_cells",
    "analyse",
    "compare_boots",
    "compare_states",
    "decided",
    "first_looks",
    "furthest",
    "half_width",
    "next_looks",
    "settled",
    "should_stop",
]
