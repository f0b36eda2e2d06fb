"""The best number of repetitions at each level of a nested experiment (run, instance, ...), from measured
costs and variances."""

from __future__ import annotations

import math
from collections.abc import Sequence


def kalibera_jones_plan(*, costs: Sequence[float], t2: Sequence[float], r_max: int) -> tuple[int, ...]:
    """Return the repetitions r_i = sqrt((c_(i+1) / c_i) * (T2_i / T2_(i+1))) of every level except the
    highest, lowest level first: whole numbers from 1 to r_max.

    The highest level has no r, since it is repeated until the result is precise enough. If T2_i <= 0, r_i is
    1, as repeating at level i gains nothing; otherwise, if T2_(i+1) <= 0, r_i is r_max. The result is optimal
    for means only; use it as a guide.

    costs: time of one more repetition at each level, lowest level (run) first.
    t2: unbiased variance component of each level, in the same order.
    r_max: largest number of repetitions.

    Raises ValueError for unequal lengths, fewer than two levels, costs that are not positive, or r_max < 1.

    Source: Kalibera and Jones, Quantifying performance changes with effect size confidence intervals, 2012.
    """
    if len(costs) != len(t2) or len(costs) < 2:
        raise ValueError("costs and variances of the same two or more levels are needed")
    if min(costs) <= 0 or r_max < 1:
        raise ValueError("costs must be positive and r_max at least 1")
    repetitions: list[int] = []
    for i in range(len(costs) - 1):
        own, above = t2[i], t2[i + 1]
        if own > 0 and above > 0:
            r = math.sqrt((costs[i + 1] / costs[i]) * (own / above))
            repetitions.append(max(1, math.ceil(min(r, r_max))))
        else:
            repetitions.append(1 if own <= 0 else r_max)
    return tuple(repetitions)
