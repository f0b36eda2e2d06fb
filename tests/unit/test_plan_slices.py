"""How the slices of a block are shared among kernels."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.design import REHEARSED_SLICES, USUAL_SLICES
from nearmetal.model.record import Fold, Row, Status, TrialRecord, slice_phase
from nearmetal.model.study import Better, Design, Environment, KernelWorkload, Placement, Study
from nearmetal.plan.slices import LONGEST_BLOCK, MOST_SLICES, SlicePlanner

NAMES = ("quiet", "loud")


def study(slices: int | None = None, max_time: float | None = None) -> Study:
    return Study(
        name="s",
        question="",
        environments=tuple(
            Environment(name=n, backend="native", placements=("1x1",)) for n in ("native", "box")
        ),
        placements=(Placement(name="1x1", instances=1, tasks=1),),
        workloads=tuple(KernelWorkload(name=n, kernel="ep", params={}) for n in NAMES),
        design=Design(
            baselines=("native",), margin=0.03, confidence=0.95, seed=1, slices=slices, max_time=max_time
        ),
    )


def rehearsal(noise: dict[str, float], seconds: float = 0.002) -> list[list[TrialRecord]]:
    """Of one block."""
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
        out.append(
            TrialRecord(
                run="r", trial=f"0.{arm}{aa}", block=0, attempt=1, arm=arm, aa=aa, position=0, begin=0, end=1,
                fold=Fold.PAIRED, status=Status.OK, reason="", rows=rows,
                phases={slice_phase(n): seconds for n in noise},
            )
        )  # fmt: skip
    return [out]


def plan_slices(study: Study, blocks: list[list[TrialRecord]], seconds: float) -> dict[str, int]:
    """Of the first block."""
    return SlicePlanner(study, blocks, seconds).slices()


def added_seconds(study: Study, blocks: list[list[TrialRecord]], slices: dict[str, int]) -> float:
    """To a rehearsed block."""
    return SlicePlanner(study, blocks, 0.0).block_seconds(slices)


def test_a_number_that_the_study_says_stays() -> None:
    assert plan_slices(study(slices=3), rehearsal({"quiet": 0.01, "loud": 0.2}), 0.5) == {
        "quiet": 3,
        "loud": 3,
    }


@pytest.mark.parametrize("asked", [1, 40])
def test_what_the_study_says_was_rehearsed_as_well(asked: int) -> None:
    own = study(slices=asked)
    records = rehearsal({"quiet": 0.01, "loud": 0.2}, seconds=0.5)
    assert added_seconds(own, records, plan_slices(own, records, 5.0)) == 0


def test_the_noisy_kernel_gets_the_time_that_is_left() -> None:
    records = rehearsal({"quiet": 0.01, "loud": 0.2})
    planned = plan_slices(study(), records, 3.5)
    assert planned["quiet"] == USUAL_SLICES
    assert USUAL_SLICES < planned["loud"] < MOST_SLICES
    assert 0.4 < added_seconds(study(), records, planned) <= LONGEST_BLOCK - 3.5


def test_equal_noise_is_shared_equally() -> None:
    planned = plan_slices(study(), rehearsal({"quiet": 0.1, "loud": 0.1}), 3.0)
    assert planned["quiet"] > USUAL_SLICES
    assert planned["loud"] == planned["quiet"]


def test_slices_go_by_noise_rather_than_by_its_square() -> None:
    # Four times the noise: 4^(4/3) times the slices, where the variance would give sixteen times.
    planned = plan_slices(study(), rehearsal({"quiet": 0.05, "loud": 0.2}), 3.3)
    assert planned["loud"] / planned["quiet"] == pytest.approx(4 ** (4 / 3), rel=0.1)


def test_a_short_budget_has_short_blocks() -> None:
    records = rehearsal({"quiet": 0.01, "loud": 0.2})
    assert plan_slices(study(max_time=20), records, 0.6) == dict.fromkeys(NAMES, USUAL_SLICES)
    longer = plan_slices(study(max_time=60), records, 0.6)
    assert 0.6 + added_seconds(study(), records, longer) <= 60 / 40


def test_a_block_that_is_long_already_gets_no_longer() -> None:
    assert plan_slices(study(), rehearsal({"quiet": 0.01, "loud": 0.2}), 9.0) == dict.fromkeys(
        NAMES, USUAL_SLICES
    )


def test_nothing_measured_asks_for_nothing() -> None:
    assert plan_slices(study(), [[]], 1.0) == dict.fromkeys(NAMES, USUAL_SLICES)
    assert plan_slices(study(), rehearsal({"loud": 0.0}), 1.0) == dict.fromkeys(NAMES, USUAL_SLICES)


def test_a_quiet_spell_in_one_rehearsal_starves_no_kernel() -> None:
    loud = rehearsal({"quiet": 0.01, "loud": 0.2})
    spell = rehearsal({"quiet": 0.01, "loud": 0.005})
    alone, among = (plan_slices(study(), b, 3.3)["loud"] for b in (spell, [*loud, *spell, *loud]))
    assert alone < 0.7 * among


def test_a_slice_costs_what_it_does_in_the_median_rehearsal() -> None:
    noise = {"quiet": 0.02, "loud": 0.2}
    cheap, dear = rehearsal(noise, 0.002), rehearsal(noise, 0.02)
    fewer = dict.fromkeys(NAMES, REHEARSED_SLICES - 1)
    assert added_seconds(study(), [*cheap, *dear, *cheap], fewer) == added_seconds(study(), cheap, fewer)


def test_a_block_in_which_one_arm_alone_ran_tells_nothing() -> None:
    noise = {"quiet": 0.02, "loud": 0.2}
    good = rehearsal(noise)
    planner = SlicePlanner(study(), good, 3.3)
    planner.saw([r for r in rehearsal({"quiet": 0.2, "loud": 0.02})[0] if r.arm != "native/1x1"])
    assert planner.slices() == plan_slices(study(), good, 3.3)


def test_noise_that_the_rehearsal_had_not_is_met_in_later_blocks() -> None:
    planner = SlicePlanner(study(), rehearsal({"quiet": 0.02, "loud": 0.02}), 3.3)
    before = planner.slices()
    for _ in range(5):
        planner.saw(rehearsal({"quiet": 0.02, "loud": 0.2})[0])
    after = planner.slices()
    assert after["loud"] > 1.5 * before["loud"] and after["quiet"] < before["quiet"]


def test_a_number_that_the_study_says_stays_whatever_is_seen() -> None:
    planner = SlicePlanner(study(slices=3), rehearsal({"quiet": 0.01, "loud": 0.2}), 0.5)
    planner.saw(rehearsal({"quiet": 0.2, "loud": 0.01})[0])
    assert planner.slices() == {"quiet": 3, "loud": 3}


def test_slices_fill_the_time_that_a_block_may_take() -> None:
    records = rehearsal({"quiet": 0.02, "loud": 0.2})
    planner = SlicePlanner(study(), records, 0.5)
    slice_seconds = -added_seconds(study(), records, dict.fromkeys(NAMES, REHEARSED_SLICES - 1)) / 2

    def took(slices: dict[str, int], beside: float) -> float:
        return beside + sum(slices.values()) * slice_seconds

    beside = 0.5 - REHEARSED_SLICES * 2 * slice_seconds
    for longest in (0.6, 0.9):
        assert longest - 2 * slice_seconds < took(planner.slices(longest), beside) <= longest
    for _ in range(9):  # the machine has grown slower
        planner.took(planner.slices(0.9), took(planner.slices(0.9), beside + 0.2))
    assert 0.9 - 2 * slice_seconds < took(planner.slices(0.9), beside + 0.2) <= 0.9


@given(st.permutations(range(3)), st.floats(0.1, 10))
def test_which_arm_was_which_changes_nothing(order: list[int], slower: float) -> None:
    """Else the sign of a block's difference would tell how finely later blocks are measured."""
    noise = {"quiet": 0.05, "loud": 0.2}
    (block,) = rehearsal(noise)
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
        planner = SlicePlanner(study(), rehearsal({"quiet": 0.1, "loud": 0.1}), 3.3)
        planner.saw(records)
        seen.append(planner.slices())
    assert seen[0] == seen[1]


@given(st.floats(0, 2), st.floats(0, 2), st.floats(1e-4, 0.1), st.floats(0.1, 9), st.floats(5, 600))
def test_never_out_of_bounds(
    quiet: float, loud: float, seconds: float, block: float, max_time: float
) -> None:
    noise = {"quiet": min(quiet, 0.9), "loud": min(loud, 0.9)}
    records = rehearsal(noise, seconds)
    planned = plan_slices(study(max_time=max_time), records, block)
    assert set(planned) == set(NAMES)
    assert all(USUAL_SLICES <= n <= MOST_SLICES for n in planned.values())
    assert added_seconds(study(), records, planned) <= max(0.0, LONGEST_BLOCK - block) + 1e-9
