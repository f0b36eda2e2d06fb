"""The formulas of the published tables: a second, labelled column, never mixed with the time-equivalent
overhead."""

from __future__ import annotations

import math

from ..model.result import Cell, Interval
from ..model.study import Better


def published_overhead(base: float, env: float, better: Better) -> float:
    """The 2009 KVM paper's overhead as a share of the baseline: (env - base) / base where lower is better,
    (base - env) / base for rates. Raises ValueError for a baseline of 0."""
    if base == 0:
        raise ValueError("a share of a baseline of 0 does not exist")
    sign = 1 if better is Better.LOWER else -1
    return sign * (env - base) / base


def time_equivalent(f: float) -> float:
    """o = f / (1 - f): the time-equivalent overhead of a published loss of rate f. Raises ValueError for f
    >= 1 (nothing got done)."""
    if f >= 1:
        raise ValueError(f"a loss of {f:.0%} of the rate has no time")
    return f / (1 - f)


def rate_loss(o: float) -> float:
    """f = o / (1 + o), the inverse; 1 for o = inf, -inf for o = -1. Raises ValueError for o < -1."""
    if o < -1:
        raise ValueError("a time-equivalent overhead is at least -1")
    if o == -1:
        return -math.inf
    return 1.0 if math.isinf(o) else o / (1 + o)


def published_column(cell: Cell) -> Interval:
    """A cell's overhead with its interval in the 2009 paper's formula (the primary interval, mapped: both
    formulas are increasing functions of theta)."""
    if cell.better is Better.LOWER:
        return Interval(centre=cell.overhead, low=cell.low, high=cell.high)
    return Interval(centre=rate_loss(cell.overhead), low=rate_loss(cell.low), high=rate_loss(cell.high))
