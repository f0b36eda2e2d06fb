"""Order-statistic intervals of quantiles: no assumption on shape, refused below the least n."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # its parts are loaded when they are used, which the first block need not wait for
from numpy.typing import NDArray

from ...model.result import Interval, Quantiles

FloatArray = NDArray[np.float64]


@lru_cache(maxsize=1024)
def quantile_ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    """Ranks (j, k), 1 <= j < k <= n, with P(x_(j) <= quantile <= x_(k)) >= confidence.

    The coverage is P(j <= B <= k - 1) with B binomial (n, q). The tails may be unequal: the pair with the
    fewest ranks between is taken, among those the one that covers most. None: not estimable at this n."""
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


def least_n(q: float, confidence: float) -> int:
    """The smallest n at which the q quantile is estimable, tails unequal: largest order statistics are
    enough for q > 1/2."""
    n = 2
    while quantile_ranks(n, q, confidence) is None:
        n += 1
    return n


def least_n_equal_tails(q: float, confidence: float) -> int:
    """The same when each tail may hold at most half of the rest: max(q, 1 - q)^n <= (1 - confidence) / 2."""
    return math.ceil(math.log((1 - confidence) / 2) / math.log(max(q, 1 - q)))


def quantile_interval(values: FloatArray, q: float, confidence: float) -> Interval | None:
    """The q quantile of independent values with its interval; None where n is too small.

    Right-censored values (time-outs) enter as +inf: an end that falls on one is +inf.
    """
    ranks = quantile_ranks(int(values.size), q, confidence)
    if ranks is None:
        return None
    x = np.sort(values)
    low, high = float(x[ranks[0] - 1]), float(x[ranks[1] - 1])
    centre = float(x[max(1, math.ceil(q * values.size - 1e-9)) - 1])
    return Interval(centre=min(max(centre, low), high), low=low, high=high)


def median_interval(values: FloatArray, confidence: float) -> Interval:
    """The median with its order-statistic interval, infinite ends below n = 6 (at 95 %). Describes the
    blocks at hand; not anytime-valid, no verdict rests on it. Raises ValueError for no values."""
    if values.size == 0:
        raise ValueError("a median needs a value")
    centre = float(np.median(values))
    interval = quantile_interval(values, 0.5, confidence)
    if interval is None:
        return Interval(centre=centre, low=-math.inf, high=math.inf)
    return Interval(centre=centre, low=interval.low, high=interval.high)


def quantiles(values: FloatArray, baseline: FloatArray, confidence: float) -> Quantiles:
    """p50, p90, p95 and p99 of independent values of one arm, with the baseline's values beside them."""
    p50, p90, p95, p99 = (quantile_interval(values, q, confidence) for q in (0.5, 0.9, 0.95, 0.99))
    return Quantiles(
        n=int(values.size),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        values=tuple(values.tolist()),
        baseline_values=tuple(baseline.tolist()),
    )
