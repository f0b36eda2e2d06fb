"""How long a block is, and how its slices are shared among kernels."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.change import replace
from nearmetal.model.design import LEAST_SLICES, REHEARSED_SLICES
from nearmetal.model.record import Fold, Row, Status, TrialRecord, slice_phase, verify_phase
from nearmetal.model.study import Better, Design, Environment, KernelWorkload, Placement, Study
from nearmetal.plan.slices import (
    FIXED_FROM,
    FULL_RUN,
    LEFT_THEN,
    LONGER_THEN,
    LONGEST_BLOCK,
    LONGEST_LATE_BLOCK,
    LOOKS,
    MOST_SLICES,
    OVERHEAD_SHARE,
    SHORTER_THEN,
    SHORTEST_RUN,
    VERIFIED_EVERY,
    SlicePlanner,
    finest_factor,
    late_lengths,
)

NAMES = ("quiet", "loud")


def study(slices: int | None = None, width: float | None = None) -> Study:
    return Study(
        name="s",
        question="",
        environments=tuple(
            Environment(name=n, backend="native", placements=("1x1",)) for n in ("native", "box")
        ),
        placements=(Placement(name="1x1", instances=1, tasks=1),),
        workloads=tuple(KernelWorkload(name=n, kernel="ep", params={}) for n in NAMES),
        design=Design(
            baselines=("native",), margin=0.03, confidence=0.95, seed=1, slices=slices, target_width=width
        ),
    )


def rehearsal(noise: dict[str, float], seconds: float = 0.002, verify: float = 0.0) -> list[TrialRecord]:
    """A block. noise: by kernel; seconds: of a slice of one arm; verify: of one verification."""
    rng = random.Random(5)
    out = []
    for arm, aa in (("native/1x1", False), ("native/1x1", True), ("box/1x1", False)):
        drawn = [rng.uniform(-1, 1) for _ in range(REHEARSED_SLICES)]  # the same for each kernel
        rows = tuple(
            Row(
                workload=n,
                metric="rate",
                unit="op/s",
                better=Better.HIGHER,
                values=tuple(1e6 * (1 + noise[n] * x) for x in drawn),
                status=Status.OK,
                seconds=(seconds,) * REHEARSED_SLICES,
            )
            for n in NAMES
            if n in noise
        )
        phases = {slice_phase(n): seconds for n in noise} | {verify_phase(n): verify for n in noise}
        out.append(
            TrialRecord(
                run="r", trial=f"0.{arm}{aa}", block=0, attempt=1, arm=arm, aa=aa, position=0, begin=0, end=1,
                fold=Fold.PAIRED, status=Status.OK, reason="", rows=rows, phases=phases,
            )
        )  # fmt: skip
    return out


REHEARSED = dict.fromkeys(NAMES, REHEARSED_SLICES)
LOUD = {"quiet": 0.01, "loud": 0.2}
EACH = 3 * 0.002
"""Seconds of one slice of all arms."""


def planner(
    noise: dict[str, float] | None = None,
    *,
    beside: float = 1.2,
    left: float | None = 82.0,
    slices: int | None = None,
    verify: float = 0.0,
) -> SlicePlanner:
    """After the rehearsal. beside: seconds of a block beside its slices and verifications."""
    asked = slices or REHEARSED_SLICES
    seconds = beside + 2 * asked * EACH + 2 * 3 * verify
    return SlicePlanner(study(slices), rehearsal(noise or LOUD, verify=verify), seconds, left)


def saw(plan: SlicePlanner, noise: dict[str, float], beside: float = 1.2, seconds: float = 0.002) -> None:
    slices = plan.slices()
    took = beside + sum(slices.values()) * 3 * seconds
    plan.saw(slices, rehearsal(noise, seconds), took)


def test_fixed_number_of_slices_is_never_changed() -> None:
    plan = planner(slices=3)
    saw(plan, {"quiet": 0.2, "loud": 0.01})
    assert plan.slices() == {"quiet": 3, "loud": 3}


def test_fixed_cost_of_a_block_is_at_most_a_third_of_it() -> None:
    plan = planner(beside=1.2)
    assert 1.2 / plan.block_seconds() == pytest.approx(OVERHEAD_SHARE, rel=0.05)
    assert OVERHEAD_SHARE <= 1 / 3


def test_long_blocks_are_shortened_so_that_the_third_look_fits_the_budget() -> None:
    assert planner(beside=3.0).block_seconds() * SHORTEST_RUN < 82.0
    far_too_dear = planner(beside=9.0)
    assert far_too_dear.slices() == dict.fromkeys(NAMES, LEAST_SLICES)


def test_cheap_blocks_are_filled_until_forty_fill_the_budget() -> None:
    noisy = {"quiet": 0.2, "loud": 0.2}
    assert planner(noisy, beside=0.1).block_seconds() == pytest.approx(82.0 / FULL_RUN, rel=0.05)
    assert planner(noisy, beside=0.1, left=600.0).block_seconds() <= LONGEST_BLOCK
    assert planner(noisy, beside=0.1, left=None).block_seconds() <= LONGEST_BLOCK


def test_verifications_count_by_how_often_they_are_run() -> None:
    each = 0.1
    plan = planner(beside=1.2, verify=each)
    assert plan.block_seconds() == pytest.approx((1.2 + 6 * each / VERIFIED_EVERY) / OVERHEAD_SHARE, rel=0.05)


def test_the_noisy_kernel_gets_the_time_that_is_left() -> None:
    planned = planner().slices()
    assert LEAST_SLICES < planned["quiet"] < planned["loud"] <= MOST_SLICES


def test_equal_noise_is_shared_equally() -> None:
    planned = planner({"quiet": 0.1, "loud": 0.1}).slices()
    assert planned["loud"] == planned["quiet"] > LEAST_SLICES


def test_slices_go_by_noise_rather_than_by_its_square() -> None:
    # Four times the noise: 4^(4/3) times the slices, where the variance would give sixteen times.
    planned = planner({"quiet": 0.05, "loud": 0.2}, beside=0.3, left=60.0).slices()
    assert planned["loud"] / planned["quiet"] == pytest.approx(4 ** (4 / 3), rel=0.15)


def test_least_slices_are_planned_without_measurements() -> None:
    assert SlicePlanner(study(), [], 1.0, 82.0).slices() == dict.fromkeys(NAMES, LEAST_SLICES)
    assert planner({"loud": 0.0}).slices() == dict.fromkeys(NAMES, LEAST_SLICES)


def test_a_block_in_which_one_arm_alone_ran_tells_nothing_of_noise() -> None:
    noise = {"quiet": 0.02, "loud": 0.2}
    plan, twin = planner(noise), planner(noise)
    slices = plan.slices()
    seconds = 1.2 + sum(slices.values()) * EACH
    alone = [r for r in rehearsal({"quiet": 0.2, "loud": 0.02}) if r.arm != "native/1x1"]
    plan.saw(slices, alone, seconds)
    twin.saw(slices, rehearsal(noise), seconds)
    assert plan.slices() == twin.slices()


def test_noise_that_the_rehearsal_had_not_is_met_in_later_blocks() -> None:
    plan = planner({"quiet": 0.02, "loud": 0.02}, beside=0.6)
    before = plan.slices()
    for _ in range(5):
        saw(plan, {"quiet": 0.02, "loud": 0.2}, beside=0.6)
    after = plan.slices()
    assert after["loud"] > 1.5 * before["loud"] and after["quiet"] < before["quiet"]


def test_a_cold_rehearsal_does_not_count_once_there_are_blocks() -> None:
    plan = planner(beside=3.0)
    saw(plan, LOUD, beside=1.0)
    assert plan.block_seconds() == pytest.approx(1.0 / OVERHEAD_SHARE, rel=0.05)


def test_slices_stay_from_the_first_look_on() -> None:
    """From then on arms and kernels may drop out by their verdicts, which no slice may follow from."""
    plan = planner()
    for _ in range(FIXED_FROM):
        saw(plan, LOUD)
    quiet, loud = planner(), plan
    for _ in range(FIXED_FROM):
        saw(quiet, LOUD)
    for _ in range(SHORTEST_RUN):
        assert quiet.slices() == loud.slices()
        saw(quiet, LOUD)
        saw(loud, {"quiet": 0.3, "loud": 0.01}, beside=0.2)


@pytest.mark.parametrize("slices", [None, 12])
def test_the_lengths_of_later_blocks_are_known_from_the_first_on(slices: int | None) -> None:
    plan = planner(LOUD, left=200.0, slices=slices)
    saw(plan, LOUD)
    foreseen = plan.lengths()
    found = []
    for done in range(1, SHORTEST_RUN + 1):
        if done in (*(look - 1 for look in LOOKS), SHORTEST_RUN):
            found.append(plan.block_seconds())
        saw(plan, LOUD)
    assert foreseen == pytest.approx(found, rel=0.05)
    assert plan.lengths() == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize("left", [60.0, 85.0, 600.0, None])
def test_blocks_are_longer_after_the_first_look_as_far_as_the_budget_holds(left: float | None) -> None:
    plan = planner(left=left)
    length = plan.block_seconds()
    for _ in range(FIXED_FROM):
        saw(plan, LOUD)
    longer = plan.block_seconds()
    assert length * 0.95 < longer < length * 1.05 * LONGER_THEN
    if left is None or left > 85:
        assert longer == pytest.approx(LONGER_THEN * length, rel=0.1)
    else:
        rest = LEFT_THEN * (SHORTEST_RUN - FIXED_FROM) * longer
        assert FIXED_FROM * length + rest < left * 1.01
    lengths = [longer]
    for _ in range(SHORTEST_RUN - FIXED_FROM):
        saw(plan, LOUD)
        lengths.append(plan.block_seconds())
    assert all(later > 0.99 * earlier for earlier, later in pairwise(lengths))
    assert lengths[-1] < LONGEST_LATE_BLOCK * 1.05


@pytest.mark.parametrize("left", [40.0, 65.0, 90.0, 300.0])
def test_a_third_look_fits_into_the_budget_as_well_as_before_the_second(left: float) -> None:
    """Blocks between the second look and the third become longer only if all of them fit, even if nothing has
    dropped out."""
    second, third, fourth = late_lengths(2.5, left)
    assert second <= third <= fourth <= LONGEST_LATE_BLOCK
    assert third == second or 4 * second + 6 * third < left


@given(st.permutations(range(3)), st.floats(0.1, 10))
def test_exchanging_arms_does_not_change_the_plan(order: list[int], slower: float) -> None:
    """Else the sign of a block's difference would tell how finely later blocks are measured."""
    block = rehearsal({"quiet": 0.05, "loud": 0.2})
    swapped = [
        replace(
            r,
            rows=tuple(
                replace(row, values=tuple(x * (slower if i == 0 else 1) for x in row.values))
                for row in block[order[i]].rows
            ),
        )
        for i, r in enumerate(block)
    ]
    seen = []
    for records in (block, swapped):
        plan = planner({"quiet": 0.1, "loud": 0.1})
        plan.saw(plan.slices(), records, 3.3)
        seen.append(plan.slices())
    assert seen[0] == seen[1]


