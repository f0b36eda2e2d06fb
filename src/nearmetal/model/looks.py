"""The number of blocks at which the results of a schedule are analysed (a look), and the share of alpha that
each look may spend.

This module does not import numpy, so that a run can plan before it loads the statistics."""

from __future__ import annotations

from .plan import ExpectedLooks, GrowingLooks, Schedule

FIRST_LOOK = 8
"""Number of blocks at the first look: the smallest with a bounded signed-rank interval at level .16 x .05."""
FIRST_SHARE, SECOND_SHARE, THIRD_SHARE, SHARE_RATIO = 0.16, 0.28, 0.168, 0.7
OLD_SHARES, OLD_RATIO = (0.2, 0.5, 0.12), 0.6
MOST_LOOKS = 40
"""Number of looks that first_looks() searches. The last of them is after about 10^7 blocks."""


def look_schedule(schedule: Schedule, blocks: int) -> tuple[tuple[int, float], ...]:
    """Return (n_j, share_j) of every look at no more than `blocks` blocks, without closing looks. n_j is a
    number of blocks, and share_j is a share of alpha.

    GrowingLooks: n = 8, 12, 18, ..., ceil(1.5 n_(j-1)); shares .16, .28, .168, then each .7 times the one
        before. Looks before `first` blocks are left out, and their shares are added to the next look.
    ExpectedLooks: n = ceil(2N/3), N, then ceil(1.5 n_(j-1)); shares .2, .5, .12, then each .6 times the one
        before. For N < 3 the first two looks coincide, and their shares are added.

    The infinite sums of shares are 1.
    Raises ValueError for ExpectedLooks with N < 1.
    """
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
    begin = schedule.first if isinstance(schedule, GrowingLooks) else 0
    early = sum(share for n, share in looks if n < begin)
    kept = [look for look in looks if look[0] >= begin]
    if kept and early:
        kept[0] = (kept[0][0], kept[0][1] + early)
    return tuple(look for look in kept if look[0] <= blocks)


def next_looks(schedule: Schedule, blocks: int, count: int) -> tuple[tuple[int, float], ...]:
    """Return (number of blocks, share of alpha) of the next `count` looks after `blocks` blocks, without
    closing looks."""
    begin = schedule.expected if isinstance(schedule, ExpectedLooks) else max(FIRST_LOOK, schedule.first)
    reach = max(begin, blocks)
    for _ in range(count + 1):
        reach = _grown(reach)
    return tuple(look for look in look_schedule(schedule, reach) if look[0] > blocks)[:count]


def _grown(n: int) -> int:
    """Return ceil(1.5 n)."""
    return -(-3 * n // 2)


def first_looks(schedule: Schedule, alpha: float, count: int) -> tuple[int, ...]:
    """Return the numbers of blocks at the first `count` looks that can give a verdict at alpha.

    The smallest level of the signed-rank test is 2^(1 - n). A look is unusable if its share, with the shares
    carried over from unusable looks before it, does not reach this level.
    """
    carried, out = 0.0, list[int]()
    for n, share in next_looks(schedule, 0, MOST_LOOKS):
        carried += alpha * share
        if carried >= 2.0 ** (1 - n):
            out.append(n)
            carried = 0.0
    return tuple(out[:count])
