"""The exact rank-sum interval of a shift between two independent samples (Hodges and Lehmann): order
statistics of all differences after - before.

If the two samples differ by a shift alone, every assignment of the pooled ranks to the samples is equally
likely. The number of differences below the shift then follows the Mann-Whitney distribution, whatever the
distribution of the values is. Ties can only make the true level smaller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import numpy as np

from ...model.result import Interval
from . import FloatArray


@lru_cache(maxsize=32)
def _null_cdf(m: int, n: int) -> FloatArray:
    """Return P(U <= k) for k = 0 .. m n, where U counts the pairs of values in which the first of two
    samples of sizes m and n has the larger one.

    The largest of all m + n values belongs to the first sample with probability m / (m + n), and then exceeds
    all n others. All terms are positive, so no digits are lost.
    """
    columns = [np.ones(1) for _ in range(n + 1)]
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            p = np.zeros(i * j + 1)
            p[j:] += i / (i + j) * columns[j]
            p[: i * (j - 1) + 1] += j / (i + j) * columns[j - 1]
            columns[j] = p
    cdf: FloatArray = np.cumsum(columns[n])
    cdf.setflags(write=False)
    return cdf


def critical(m: int, n: int, p: float) -> int:
    """Return the largest k with P(U <= k) <= p; -1 if there is none."""
    return int(np.searchsorted(_null_cdf(m, n), p, side="right")) - 1 if p > 0 else -1


def least_size(level: float) -> int:
    """Return the least n for which two samples of n values attain a level: 2 / C(2n, n) <= level."""
    n = 1
    while 2 / math.comb(2 * n, n) > level:
        n += 1
    return n


def rank_sum(before: Sequence[float], after: Sequence[float], level: float) -> Interval:
    """Return the interval of the shift from `before` to `after`, with the median difference as its centre.

    The ends are infinite if the samples are too small for the level.

    Raises ValueError if a sample is empty.
    """
    if not before or not after:
        raise ValueError("each side needs at least one value")
    differences = sorted(a - b for a in after for b in before)
    centre = median(differences)
    k = critical(len(before), len(after), level / 2)
    if k < 0:
        return Interval.unbounded(centre)
    return Interval(centre=centre, low=differences[k], high=differences[-1 - k])
