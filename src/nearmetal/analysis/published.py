"""The formulas of published tables. Their results are shown in a second, labelled column and are never mixed
with the time-equivalent overhead."""

from __future__ import annotations

import math

from ..model.result import Cell, Interval
from ..model.study import Better


def rate_loss(o: float) -> float:
    """Return the loss of rate of a time-equivalent overhead, f = o / (1 + o): 1 for inf, -inf for -1.

    Raises ValueError if o < -1.
    """
    if o < -1:
        raise ValueError("a time-equivalent overhead is at least -1")
    if o == -1:
        return -math.inf
    return 1.0 if math.isinf(o) else o / (1 + o)


def speed_gain(o: float) -> float:
    """Return the gain of speed of a time-equivalent overhead, 1 / (1 + o) - 1: -1 for inf, inf for -1.

    Raises ValueError if o < -1.
    """
    if o < -1:
        raise ValueError("a time-equivalent overhead is at least -1")
    return math.inf if o == -1 else 1 / (1 + o) - 1


def published_column(cell: Cell) -> Interval:
    """Return a cell's overhead and interval by the formula of the 2009 paper.

    The ends of the primary interval are converted, which is valid because both formulas increase with theta.
    """
    if cell.better is Better.LOWER:
        return Interval(centre=cell.overhead, low=cell.low, high=cell.high)
    return Interval(centre=rate_loss(cell.overhead), low=rate_loss(cell.low), high=rate_loss(cell.high))
