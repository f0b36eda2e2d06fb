"""The exact signed-rank interval of a centre that several nodes share, each node with the same weight.

Every node has its own signed ranks: the share of its Walsh averages (d_i + d_j) / 2, i <= j, that are at or
below theta. The statistic is the sum of these shares over nodes. If the values of each node are symmetric
about theta, the signs of its ranks are equally likely, independently of the other nodes, so the null
distribution is a convolution. The interval contains every theta that is not rejected.

A node with many blocks counts no more than a node with few, because each contributes a share between 0 and
1. With equally many blocks on each node the statistic is the sum of the signed ranks (van Elteren).

Shares are multiplied by a grid size and rounded down. The statistic of the rounded shares is exact as well;
for the upper end of the interval, all values are negated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from . import FloatArray, IntArray
from .signed_rank import EXACT_UP_TO, LIST_UP_TO, Walsh, lower_tail, null_cdf, pairs

FINEST_GRID, COARSEST_GRID = 4096, 256
"""Limits of the grid on which the shares of the nodes are rounded down, in steps from 0 to 1. A grid of this
size is used if the nodes have different numbers of blocks, or very many."""
LARGEST_SUPPORT = 1 << 18
"""With many nodes, the grid is made coarser to keep the number of values of the statistic below this, as far
as COARSEST_GRID permits."""
DIRECT_UP_TO = 4096
"""Largest support whose distribution is convolved directly, with full relative accuracy in the tails."""
HALVINGS = 36
"""Number of steps in which an end of the interval of a large sample is narrowed down."""
_NORMAL = NormalDist()
_ONE_SIGMA = _NORMAL.cdf(-1.0)


class NodeRanks:
    """The null distribution for nodes with given numbers of blocks.

    grid: the statistic takes the values 0 .. grid * number of nodes.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        """sizes: number of blocks of each node, each at least 1, in any order."""
        self.grid = _grid_of(sizes)
        pmf = np.ones(1)
        for n, count in sorted(Counter(sizes).items()):
            pmf = _convolved(pmf, _score_pmf(n, self.grid), count)
        self._cdf: FloatArray = np.minimum(np.cumsum(pmf), 1.0)

    def critical(self, p: float) -> int:
        """Return the largest k with P(S <= k) <= p; -1 if there is none."""
        return int(np.searchsorted(self._cdf, p, side="right")) - 1 if p > 0 else -1

    def lower_tail(self, k: int) -> float:
        """Return P(S <= k)."""
        return 0.0 if k < 0 else float(self._cdf[min(k, self._cdf.size - 1)])

    def attained(self, level: float) -> float:
        """Return the largest level not above `level` that a two-sided interval attains; 0 if none."""
        k = self.critical(level / 2)
        return 0.0 if k < 0 else 2 * self.lower_tail(k)


@lru_cache(maxsize=256)
def node_ranks(sizes: tuple[int, ...]) -> NodeRanks:
    """Return the null distribution for these numbers of blocks. It is cached, so sort them first."""
    return NodeRanks(sizes)


