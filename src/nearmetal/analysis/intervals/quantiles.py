"""Order-statistic intervals of quantiles. They assume no distribution. For small n no interval exists."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # its modules are loaded on first use, so the first block need not wait for them

from ...model.result import Interval, Quantiles
from . import FloatArray


@lru_cache(maxsize=1024)
def quantile_ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    """Return ranks (j, k), 1 <= j < k <= n, with P(x_(j) <= quantile <= x_(k)) >= confidence; None if n is
    too small.

    The coverage is P(j <= B <= k - 1) with B binomial (n, q). The tails may be unequal: the pair with the
    fewest ranks between them is chosen, and among such pairs the one with the largest coverage.
    """
    if n < 2:
        return None
    cdf = np.asarray(scipy.special.bdtr(np.arange(n + 1, dtype=np.float64), n, q), dtype=np.float64)
    below = cdf[:-1]  # P(B <= j - 1) by j = 1 .. n
    # The smallest k with P(B <= k - 1) >= confidence + P(B <= j - 1).
    k = np.searchsorted(cdf[:-1], below + confidence, side="left") + 1
    j = np.arange(1, n + 1)
    usable = (k <= n) & (k > j)
    if not bool(np.any(usable)):
        return None
    j, k = j[usable], k[usable]
    coverage = cdf[k - 1] - cdf[j - 1]
    best = int(np.lexsort((-coverage, k - j))[0])
    return int(j[best]), int(k[best])


def quantile_interval(values: FloatArray, q: float, confidence: float) -> Interval | None:
    """Return the q quantile of independent values with its interval; None if n is too small.

    Right-censored values (timeouts) are passed as +inf; an end of the interval may then be +inf.
    """
    ranks = quantile_ranks(int(values.size), q, confidence)
    if ranks is None:
        return None
    x = np.sort(values)
    low, high = float(x[ranks[0] - 1]), float(x[ranks[1] - 1])
    centre = float(x[max(1, math.ceil(q * values.size - 1e-9)) - 1])
    return Interval(centre=min(max(centre, low), high), low=low, high=high)


def median_interval(values: FloatArray, confidence: float) -> Interval:
    """Return the median with its order-statistic interval, with infinite ends below n = 6 (at 95 %).

    The interval holds for a number of blocks that is fixed beforehand. It is not anytime-valid, and no
    verdict uses it. Raises ValueError if there are no values.
    """
    if values.size == 0:
        raise ValueError("a median needs a value")
    centre = float(np.median(values))
    interval = quantile_interval(values, 0.5, confidence)
    if interval is None:
        return Interval.unbounded(centre)
    return Interval(centre=centre, low=interval.low, high=interval.high)


def quantiles(values: FloatArray, baseline: FloatArray, confidence: float, *, failed: int = 0) -> Quantiles:
    """Return p50, p90, p95 and p99 of independent times of one arm.

    baseline: times of its baseline, which are only stored in the result.
    failed: number of further trials of the arm, which failed. Their times count as infinite. A quantile whose
        interval reaches infinity is None.
    """
    every = np.append(values, np.full(failed, math.inf))
    found = [quantile_interval(every, q, confidence) for q in (0.5, 0.9, 0.95, 0.99)]
    p50, p90, p95, p99 = (i if i is not None and math.isfinite(i.high) else None for i in found)
    return Quantiles(
        n=int(every.size),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        values=tuple(values.tolist()),
        baseline_values=tuple(baseline.tolist()),
    )
