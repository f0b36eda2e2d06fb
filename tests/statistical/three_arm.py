"""The three-arm interval: an environment against both runs of its baseline, after Quade. It uses only blocks
in which the environment is faster than both runs, or slower than both.

Let e be the environment's value in a block, and a1 and a2 the baseline's values. At theta, a block counts if
e - theta is the largest or the smallest of the three values. If theta is the true value, both cases are
equally likely, because the order within a block is random. The statistic is a signed-rank sum: the sign says
whether the environment is the largest or the smallest, and the rank is that of the block's range among the
blocks that count. If m blocks count, its null distribution is that of the signed-rank statistic of m values.
The interval is the hull of all theta that are not rejected.

Only two numbers of a block matter: lower = e - max(a1, a2) and upper = e - min(a1, a2). For theta < lower the
environment is the largest, and the range of the block is upper - theta. For theta > upper the environment is
the smallest, and the range is theta - lower."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nearmetal.analysis.intervals import FloatArray, IntArray
from nearmetal.analysis.intervals.signed_rank import critical, lower_tail

HALVINGS = 60
"""Number of bisections by which an end is found between two breakpoints, to the last bits of a float."""


@dataclass(frozen=True, kw_only=True)
class Brackets:
    """The blocks of a three-arm comparison, as arrays of shape (n,).

    lower: e - max(a1, a2) of each block, in logarithms; see the module.
    upper: e - min(a1, a2).
    """

    lower: FloatArray
    upper: FloatArray


@lru_cache(maxsize=64)
def criticals(n: int, p: float) -> tuple[IntArray, FloatArray]:
    """Return critical(m, p) for each m from 0 to n, and its probability, both of shape (n + 1,)."""
    reached = [critical(m, p) for m in range(n + 1)]
    return np.array(reached), np.array([lower_tail(m, k) for m, k in enumerate(reached)])


@lru_cache(maxsize=256)
def most_attained(n: int, level: float) -> float:
    """Return the level that the test of n blocks may spend: the largest one that it attains within `level`
    for any number of counting blocks up to n; 0 if the interval would be unbounded."""
    reached, tails = criticals(n, level / 2)
    return 0.0 if reached[n] < 0 else 2 * float(np.max(tails))


def three_arm_interval(brackets: Brackets, level: float) -> tuple[float, float]:
    """Return the closed interval that misses the truth with probability at most `level`.

    The ends are infinite if there are too few blocks for this level. The search takes some tens of steps of
    O(n log n) time each.
    """
    n = int(brackets.lower.size)
    enough, _ = criticals(n, level / 2)
    if enough[n] < 0:
        return -math.inf, math.inf
    low = _LowerEnd(brackets.lower, brackets.upper, enough).find()
    high = -_LowerEnd(-brackets.upper, -brackets.lower, enough).find()
    return low, high


class _LowerEnd:
    """Finds the smallest theta that is not rejected as too small.

    A theta is rejected if the rank sum of the blocks in which the environment is the smallest is at most
    critical(m), where m is the number of blocks that count. Between two breakpoints (values of lower and
    upper), m is constant and the sum only grows with theta. Over a range of breakpoints, the sum and m have
    bounds that exclude most breakpoints at once.
    """

    def __init__(self, lower: FloatArray, upper: FloatArray, critical_of: IntArray) -> None:
        self._lower, self._upper = lower, upper
        self._critical = critical_of
        points = np.concatenate([lower, upper])
        self._points: FloatArray = np.unique(points[np.isfinite(points)])

    def find(self) -> float:
        # Gaps between breakpoints: gap i lies below points[i], the last one above all.
        last = int(self._points.size)
        ranges = [(0, last)]
        while ranges:
            first, final = ranges.pop()
            if self._all_rejected(first, final):
                continue
            if first == final:
                return self._within(first)
            middle = (first + final) // 2
            ranges += [(middle + 1, final), (first, middle)]  # pop() takes the left one first
        return math.inf

    def _ends(self, gap: int) -> tuple[float, float]:
        before = -math.inf if gap == 0 else float(self._points[gap - 1])
        after = math.inf if gap == self._points.size else float(self._points[gap])
        return before, after

    def _all_rejected(self, first: int, final: int) -> bool:
        low, high = self._ends(first)[0], self._ends(final)[1]
        # Blocks in which the environment is the smallest (or the largest) for some theta in the range, and
        # those in which it is so for every theta in the range.
        smallest, always_smallest = self._upper < high, self._upper <= low
        largest, always_largest = self._lower > low, self._lower >= high
        least = int(np.sum(always_smallest) + np.sum(always_largest))
        return self._rank_sum(high, smallest, largest) <= int(self._critical[least])

    def _within(self, gap: int) -> float:
        low, high = self._ends(gap)
        smallest, largest = self._upper <= low, self._lower >= high
        bound = int(self._critical[int(np.sum(smallest) + np.sum(largest))])
        if math.isinf(low) or self._rank_sum(low, smallest, largest) > bound:
            return low
        if math.isinf(high):
            return low
        for _ in range(HALVINGS):
            middle = 0.5 * low + 0.5 * high
            if self._rank_sum(middle, smallest, largest) > bound:
                high = middle
            else:
                low = middle
        return low

    def _rank_sum(self, theta: float, smallest: NDArray[np.bool_], largest: NDArray[np.bool_]) -> int:
        """Return the sum of the ranks of the blocks in which the environment is the smallest. Among equal
        ranges, each has the largest rank.

        smallest, largest: masks of the blocks in which the environment is the smallest or the largest.
        """
        mine = np.sort(self._lower[smallest])
        # Among these blocks, the range theta - lower is at least as large as that of any higher `lower`.
        own = int(np.sum(mine.size - np.searchsorted(mine, mine, side="left")))
        if theta == math.inf:
            return own + int(mine.size) * int(np.sum(largest))
        others = np.sort(self._upper[largest])
        return own + int(np.sum(np.searchsorted(others, 2 * theta - mine, side="right")))
