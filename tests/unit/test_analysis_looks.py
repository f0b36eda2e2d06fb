"""When comparisons are looked at, and how much each look may spend."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.intervals.looks import (
    PlannedLook,
    carried_interval,
    look_and_carry,
    nominal_shares,
    planned_looks,
    signed_rank_levels,
    spent_levels,
)
from nearmetal.analysis.intervals.signed_rank import attained
from nearmetal.model.looks import look_schedule, next_looks
from nearmetal.model.plan import GROWING, ExpectedLooks, GrowingLooks, Schedule

SCHEDULES = st.integers(0, 300).map(lambda n: GrowingLooks(first=n)) | st.integers(1, 500).map(
    lambda n: ExpectedLooks(expected=n)
)
CLOSINGS = st.builds(
    lambda closing, first: GrowingLooks(closing=tuple(sorted(closing)), first=first),
    st.sets(st.integers(1, 400), max_size=6),
    st.just(0) | st.integers(1, 100),
)


def test_looks_after_8_12_18_27_blocks() -> None:
    looks = look_schedule(GROWING, 100)
    assert [n for n, _ in looks] == [8, 12, 18, 27, 41, 62, 93]
    assert [share for _, share in looks] == pytest.approx(
        [0.16, 0.28, 0.168, 0.1176, 0.08232, 0.057624, 0.0403368]
    )


def test_no_look_before_every_machine_was_in_a_set() -> None:
    looks = look_schedule(GrowingLooks(first=15), 27)
    assert [n for n, _ in looks] == [18, 27]
    assert [share for _, share in looks] == pytest.approx([0.16 + 0.28 + 0.168, 0.1176])
    planned = planned_looks(GrowingLooks(first=15, closing=(9, 16)), range(1, 21))
    assert [look.n for look in planned] == [16, 18]
    assert look_and_carry(np.zeros(14), schedule=GrowingLooks(first=15), alpha=0.05).looks == ()


def test_old_schedules() -> None:
    assert look_schedule(ExpectedLooks(expected=1), 3) == ((1, 0.7), (2, 0.12), (3, 0.072))
    assert look_schedule(ExpectedLooks(expected=2), 3) == ((2, 0.7), (3, 0.12))
    assert look_schedule(ExpectedLooks(expected=12), 18) == ((8, 0.2), (12, 0.5), (18, 0.12))
    with pytest.raises(ValueError):
        look_schedule(ExpectedLooks(expected=0), 10)


@given(schedule=SCHEDULES, blocks=st.integers(0, 5000))
def test_schedules_grow_and_their_shares_never_exceed_all(schedule: Schedule, blocks: int) -> None:
    looks = look_schedule(schedule, blocks)
    assert sum(share for _, share in looks) <= 1 + 1e-12
    assert all(n <= blocks for n, _ in looks)
    assert all(a[0] < b[0] for a, b in itertools.pairwise(looks))
    upcoming = next_looks(schedule, blocks, 3)
    assert len(upcoming) == 3 and upcoming[0][0] > blocks
    assert look_schedule(schedule, upcoming[-1][0]) == (*looks, *upcoming)


def test_the_exact_attained_levels_are_spent_and_the_rest_is_carried() -> None:
    """They sum to .0496 of .05, and the first interval is there after 8 blocks."""
    planned = planned_looks(GROWING, range(1, 2001))
    levels = signed_rank_levels(GROWING, planned, 0.05)
    assert levels[0] == 2 / 256  # all 8 signs alike
    assert levels[1] == 50 / 4096  # of .0142; 66 / 4096 would be too much
    assert levels[2] > 0.168 * 0.05  # what the second look left is spent by the third
    assert math.fsum(levels) == pytest.approx(0.0496, abs=0.0001)


@pytest.mark.parametrize(("comparisons", "first"), [(1, 8), (2, 12), (10, 12)])
def test_first_finite_interval_is_at_the_first_attainable_level(comparisons: int, first: int) -> None:
    carried = look_and_carry(np.arange(30.0), schedule=GROWING, alpha=0.05 / comparisons)
    assert next(look.n for look in carried.looks if math.isfinite(look.low)) == first


@given(schedule=CLOSINGS, blocks=st.integers(1, 500), alpha=st.floats(1e-4, 0.5))
def test_spent_levels_never_sum_above_alpha(schedule: GrowingLooks, blocks: int, alpha: float) -> None:
    planned = planned_looks(schedule, range(1, blocks + 1))
    levels = signed_rank_levels(schedule, planned, alpha)
    assert all(level >= 0 for level in levels)
    assert math.fsum(levels) <= alpha * (1 + 1e-12)
    shares = nominal_shares(planned)
    assert math.fsum(shares) <= 1 + 1e-12 and min(shares, default=1.0) > 0


@given(schedule=CLOSINGS, blocks=st.integers(1, 500), data=st.data())
def test_partly_spent_levels_stay_below_alpha(
    schedule: GrowingLooks, blocks: int, data: st.DataObject
) -> None:
    """Nor does a test that attains any part of what it may spend."""
    planned = planned_looks(schedule, range(1, blocks + 1))
    parts = data.draw(st.lists(st.floats(0, 1), min_size=len(planned), max_size=len(planned)))
    of = {look.n: part for look, part in zip(planned, parts, strict=True)}
    levels = spent_levels(schedule, planned, 0.05, lambda n, level: of[n] * level)
    assert math.fsum(levels) <= 0.05 * (1 + 1e-12)


def test_a_closing_look_spends_half_of_what_is_unspent_and_scales_the_rest() -> None:
    schedule = GrowingLooks(closing=(10,))
    planned = planned_looks(schedule, range(1, 13))
    assert planned == (
        PlannedLook(n=8, share=0.16),
        PlannedLook(n=10, share=None),
        PlannedLook(n=12, share=0.28),
    )
    first, closing, second = spent_levels(schedule, planned, 0.05, lambda n, level: level)
    assert first == pytest.approx(0.008)
    assert closing == pytest.approx((0.05 - 0.008) / 2)
    assert second == pytest.approx(0.28 * 0.05 / 2)


def test_a_closing_look_without_a_new_block_is_none() -> None:
    def places(*closing: int, numbers: range = range(1, 21)) -> list[int]:
        return [look.n for look in planned_looks(GrowingLooks(closing=closing), numbers)]

    assert places(12) == [8, 12, 18]  # the look after 12 blocks was made already
    assert places(14) == places(14, 14) == [8, 12, 14, 18]
    assert places(14, numbers=range(1, 25, 2)) == [7, 8, 12]  # by its own blocks: 1, 3, ..., 13
    assert places(19, 40, numbers=range(1, 15)) == [8, 12, 14]
    assert places(3, numbers=range(5, 15)) == [8]  # it had no block then


def test_a_run_that_ends_after_seven_blocks_has_an_interval() -> None:
    d = np.linspace(0.0, 0.01, 7)
    assert not look_and_carry(d, schedule=GROWING, alpha=0.05).looks
    (look,) = look_and_carry(d, schedule=GrowingLooks(closing=(7,)), alpha=0.05).looks
    assert (look.n, look.low, look.high) == (7, 0.0, 0.01)


def test_levels_of_future_looks_are_predicted() -> None:
    carried = look_and_carry(np.zeros(5), schedule=GROWING, alpha=0.05)
    assert carried.ahead[0] == (8, 2 / 256) and [n for n, _ in carried.ahead[:3]] == [8, 12, 18]
    closed = look_and_carry(np.zeros(5), schedule=GrowingLooks(closing=(5,)), alpha=0.05)
    assert closed.ahead == carried.ahead  # five blocks attain no level, so nothing was spent
    later = look_and_carry(np.zeros(10), schedule=GrowingLooks(closing=(10,)), alpha=0.05)
    assert later.ahead[0][0] == 12 and later.ahead[0][1] < 0.28 * 0.05
    assert later.ahead[0][1] == attained(12, later.ahead[0][1])


@given(
    values=st.lists(st.floats(-0.5, 0.5).map(lambda x: round(x, 3)), min_size=1, max_size=30),
    ends=st.lists(st.sampled_from([-math.inf, math.inf]), max_size=4),
    repeated=st.integers(1, 12),
    schedule=SCHEDULES | CLOSINGS,
    seed=st.integers(0, 2**32 - 1),
)
def test_the_interval_alone_is_that_of_all_looks(
    values: list[float], ends: list[float], repeated: int, schedule: Schedule, seed: int
) -> None:
    d = np.random.default_rng(seed).permutation(np.array([*values, *ends] * repeated))
    whole = look_and_carry(d, schedule=schedule, alpha=0.05).interval
    alone = carried_interval(d, schedule=schedule, alpha=0.05)
    assert [alone.low, alone.high] == pytest.approx([whole.low, whole.high])
    assert alone.centre == pytest.approx(whole.centre)