@given(
    st.floats(0, 2), st.floats(0, 2), st.floats(1e-4, 0.1), st.floats(0.01, 9), st.none() | st.floats(1, 600)
)
def test_never_out_of_bounds(
    quiet: float, loud: float, seconds: float, beside: float, left: float | None
) -> None:
    noise = {"quiet": min(quiet, 0.9), "loud": min(loud, 0.9)}
    took = beside + 2 * REHEARSED_SLICES * 3 * seconds
    plan = SlicePlanner(study(), rehearsal(noise, seconds), took, left)
    planned = plan.slices()
    assert set(planned) == set(NAMES)
    assert all(LEAST_SLICES <= n <= MOST_SLICES for n in planned.values())
    if any(n > LEAST_SLICES for n in planned.values()) and left is not None:
        assert plan.block_seconds() * SHORTEST_RUN <= left


def test_noise_between_blocks_asks_for_more_and_shorter_blocks() -> None:
    assert finest_factor(0.3, 0.7, [0.01]) == SHORTER_THEN
    assert finest_factor(0.3, 0.7, [1.0]) > 2


def test_the_factor_gives_the_narrowest_intervals_in_a_given_time() -> None:
    within = [0.4, 0.8]

    def relative_variance(factor: float) -> float:
        return sum((1 - share + share / factor) * (0.5 + factor * 0.6) for share in within)

    best = finest_factor(0.5, 0.6, within)
    assert SHORTER_THEN < best < 2
    assert all(relative_variance(best) <= relative_variance(best * other) for other in (0.7, 0.9, 1.1, 1.4))