def _grid_of(sizes: Sequence[int]) -> int:
    whole = sizes[0] * (sizes[0] + 1) // 2
    if len(set(sizes)) == 1 and whole <= FINEST_GRID:
        return whole
    return max(COARSEST_GRID, min(FINEST_GRID, LARGEST_SUPPORT // len(sizes)))


@lru_cache(maxsize=64)
def _score_pmf(n: int, grid: int) -> FloatArray:
    """Return the distribution of floor(T * grid / (n (n + 1) / 2)), where T is the signed-rank statistic of n
    values; shape (grid + 1,)."""
    whole = n * (n + 1) // 2
    last = ((np.arange(grid + 1, dtype=np.int64) + 1) * whole - 1) // grid
    last[-1] = whole
    cdf = null_cdf(n)[last] if n <= EXACT_UP_TO else np.array([lower_tail(n, k) for k in last.tolist()])
    pmf: FloatArray = np.diff(cdf, prepend=0.0)
    return pmf


def _convolved(pmf: FloatArray, own: FloatArray, count: int) -> FloatArray:
    """Return the distribution of the sum of a variable with distribution `pmf` and of `count` independent
    ones with distribution `own`."""
    size = pmf.size + count * (own.size - 1)
    if size <= DIRECT_UP_TO:
        for _ in range(count):
            pmf = np.convolve(pmf, own)
        return pmf
    length = 1 << (size - 1).bit_length()
    product = np.fft.rfft(pmf, length) * np.fft.rfft(own, length) ** count
    found: FloatArray = np.maximum(np.fft.irfft(product, length)[:size], 0.0)
    return found


class StratifiedSample:
    """The values of several nodes.

    Values may be infinite, because a failed trial counts as longer than any other.
    """

    def __init__(self, nodes: Sequence[FloatArray]) -> None:
        """nodes: the values of each node, each with at least one value. Raises ValueError without a node or
        with a node that has no value."""
        if not nodes or any(d.size == 0 for d in nodes):
            raise ValueError("every node needs at least one value")
        self.ranks = node_ranks(tuple(sorted(int(d.size) for d in nodes)))
        self._count = len(nodes)
        kind = _Listed if max(d.size for d in nodes) <= LIST_UP_TO else _Counted
        self._lower: _Listed | _Counted = kind(nodes, self.ranks.grid)
        self._upper: _Listed | _Counted = kind([-d for d in nodes], self.ranks.grid)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the closed interval that misses the centre with probability at most `level`; infinite if
        there are too few blocks."""
        k = self.ranks.critical(level / 2)
        if k < 0:
            return -math.inf, math.inf
        return self._lower.first_above(k), -self._upper.first_above(k)

    def below(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at most theta: small if the values lie
        above it."""
        return self.ranks.lower_tail(self._lower.score(theta))

    def above(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at least theta."""
        return self.ranks.lower_tail(self._upper.score(-theta))

    def centre(self) -> float:
        """Return the theta that has half of the Walsh averages on either side, with equal weight for each
        node."""
        middle = (self.ranks.grid * self._count - 1) // 2
        return 0.5 * self._lower.first_above(middle) - 0.5 * self._upper.first_above(middle)

    def step(self) -> float:
        """Return about one standard error of the centre; nan if there are too few finite values."""
        k = self.ranks.critical(_ONE_SIGMA)
        if k < 0:
            return math.nan
        low, high = self._lower.first_above(k), -self._upper.first_above(k)
        sigmas = -_NORMAL.inv_cdf(self.ranks.lower_tail(k))
        return (high - low) / (2 * sigmas) if math.isfinite(high - low) else math.nan


class _Listed:
    """All Walsh averages of small samples, sorted, with the statistic at each of them.

    A pair of +inf and -inf counts as -inf.
    """

    def __init__(self, nodes: Sequence[FloatArray], grid: int) -> None:
        values, steps = [], []
        for d in nodes:
            i, j = pairs(int(d.size))
            half = 0.5 * d
            with np.errstate(invalid="ignore"):
                walsh = half[i] + half[j]
            walsh[np.isnan(walsh)] = -math.inf
            values.append(np.sort(walsh))
            steps.append(np.diff(np.arange(walsh.size + 1, dtype=np.int64) * grid // walsh.size))
        joined = np.concatenate(values)
        order = np.argsort(joined, kind="stable")
        self._values: FloatArray = joined[order]
        self._scores: IntArray = np.cumsum(np.concatenate(steps)[order])

    def score(self, theta: float) -> int:
        """Return the statistic at theta."""
        at = int(np.searchsorted(self._values, theta, side="right"))
        return int(self._scores[at - 1]) if at else 0

    def first_above(self, k: int) -> float:
        """Return the smallest theta at which the statistic exceeds k; infinite if there is none."""
        at = int(np.searchsorted(self._scores, k, side="right"))
        return float(self._values[at]) if at < self._values.size else math.inf


class _Counted:
    """The same interface as _Listed, for large samples whose Walsh averages are only counted."""

    def __init__(self, nodes: Sequence[FloatArray], grid: int) -> None:
        self._walsh = [Walsh(d) for d in nodes]
        self._grid = grid
        finite = np.concatenate([d[np.isfinite(d)] for d in nodes])
        self._range = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)

    def score(self, theta: float) -> int:
        return sum(w.number_at_most(theta) * self._grid // w.count for w in self._walsh)

    def first_above(self, k: int) -> float:
        """Return the smallest theta at which the statistic exceeds k, rounded down by at most 1e-10 of the
        range."""
        low, high = self._range
        width = max(high - low, abs(low), abs(high), 1e-300)
        low -= width
        if self.score(low) > k:
            return -math.inf
        if self.score(high) <= k:
            return math.inf
        for _ in range(HALVINGS):
            middle = 0.5 * low + 0.5 * high
            low, high = (low, middle) if self.score(middle) > k else (middle, high)
        return low
