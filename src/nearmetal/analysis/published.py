"""The formulas of published tables. Their results are shown in a second, labelled column and are never mixed
with the time-equivalent overhead."""

from __future__ import annotations

import math

from ..model.result import Cell, Interval
from ..model.study import Better


def published_overhead(base: float, env: float, better: Better) -> float:
    """Return the overhead of the 2009 KVM paper as a share of the baseline.

    It is (env - base) / base if lower is better, and (base - env) / base for rates.

    Raises ValueError if the baseline is 0.
    """
    if base == 0:
        raise ValueError("a share of a baseline of 0 does not exist")
    sign = 1 if better is Better.LOWER else -1
    return sign * (env - base) / base


def time_equivalent(f: float) -> float:
    """Return the time-equivalent overhead of a published loss of rate f: o = f / (1 - f).

    Raises ValueError if f >= 1, because no work was done then.
    """
    if f >= 1:
        raise ValueError(f"a loss of {f:.0%} of the rate has no time")
    return f / (1 - f)


def rate_loss(o: float) -> float:
    """Return the loss of rate of a time-equivalent overhead, f = o / (1 + o): 1 for inf, -inf for -1.

    This is the inverse of time_equivalent(). Raises ValueError if o < -1.
    """
    if o < -1:
        raise ValueError("a time-equivalent overhead is at least -1")
    if o == -1:
        return -math.inf
    return 1.0 if math.isinf(o) else o / (1 + o)


def published_column(cell: Cell) -> Interval:
    """Return a cell's overhead and interval by the formula of the 2009 paper.

    The ends of the primary interval are converted, which is valid because both formulas increase with theta.
    """
    if cell.better is Better.LOWER:
        return Interval(centre=cell.overhead, low=cell.low, high=cell.high)
    return Interval(centre=rate_loss(cell.overhead), low=rate_loss(cell.low), high=rate_loss(cell.high))
