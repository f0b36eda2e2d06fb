"""The exact signed-rank interval of Hodges and Lehmann.

The ends of the interval are order statistics of the Walsh averages (d_i + d_j) / 2, i <= j, of a sample d. If
d is symmetric about theta, the number of Walsh averages at or below theta has Wilcoxon's signed-rank
distribution. Ties can only make this number larger, which widens the interval.

Small samples list all Walsh averages. Larger samples find an order statistic by counting, in O(n log n) time
and O(n) memory. To make the counts exact, values are rounded to a grid of 2^-53 of the largest |d|."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from . import FloatArray, IntArray

EXACT_UP_TO = 400
"""Largest n with the exact null distribution; beyond it see `lower_tail`."""
LIST_UP_TO = 128
"""Largest n whose n(n+1)/2 Walsh averages are listed rather than counted."""
SMOOTH_TURNS = 7
"""Number of steps of a search after which each end of the bracket is moved to a sum that occurs. The search
then ends soon, even if many values are equal."""
SKETCH = 128
"""Number of values of a large sample from which the first bracket of a search is guessed."""
_NORMAL = NormalDist()
_ONE_SIGMA = _NORMAL.cdf(-1.0)


@lru_cache(maxsize=128)
def null_cdf(n: int) -> FloatArray:
    """Return P(T <= k) for k = 0 .. n(n+1)/2, computed by adding one rank after the other.

    T is the sum of the ranks 1 .. n, each taken with probability 1/2. All terms are positive, so the relative
    error is of the order of n eps.
    """
    p = np.zeros(n * (n + 1) // 2 + 1)
    p[0] = 1.0
    top = 0
    for rank in range(1, n + 1):
        p[rank : top + rank + 1] += p[: top + 1].copy()
        top += rank
        p[: top + 1] *= 0.5
    cdf: FloatArray = np.cumsum(p)
    cdf.setflags(write=False)
    return cdf


def lower_tail(n: int, k: int) -> float:
    """Return P(T <= k), where T is the signed-rank statistic of n values under the null hypothesis.

    The probability is exact for n <= 400. For larger n it is the normal distribution with Cornish-Fisher
    correction by the fourth cumulant, at k + 1.5 instead of k + 0.5, times (1 + 1/n). For tails from 1e-7 to
    0.2 and n from 400 to 2000 it is 1 to 1 + 7/n times the exact value. It is never smaller, so that
    intervals are never too short.
    """
    if k < 0:
        return 0.0
    whole = n * (n + 1) // 2
    if k >= whole:
        return 1.0
    if n <= EXACT_UP_TO:
        return float(null_cdf(n)[k])
    squares = n * (n + 1) * (2 * n + 1) / 6
    fourths = squares * (3 * n * n + 3 * n - 1) / 5
    excess = (fourths / 8) / (squares / 4) ** 2
    z = (k + 1.5 - whole / 2) / math.sqrt(squares / 4)
    return min(1.0, (1 + 1 / n) * _NORMAL.cdf(z + excess / 24 * (z**3 - 3 * z)))


@lru_cache(maxsize=4096)
def critical(n: int, p: float) -> int:
    """Return the largest k with P(T <= k) <= p; -1 if there is none."""
    if p <= 0:
        return -1
    if n <= EXACT_UP_TO:
        return int(np.searchsorted(null_cdf(n), p, side="right")) - 1
    low, high = -1, n * (n + 1) // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lower_tail(n, middle) <= p else (low, middle)
    return low


def attained(n: int, level: float) -> float:
    """Return the largest level not above `level` that a two-sided interval of n values attains; 0 if there is
    none."""
    k = critical(n, level / 2)
    return 0.0 if k < 0 else 2 * lower_tail(n, k)


@lru_cache(maxsize=64)
def pairs(n: int) -> tuple[IntArray, IntArray]:
    i, j = np.triu_indices(n)
    return i.astype(np.int64), j.astype(np.int64)


class Walsh:
    """The Walsh averages of one sample of n >= 1 values, listed or only counted.

    Values may be infinite, because a failed trial counts as longer than any other. A pair of +inf and -inf
    has no average. It counts as -inf in the search for a lower end and as +inf in the search for an upper
    end, so that no interval is too short.
    """

    def __init__(self, d: FloatArray) -> None:
        self.n = int(d.size)
        self.count = self.n * (self.n + 1) // 2
        above, below = int(np.sum(d == math.inf)), int(np.sum(d == -math.inf))
        if above or below:
            d = d[np.isfinite(d)]
        self._size = int(d.size)
        self._lowest = below * self._size + below * (below + 1) // 2
        self._opposed = above * below
        self._listed: FloatArray | None = None
        if self._size <= LIST_UP_TO:
            i, j = pairs(self._size)
            # Halve each value before adding, so that the sum of two large values cannot overflow.
            half = 0.5 * d
            self._listed = np.sort(half[i] + half[j])
            return
        largest = float(np.max(np.abs(d)))
        self._unit = math.ldexp(1.0, math.frexp(largest)[1] - 53) if largest > 0 else 1.0
        self._grid: IntArray = np.sort(np.rint(d / self._unit).astype(np.int64))
        self._index: IntArray = np.arange(self._size, dtype=np.int64)
        self._sketch: IntArray | None = None

    def lower(self, rank: int) -> float:
        """Return the rank-th smallest Walsh average, 1 <= rank <= count. A pair of +inf and -inf counts as
        -inf.
        """
        return self._from_lowest(rank - self._lowest - self._opposed)

    def upper(self, rank: int) -> float:
        """Return the rank-th largest Walsh average, 1 <= rank <= count. A pair of +inf and -inf counts as
        +inf.
        """
        return self._from_lowest(self.count - rank + 1 - self._lowest)

    def number_at_most(self, theta: float) -> int:
        """Return the number of Walsh averages <= theta, a finite number. A pair of +inf and -inf counts as
        -inf.
        """
        return self._lowest + self._opposed + self._finite_at_most(theta)

    def number_below(self, theta: float) -> int:
        """Return the number of Walsh averages < theta, a finite number. A pair of +inf and -inf counts as
        +inf.
        """
        if self._listed is not None:
            return self._lowest + int(np.searchsorted(self._listed, theta, side="left"))
        return self._lowest + int(np.sum(self._width(math.ceil(self._bound(theta)) - 1)))

    def below(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at most theta: small if the values lie
        above it."""
        return lower_tail(self.n, self.number_at_most(theta))

    def above(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at least theta."""
        return lower_tail(self.n, self.count - self.number_below(theta))

    def centre(self) -> float:
        """Return the Hodges-Lehmann estimate of the finite values: the median of their Walsh averages.

        Raises ValueError if no value is finite.
        """
        if self._size == 0:
            raise ValueError("no value is finite")
        whole = self._size * (self._size + 1) // 2
        middle = (whole + 1) // 2
        if whole % 2:
            return self._order(middle)
        if self._listed is not None:
            return 0.5 * self._order(middle) + 0.5 * self._order(middle + 1)
        lower = self._select(middle)
        width = self._width(lower)
        upper = lower if int(np.sum(width)) > middle else self._smallest_beyond(width)
        return 0.5 * (0.5 * lower * self._unit) + 0.5 * (0.5 * upper * self._unit)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the closed interval that misses the centre with probability at most alpha; infinite if n is
        too small.
        """
        k = critical(self.n, alpha / 2)
        if k < 0:
            return -math.inf, math.inf
        return self.lower(k + 1), self.upper(k + 1)

    def narrowed(self, alpha: float, low: float, high: float) -> tuple[float, float]:
        """Return the intersection of [low, high] and interval(alpha).

        An end of interval(alpha) is searched for only if it narrows the result. Whether it does is found by
        counting Walsh averages, which is much cheaper than the search.
        """
        k = critical(self.n, alpha / 2)
        if k < 0:
            return low, high
        if low == -math.inf or self.number_at_most(low) <= k:
            low = max(low, self.lower(k + 1))
        if high == math.inf or self.count - self.number_below(high) <= k:
            high = min(high, self.upper(k + 1))
        return low, high

    def step(self) -> float:
        """Return about one standard error of the centre; nan for fewer than 3 finite values.

        It is computed from the inner two thirds of the finite Walsh averages, so that no single extreme block
        changes it much.
        """
        k = critical(self._size, _ONE_SIGMA)
        if k < 0:
            return math.nan
        sigmas = -_NORMAL.inv_cdf(lower_tail(self._size, k))
        whole = self._size * (self._size + 1) // 2
        return (self._order(whole - k) - self._order(k + 1)) / (2 * sigmas)

    def _from_lowest(self, rank: int) -> float:
        """Return the rank-th smallest finite Walsh average; -inf for a rank below 1, +inf for a rank above
        their number."""
        if rank < 1:
            return -math.inf
        if rank > self._size * (self._size + 1) // 2:
            return math.inf
        return self._order(rank)

    def _order(self, rank: int) -> float:
        if self._listed is not None:
            return float(self._listed[rank - 1])
        return 0.5 * self._select(rank) * self._unit

    def _finite_at_most(self, theta: float) -> int:
        if self._listed is not None:
            return int(np.searchsorted(self._listed, theta, side="right"))
        return int(np.sum(self._width(math.floor(self._bound(theta)))))

    def _bound(self, theta: float) -> float:
        """Return twice theta in units of the grid, clipped so that it can be converted to an integer."""
        outermost = 4.0 * float(2**53)
        return min(max(2 * theta / self._unit, -outermost), outermost)

    def _width(self, total: int) -> IntArray:
        """Return, for each i, the number of j >= i with grid[i] + grid[j] <= total."""
        width: IntArray = np.zeros(self._size, dtype=np.int64)
        # For the values beyond `own`, already the sum with themselves exceeds the total.
        own = int(np.searchsorted(self._grid, total // 2, side="right"))
        reach = np.searchsorted(self._grid, total - self._grid[:own], side="right")
        np.subtract(reach, self._index[:own], out=width[:own])
        return width

    def _select(self, rank: int) -> int:
        """Return the rank-th smallest sum of two grid values.

        The sums in a bracket are counted to narrow it, until they are few enough to be listed, or until only
        one value is left (ties).
        """
        low, high = 2 * int(self._grid[0]) - 1, 2 * int(self._grid[-1])
        below, upto = 0, self._size * (self._size + 1) // 2
        width_low: IntArray = np.zeros(self._size, dtype=np.int64)
        width_high: IntArray = self._size - self._index
        probes = self._guesses(rank)
        turn = 0
        while upto - below > 2 * self._size and high - low > 1:
            if probes:
                middle = probes.pop()
            elif turn % 5 == 4:
                # Every fifth step halves, so that outliers cannot stall the interpolation.
                middle = (low + high) // 2
            else:
                # Aimed a little beyond the rank, to either side in turn, so that both ends close in.
                aim = rank + (1 if turn % 2 == 0 else -1) * (3 * self._size // 4)
                middle = low + int((high - low) * min(max((aim - below) / (upto - below), 0.0), 1.0))
            turn += 1
            middle = min(max(middle, low + 1), high - 1)
            width = self._width(middle)
            number = int(np.sum(width))
            if number >= rank:
                high, upto, width_high = middle, number, width
                if turn > SMOOTH_TURNS:
                    high = self._largest(width)
            else:
                low, below, width_low = middle, number, width
                if turn > SMOOTH_TURNS:
                    low = self._smallest_beyond(width) - 1
        if high - low == 1:
            return high
        each = width_high - width_low
        i = np.repeat(self._index, each)
        first = np.repeat(self._index + width_low - (np.cumsum(each) - each), each)
        sums = self._grid[i] + self._grid[first + np.arange(i.size)]
        return int(np.partition(sums, rank - below - 1)[rank - below - 1])

    def _largest(self, width: IntArray) -> int:
        """Return the largest sum among those counted by `width`, which counts at least one."""
        i = np.flatnonzero(width)
        return int(np.max(self._grid[i] + self._grid[i + width[i] - 1]))

    def _smallest_beyond(self, width: IntArray) -> int:
        """Return the smallest sum that is not counted by `width`; at least one is not."""
        i = np.flatnonzero(self._index + width < self._size)
        return int(np.min(self._grid[i] + self._grid[i + width[i]]))

    def _guesses(self, rank: int) -> list[int]:
        """Return two sums that probably enclose the rank-th one, guessed from about 128 evenly spaced values;
        empty for small samples."""
        if self._size < 4 * SKETCH:
            return []
        if self._sketch is None:
            few = self._grid[self._size // (2 * SKETCH) :: self._size // SKETCH]
            i, j = pairs(int(few.size))
            self._sketch = np.sort(few[i] + few[j])
        at = int(rank / (self._size * (self._size + 1) // 2) * self._sketch.size)
        off = self._sketch.size // SKETCH
        last = self._sketch.size - 1
        return [int(self._sketch[min(max(at + o, 0), last)]) for o in (off, -off)]
