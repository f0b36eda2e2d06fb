"""Computes an anytime-valid interval of the median from the signs of the values only. It is robust to
one-sided jitter, and is shown beside the primary interval.

e_n(k) = 2^n B(k + 1/2, n - k + 1/2) / B(1/2, 1/2) is the likelihood ratio, after k heads in n tosses, of a
Beta(1/2, 1/2) mixture of coins against the fair coin. It is a nonnegative martingale at the median, so by
Ville's inequality it ever reaches 1/alpha with probability at most alpha. All values are logarithms, because
2^n overflows from n = 1024."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ...model.result import Interval
from . import FloatArray, IntArray


def log_e_value(n: int, k: int) -> float:
    """Return ln e_n(k), the evidence against a fair coin after k heads in n tosses (see the module
    docstring).

    Raises ValueError unless 0 <= k <= n.
    """
    if not 0 <= k <= n:
        raise ValueError(f"k must lie between 0 and n, not {k} of {n}")
    beta = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1)
    return n * math.log(2) + beta - math.log(math.pi)


@lru_cache(maxsize=64)
def _ranks(alpha: float, length: int) -> tuple[int, ...]:
    """Return k_n for n = 1 .. length: the smallest k with e_n(k) < 1/alpha, where e_n is the e-value of
    log_e_value().

    e_n(k) decreases up to k = n/2, and k_n never decreases as n grows.
    """
    bound = -math.log(alpha)
    ranks: list[int] = []
    k = 0
    for n in range(1, length + 1):
        while 2 * k < n and log_e_value(n, k) >= bound:
            k += 1
        ranks.append(k)
    return tuple(ranks)


def sign_interval(d: FloatArray, alpha: float) -> Interval:
    """Return the running closed interval [d_(k_n), d_(n+1-k_n)] of the median of d after all its blocks, in
    order.

    The result is the intersection of the intervals after 1, 2, ..., n blocks. Its ends are infinite while
    k_n = 0 (below n = 7 at alpha = .05). Its centre is the median of the finite values, moved to the nearer
    end if it lies outside. d may contain infinite values, for blocks in which one side failed.

    Raises ValueError if no value is finite.
    """
    n = int(d.size)
    finite = d[np.isfinite(d)]
    if finite.size == 0:
        raise ValueError("at least one block without a failure is needed")
    # Cells with unequal numbers of blocks share the ranks up to the next power of two.
    ranks = np.array(_ranks(alpha, max(256, 1 << (n - 1).bit_length()))[:n])
    low, high = _running_max(d, ranks), -_running_max(-d, ranks)
    return Interval.around(float(np.median(finite)), low, high)


def _running_max(values: FloatArray, ranks: IntArray) -> float:
    """Return the largest over n of the k_n-th smallest of the first n values; -inf if every k_n is 0.

    It is at least v if and only if, for some n, fewer than k_n of the first n values are below v. This
    condition becomes harder as v grows, so v is found by bisection in O(n log n) time.
    """
    if not bool(np.any(ranks > 0)):
        return -math.inf
    ordered = np.sort(values)
    reached, beyond = 0, values.size
    while beyond - reached > 1:
        middle = (reached + beyond) // 2
        if bool(np.any(np.cumsum(values < ordered[middle]) < ranks)):
            reached = middle
        else:
            beyond = middle
    return float(ordered[reached])
