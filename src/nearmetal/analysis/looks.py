"""When to look, how much of alpha each look may spend, and the interval carried between looks
("look-and-carry").

Look sizes and shares are fixed by N before data; the shares sum to 1, so by the union bound the running
intersection covers theta with probability at least 1 - alpha at every stopping time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.result import Interval, Look
from .signed_rank import Walsh

FloatArray = NDArray[np.float64]

FIRST_SHARE, SECOND_SHARE, THIRD_SHARE, SHARE_RATIO = 0.2, 0.5, 0.12, 0.6


def look_schedule(expected: int, blocks: int) -> tuple[tuple[int, float], ...]:
    """(n_j, share_j) of every look at no more than `blocks` blocks.

    n_j = ceil(2N/3), N, then ceil(1.5 n_(j-1)); shares .2, .5, .12, then each 0.6 times the one before: their
    infinite sum is 1. For N < 3 the first two looks fall together and so do their shares. Raises ValueError
    for expected < 1."""
    if expected < 1:
        raise ValueError(f"the schedule needs at least one expected block, not {expected}")
    first = -(-2 * expected // 3)
    head = [(first, FIRST_SHARE), (expected, SECOND_SHARE)]
    looks = head if first < expected else [(expected, FIRST_SHARE + SECOND_SHARE)]
    n, share = expected, THIRD_SHARE
    while True:
        n = -(-3 * n // 2)
        if n > blocks:
            break
        looks.append((n, share))
        share *= SHARE_RATIO
    return tuple(look for look in looks if look[0] <= blocks)


def next_looks(expected: int, blocks: int, count: int) -> tuple[tuple[int, float], ...]:
    """The next `count` looks after `blocks` blocks."""
    reach = max(expected, blocks)
    for _ in range(count + 1):
        reach = -(-3 * reach // 2)
    return tuple(look for look in look_schedule(expected, reach) if look[0] > blocks)[:count]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What is known after all blocks. looks: the running interval after each look; low, high: the last of
    them, infinite before the first; low > high where the looks contradict each other; centre: Hodges-Lehmann
    estimate of all blocks, moved to the nearer end where it lies outside of [low, high]; step: about one
    standard error of the centre (nan for n < 3)."""

    looks: tuple[Look, ...]
    low: float
    high: float
    centre: float
    step: float

    @property
    def interval(self) -> Interval:
        return Interval(centre=self.centre, low=self.low, high=self.high)


def look_and_carry(d: FloatArray, *, expected: int, alpha: float) -> Carried:
    """The primary interval of the centre of d (one value per block, in the order of blocks).

    At each look the exact signed-rank interval at alpha * share of the blocks so far; between looks the
    running intersection. O(n log n) time, O(n) memory. Raises ValueError for an empty d or alpha outside of
    (0, 1)."""
    if d.size == 0 or not 0 < alpha < 1:
        raise ValueError("at least one block and 0 < alpha < 1 are needed")
    low, high = -math.inf, math.inf
    looks: list[Look] = []
    walsh: Walsh | None = None
    for n, share in look_schedule(expected, int(d.size)):
        walsh = Walsh(d[:n])
        lower, upper = walsh.interval(alpha * share)
        low, high = max(low, lower), min(high, upper)
        looks.append(Look(n=n, low=low, high=high))
    if walsh is None or walsh.n != d.size:
        walsh = Walsh(d)
    centre = walsh.centre()
    if low <= high:
        centre = min(max(centre, low), high)
    return Carried(looks=tuple(looks), low=low, high=high, centre=centre, step=walsh.step())