def test_without_a_measured_spread_the_length_stays() -> None:
    assert finest_factor(0.3, 0.7, []) == finest_factor(0.3, 0.0, [0.5]) == 1.0


def noisy_block(rng: random.Random, between: float, within: float, count: int = 12) -> list[TrialRecord]:
    """A block of the baseline, the baseline again, and another arm, each with its own deviation."""
    out = []
    for record in rehearsal(dict.fromkeys(NAMES, 0.0)):
        away = rng.gauss(0, between)
        rows = tuple(
            replace(
                row,
                values=tuple(1e6 * math.exp(away + rng.gauss(0, within)) for _ in range(count)),
                seconds=(0.002,) * count,
            )
            for row in record.rows
        )
        out.append(replace(record, rows=rows))
    return out


@pytest.mark.parametrize(("between", "within", "width"), [(0.05, 0.002, 0.001), (0.05, 0.002, None)])
def test_a_study_that_asks_for_a_width_gets_short_blocks_where_blocks_differ(
    between: float, within: float, width: float | None
) -> None:
    rng = random.Random(7)
    plan = SlicePlanner(study(width=width), rehearsal(LOUD), 1.2 + 2 * REHEARSED_SLICES * EACH, 200.0)
    for _ in range(FIXED_FROM):
        before = plan.block_seconds()
        plan.saw(plan.slices(), noisy_block(rng, between, within), 1.2 + sum(plan.slices().values()) * EACH)
    assert (plan.block_seconds() < 0.8 * before) == (width is not None)
    assert (plan.block_seconds() > before) == (width is None)


