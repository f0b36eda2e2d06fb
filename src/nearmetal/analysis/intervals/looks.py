"""The blocks at which to look, the share of alpha that each look may spend, and the interval carried between
looks ("look-and-carry").

The block numbers of the looks do not depend on measured values, and the levels spent sum to at most alpha. By
the union bound, the running intersection covers theta with probability at least 1 - alpha at every stopping
time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...model.looks import look_schedule, next_looks
from ...model.plan import ExpectedLooks, GrowingLooks, Schedule
from ...model.result import Interval, Look
from . import FloatArray
from .signed_rank import Walsh, attained

CLOSING_SHARE = 0.5
"""Share of the unspent alpha that a closing look may spend."""
OLD_LEAST_BLOCKS = 12
"""Least number of blocks for a verdict in results directories with ExpectedLooks."""

Attained = Callable[[int, float], float]
"""Function of (n, level): returns the largest level not above `level` that a test of n blocks attains; 0 if
the interval would be unbounded."""


@dataclass(frozen=True, kw_only=True)
class PlannedLook:
    """A look at the first n blocks of a comparison.

    share: share of alpha; None for a closing look.
    """

    n: int
    share: float | None


def own_schedule(schedule: Schedule, left_out: Collection[int]) -> Schedule:
    """Return the schedule of one comparison, without closing looks after blocks from which it was left out.

    A comparison is left out once it is decided, so the block at which it ended depends on the data. A closing
    look must not depend on the data.
    """
    if isinstance(schedule, GrowingLooks) and schedule.closing and left_out:
        closing = tuple(block for block in schedule.closing if block not in left_out)
        return replace(schedule, closing=closing)
    return schedule


def planned_looks(schedule: Schedule, numbers: Sequence[int]) -> tuple[PlannedLook, ...]:
    """Return every look at a comparison, including closing looks.

    numbers: the numbers of its blocks, ascending.

    The schedule names a closing look by a block number. The look includes the blocks of the comparison up to
    that number. It is skipped if no block was added since the look before.
    """
    found: dict[int, float | None] = dict(look_schedule(schedule, len(numbers)))
    if isinstance(schedule, GrowingLooks):
        for block in schedule.closing:
            n = bisect_right(numbers, block)
            if n >= max(1, schedule.first):
                found.setdefault(n, None)
    return tuple(PlannedLook(n=n, share=found[n]) for n in sorted(found))


def spent_levels(
    schedule: Schedule, looks: Sequence[PlannedLook], alpha: float, level_of: Attained
) -> tuple[float, ...]:
    """Return the level that each look spends; the levels sum to at most alpha.

    GrowingLooks: a look may spend its share of alpha and the amount that earlier looks left. It spends the
        largest level within this amount that its test attains. A closing look may spend half of the unspent
        alpha, including the shares of future looks. The amount left by earlier looks and all future shares
        are then multiplied by the fraction of alpha that the closing look did not spend.
    ExpectedLooks: each look spends its share, and nothing is carried.

    level_of: see Attained.
    """
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
    """Return the share of alpha that each look may spend if unspent shares are not passed on. The shares do
    not depend on alpha and sum to at most 1.

    A closing look has half of the share that all looks before it left, and halves the shares of later looks.
    """
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
    """Return spent_levels() of the signed-rank interval."""
    return spent_levels(schedule, looks, alpha, attained)


def least_blocks(schedule: Schedule, wanted: int) -> int:
    """Return the least number of blocks for a verdict.

    wanted: the number that the study requests; 0 if it requests none.
    """
    return wanted or (OLD_LEAST_BLOCKS if isinstance(schedule, ExpectedLooks) else 0)


@dataclass(frozen=True, kw_only=True)
class Carried:
    """The state of a comparison after all blocks.

    looks: the running interval after each look.
    low, high: the running interval after the last look, infinite before the first; low > high if looks
        contradict each other.
    centre: Hodges-Lehmann estimate of all blocks without a failure, moved to the nearer end if it lies
        outside [low, high].
    step: about one standard error of the centre; nan if unknown.
    ahead: number of blocks and predicted level of each future look, soonest first.
    """

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
"""Number of future looks that a prediction considers. The last one is at about 100 times the present number
of blocks."""


def look_and_carry(
    d: FloatArray, *, schedule: Schedule, alpha: float, numbers: Sequence[int] | None = None
) -> Carried:
    """Return the primary interval of the centre of d, which has one value per block in the order of blocks.

    At each look, the exact signed-rank interval of the blocks so far is computed at the level that the look
    spends. The running interval is the intersection of the intervals of all looks so far. d may contain
    infinite values, for blocks in which one side failed.

    numbers: numbers of the blocks; 1, 2, 3, ... if omitted.

    Takes O(n log n) time and O(n) memory. Raises ValueError if d has no finite value, or alpha is outside (0,
    1).
    """
    check_sample(d, alpha)
    size = int(d.size)
    planned = planned_looks(schedule, range(1, size + 1) if numbers is None else numbers)
    levels = signed_rank_levels(schedule, planned, alpha)
    whole = Walsh(d)

    def interval(n: int, level: float) -> tuple[float, float]:
        return (whole if n == size else Walsh(d[:n])).interval(level)

    ahead = _ahead(schedule, planned, size, alpha)
    return carry(planned, levels, interval, centre=whole.centre(), step=whole.step(), ahead=ahead)


def check_sample(d: FloatArray, alpha: float) -> None:
    """Raise ValueError if d has no finite value, or alpha is outside (0, 1)."""
    if not 0 < alpha < 1 or not bool(np.any(np.isfinite(d))):
        raise ValueError("at least one block without a failure and 0 < alpha < 1 are needed")


def carry(
    planned: Iterable[PlannedLook],
    levels: Iterable[float],
    interval: Callable[[int, float], tuple[float, float]],
    *,
    centre: float,
    step: float,
    ahead: tuple[tuple[int, float], ...],
) -> Carried:
    """Return the running intersection of the intervals of all looks.

    levels: level of each look.
    interval: returns the interval of the first n blocks, given n and a level.
    centre, step, ahead: as in Carried; the centre is moved into the interval.
    """
    low, high = -math.inf, math.inf
    looks: list[Look] = []
    for look, level in zip(planned, levels, strict=True):
        lower, upper = interval(look.n, level)
        low, high = max(low, lower), min(high, upper)
        looks.append(Look(n=look.n, low=low, high=high))
    centre = Interval.around(centre, low, high).centre
    return Carried(looks=tuple(looks), low=low, high=high, centre=centre, step=step, ahead=ahead)


def carried_interval(
    d: FloatArray, *, schedule: Schedule, alpha: float, numbers: Sequence[int] | None = None
) -> Interval:
    """Return the interval of look_and_carry(), without its looks.

    The interval of the last look, which is nearly always the narrowest, is computed first. The interval of
    another look is computed only if a count of Walsh averages shows that it narrows the result.
    """
    check_sample(d, alpha)
    size = int(d.size)
    planned = planned_looks(schedule, range(1, size + 1) if numbers is None else numbers)
    levels = signed_rank_levels(schedule, planned, alpha)
    whole = Walsh(d)
    low, high = -math.inf, math.inf
    for look, level in reversed(list(zip(planned, levels, strict=True))):
        walsh = whole if look.n == size else Walsh(d[: look.n])
        low, high = walsh.narrowed(level, low, high)
    return Interval.around(whole.centre(), low, high)


@lru_cache(maxsize=256)
def _ahead(
    schedule: Schedule, planned: tuple[PlannedLook, ...], blocks: int, alpha: float
) -> tuple[tuple[int, float], ...]:
    coming = tuple(PlannedLook(n=n, share=s) for n, s in next_looks(schedule, blocks, FORESEEN_LOOKS))
    levels = signed_rank_levels(schedule, (*planned, *coming), alpha)[len(planned) :]
    return tuple((look.n, level) for look, level in zip(coming, levels, strict=True))
