"""When to look, how much of alpha each look may spend, and the interval carried between looks
("look-and-carry").

Which numbers of blocks are looked at does not depend on what was measured, and the levels spent sum to at
most alpha. By the union bound the running intersection covers theta with probability at least 1 - alpha at
every stopping time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..model.plan import ExpectedLooks, GrowingLooks, Schedule
from ..model.result import Interval, Look
from .signed_rank import Walsh, attained
from .three_arm import Brackets, most_attained, three_arm_interval

FloatArray = NDArray[np.float64]

FIRST_LOOK = 8
"""Blocks: the fewest whose signed-rank interval is bounded at .16 of 5 %."""
FIRST_SHARE, SECOND_SHARE, THIRD_SHARE, SHARE_RATIO = 0.16, 0.28, 0.168, 0.7
CLOSING_SHARE = 0.5
"""Share of what is unspent that a closing look may spend."""
OLD_SHARES, OLD_RATIO = (0.2, 0.5, 0.12), 0.6
OLD_LEAST_BLOCKS = 12
"""Blocks before which results directories with ExpectedLooks gave no verdict."""

Attained = Callable[[int, float], float]
"""The level that a test of n blocks attains within a given level, 0 where the interval would be unbounded."""


@dataclass(frozen=True, kw_only=True)
class PlannedLook:
    """A look at the first n blocks of a comparison. share: of alpha; None for a closing look."""

    n: int
    share: float | None


def look_schedule(schedule: Schedule, blocks: int) -> tuple[tuple[int, float], ...]:
    """(n_j, share_j) of every look at no more than `blocks` blocks, closing looks apart.

    GrowingLooks: n = 8, 12, 18, ..., ceil(1.5 n_(j-1)); shares .16, .28, then .168 x .7^j. ExpectedLooks:
    n = ceil(2N/3), N, then ceil(1.5 n_(j-1)); shares .2, .5, .12, then each .6 times the one before; for
    N < 3 the first two looks fall together and so do their shares. The infinite sums are 1. Raises ValueError
    for ExpectedLooks with N < 1."""
    match schedule:
        case GrowingLooks():
            looks = [(FIRST_LOOK, FIRST_SHARE), (_grown(FIRST_LOOK), SECOND_SHARE)]
            share, ratio = THIRD_SHARE, SHARE_RATIO
        case ExpectedLooks(expected=expected):
            if expected < 1:
                raise ValueError(f"the schedule needs at least one expected block, not {expected}")
            first = -(-2 * expected // 3)
            looks = [(first, OLD_SHARES[0]), (expected, OLD_SHARES[1])]
            if first == expected:
                looks = [(expected, OLD_SHARES[0] + OLD_SHARES[1])]
            share, ratio = OLD_SHARES[2], OLD_RATIO
    while (n := _grown(looks[-1][0])) <= blocks:
        looks.append((n, share))
        share *= ratio
    return tuple(look for look in looks if look[0] <= blocks)


def next_looks(schedule: Schedule, blocks: int, count: int) -> tuple[tuple[int, float], ...]:
    """The next `count` looks after `blocks` blocks, closing looks apart."""
    reach = max(schedule.expected if isinstance(schedule, ExpectedLooks) else FIRST_LOOK, blocks)
    for _ in range(count + 1):
        reach = _grown(reach)
    return tuple(look for look in look_schedule(schedule, reach) if look[0] > blocks)[:count]


def _grown(n: int) -> int:
    """ceil(1.5 n)."""
    return -(-3 * n // 2)


def own_schedule(schedule: Schedule, left_out: Collection[int]) -> Schedule:
    """The schedule of one comparison, without closing looks after blocks that it was left out of because it
    was decided: where such a comparison ended depended on the data, and a closing look must not."""
    if isinstance(schedule, GrowingLooks) and schedule.closing and left_out:
        return GrowingLooks(closing=tuple(block for block in schedule.closing if block not in left_out))
    return schedule


def planned_looks(schedule: Schedule, numbers: Sequence[int]) -> tuple[PlannedLook, ...]:
    """Every look at a comparison, closing looks included.

    numbers: the numbers of its blocks, ascending. A closing look is at the number of the comparison's blocks
    up to the block that it is named by; it is skipped if no block came after the look before."""
    found: dict[int, float | None] = dict(look_schedule(schedule, len(numbers)))
    if isinstance(schedule, GrowingLooks):
        for block in schedule.closing:
            n = bisect_right(numbers, block)
            if n:
                found.setdefault(n, None)
    return tuple(PlannedLook(n=n, share=found[n]) for n in sorted(found))


def spent_levels(
    schedule: Schedule, looks: Sequence[PlannedLook], alpha: float, level_of: Attained
) -> tuple[float, ...]:
    """The level that each look spends; they sum to at most alpha.

    GrowingLooks: a look may spend its share of alpha and what earlier looks left; it spends the level that
    its test attains within that. A closing look may spend half of what is unspent, future shares included;
    what is then carried and all future shares are scaled by what it leaves over what it found. ExpectedLooks:
    each look spends its share, and nothing is carried."""
    if isinstance(schedule, ExpectedLooks):
        return tuple(alpha * (look.share or 0.0) for look in looks)
    carried, scale, unspent = 0.0, 1.0, alpha
    out: list[float] = []
    for look in looks:
        if look.share is not None:
            available = carried + alpha * look.share * scale
            level = level_of(look.n, available)
            carried = available - level
        else:
            level = level_of(look.n, CLOSING_SHARE * unspent)
            left = (unspent - level) / unspent
            carried *= left
            scale *= left
        unspent -= level
        out.append(level)
    return tuple(out)


def nominal_shares(looks: Sequence[PlannedLook]) -> tuple[float, ...]:
    """The share of alpha that each look may spend if nothing is carried, whatever alpha is; they sum to at
    most 1. A closing look has half of what no look before it had, and halves what comes after it."""
    scale, unspent = 1.0, 1.0
    out: list[float] = []
    for look in looks:
        if look.share is not None:
            out.append(look.share * scale)
        else:
            out.append(CLOSING_SHARE * unspent)
            scale *= 1 - CLOSING_SHARE
        unspent -= out[-1]
    return tuple(out)


@lru_cache(maxsize=256)
def signed_rank_levels(schedule: Schedule, looks: tuple[PlannedLook, ...], alpha: float) -> tuple[float, ...]:
    """spent_levels of the signed-rank interval."""
    return spent_levels(schedule, looks, alpha, attained)


def first_looks(schedule: Schedule, alpha: float, count: int) -> tuple[int, ...]:
    """Blocks of the first `count` looks that can give a verdict: their level is attainable."""
    looks = tuple(PlannedLook(n=n, share=share) for n, share in next_looks(schedule, 0, FORESEEN_LOOKS))
    levels = signed_rank_levels(schedule, looks, alpha)
    usable = (look.n for look, level in zip(looks, levels, strict=True) if attained(look.n, level) > 0)
    return tuple(usable)[:count]


@lru_cache(maxsize=256)
def three_arm_levels(schedule: Schedule, looks: tuple[PlannedLook, ...], alpha: float) -> tuple[float, ...]:
    """spent_levels of the three-arm interval."""
    return spent_levels(schedule, looks, alpha, most_attained)


def least_blocks(schedule: Schedule, wanted: int) -> int:
    """Blocks before which no verdict is given. wanted: what the study asks for, 0 where it does not."""
    return wanted or (OLD_LEAST_BLOCKS if isinstance(schedule, ExpectedLooks) else 0)


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What is known after all blocks.

    looks: the running interval after each look.
    low, high: the last of them, infinite before the first; low > high where the looks contradict each other.
    centre: Hodges-Lehmann estimate of all blocks without a failure, moved to the nearer end where it lies
        outside of [low, high].
    step: about one standard error of the centre (nan for n < 3).
    ahead: n and level of the looks to come, soonest first, if each attains what it may spend."""

    looks: tuple[Look, ...]
    low: float
    high: float
    centre: float
    step: float
    ahead: tuple[tuple[int, float], ...]

    @property
    def interval(self) -> Interval:
        return Interval(centre=self.centre, low=self.low, high=self.high)