def slower(block: list[TrialRecord], factor: float) -> list[TrialRecord]:
    """The block with other values of the environment that is compared."""
    return [
        replace(r, rows=tuple(replace(row, values=tuple(factor * v for v in row.values)) for row in r.rows))
        if r.arm == "box/1x1"
        else r
        for r in block
    ]


def slices_after_the_first_look(blocks: list[list[TrialRecord]]) -> tuple[dict[str, int], float]:
    """And the factor by which the number of slices has changed."""
    plan = SlicePlanner(study(width=0.001), rehearsal(LOUD), 1.2 + 2 * REHEARSED_SLICES * EACH, 400.0)
    before = plan.slices()
    for block in blocks:
        before = plan.slices()
        plan.saw(before, block, 1.2 + sum(before.values()) * EACH)
    return plan.slices(), plan.slices()["loud"] / before["loud"]


def test_the_length_does_not_follow_from_differences_between_environments() -> None:
    rng = random.Random(7)
    blocks = [noisy_block(rng, 0.006, 0.03) for _ in range(FIXED_FROM)]
    alike, factor = slices_after_the_first_look(blocks)
    assert SHORTER_THEN * 1.05 < factor < LONGER_THEN * 0.95, "a limit would hide a difference"
    assert slices_after_the_first_look([slower(b, 5.0) for b in blocks])[0] == alike


def test_incomplete_blocks_do_not_count_for_the_noise_between_blocks() -> None:
    """The mean of the arms is another there: that is no noise."""
    rng = random.Random(7)
    blocks = [slower(noisy_block(rng, 0.0, 0.03, 100), 1.2) for _ in range(FIXED_FROM)]
    _, whole = slices_after_the_first_look(blocks)
    blocks[3] = [r for r in blocks[3] if not r.aa]
    _, lacking = slices_after_the_first_look(blocks)
    assert whole > 1.2 and lacking > 1.2


def test_noise_of_slices_alone_asks_for_longer_blocks() -> None:
    rng = random.Random(3)
    _, factor = slices_after_the_first_look([noisy_block(rng, 0.0, 0.03, 100) for _ in range(FIXED_FROM)])
    assert factor > 1.2
