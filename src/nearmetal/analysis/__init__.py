"""Computes estimates and verdicts from records, without I/O. It imports numpy, so import it only where it is
used."""

from .assemble import analyse, conclude
from .fold.pieces import fold_request
from .progress import decided, furthest, half_width, settled, verdict_state
from .two_level import StateCell, compare_boots, compare_states, least_boots