FORESEEN_LOOKS = 12
"""How many looks ahead are foreseen: a factor of about 100 in blocks."""


def look_and_carry(
    d: FloatArray,
    *,
    schedule: Schedule,
    alpha: float,
    numbers: Sequence[int] | None = None,
    brackets: Brackets | None = None,
) -> Carried:
    """The primary interval of the centre of d, which has one value per block in the order of blocks.

    At each look it takes the exact signed-rank interval of the blocks so far, at the level that the schedule
    lets the look spend; between looks it keeps the running intersection. d may hold infinite values, for
    blocks in which one side failed. numbers: of the blocks, 1, 2, 3, ... if omitted. brackets: of the same
    blocks; with these the interval is the three-arm one instead, the centre still that of d. O(n log n) time,
    O(n) memory. Raises ValueError for d without a finite value or alpha outside of (0, 1)."""
    if not 0 < alpha < 1 or not bool(np.any(np.isfinite(d))):
        raise ValueError("at least one block without a failure and 0 < alpha < 1 are needed")
    size = int(d.size)
    planned = planned_looks(schedule, range(1, size + 1) if numbers is None else numbers)
    levels = (signed_rank_levels if brackets is None else three_arm_levels)(schedule, planned, alpha)
    low, high = -math.inf, math.inf
    looks: list[Look] = []
    walsh: Walsh | None = None
    for look, level in zip(planned, levels, strict=True):
        if brackets is None:
            walsh = Walsh(d[: look.n])
            lower, upper = walsh.interval(level)
        else:
            lower, upper = three_arm_interval(brackets.of(slice(look.n)), level)
        low, high = max(low, lower), min(high, upper)
        looks.append(Look(n=look.n, low=low, high=high))
    if walsh is None or walsh.n != size:
        walsh = Walsh(d)
    centre = walsh.centre()
    if low <= high:
        centre = min(max(centre, low), high)
    return Carried(
        looks=tuple(looks),
        low=low,
        high=high,
        centre=centre,
        step=walsh.step(),
        ahead=_ahead(schedule, planned, size, alpha),
    )


@lru_cache(maxsize=256)
def _ahead(
    schedule: Schedule, planned: tuple[PlannedLook, ...], blocks: int, alpha: float
) -> tuple[tuple[int, float], ...]:
    coming = tuple(PlannedLook(n=n, share=s) for n, s in next_looks(schedule, blocks, FORESEEN_LOOKS))
    levels = signed_rank_levels(schedule, (*planned, *coming), alpha)[len(planned) :]
    return tuple((look.n, level) for look, level in zip(coming, levels, strict=True))
