"""How the slices of a block are shared among kernels."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.design import USUAL_SLICES
from nearmetal.model.record import Fold, Row, Status, TrialRecord
from nearmetal.model.study import Better, Design, Environment, KernelWorkload, Placement, Study
from nearmetal.plan.slices import LONGEST_BLOCK, MOST_SLICES, added_seconds, plan_slices

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


def rehearsal(noise: dict[str, float], seconds: float = 0.002) -> list[TrialRecord]:
    rng = random.Random(5)
    out = []
    for arm, aa in (("native/1x1", False), ("native/1x1", True), ("box/1x1", False)):
        rows = tuple(
            Row(
                workload=n,
                metric="rate",
                unit="op/s",
                better=Better.HIGHER,
                values=tuple(1e6 * (1 + noise[n] * rng.uniform(-1, 1)) for _ in range(USUAL_SLICES)),
                status=Status.OK,
                seconds=(seconds,) * USUAL_SLICES,
            )
            for n in NAMES
            if n in noise
        )
        out.append(
            TrialRecord(
                run="r", trial=f"0.{arm}{aa}", block=0, attempt=1, arm=arm, aa=aa, position=0, begin=0, end=1,
                fold=Fold.PAIRED, status=Status.OK, reason="", rows=rows,
            )
        )  # fmt: skip
    return out


def test_a_number_that_the_study_says_stays() -> None:
    assert plan_slices(study(slices=3), rehearsal({"quiet": 0.01, "loud": 0.2}), 0.5) == {
        "quiet": 3,
        "loud": 3,
    }


def test_the_noisy_kernel_gets_the_time_that_is_left() -> None:
    records = rehearsal({"quiet": 0.01, "loud": 0.2})
    planned = plan_slices(study(), records, 3.5)
    assert planned["quiet"] == USUAL_SLICES
    assert USUAL_SLICES < planned["loud"] < MOST_SLICES
    assert 0.4 < added_seconds(records, planned) <= LONGEST_BLOCK - 3.5


def test_equal_noise_is_shared_equally() -> None:
    planned = plan_slices(study(), rehearsal({"quiet": 0.1, "loud": 0.1}), 3.0)
    assert planned["quiet"] > USUAL_SLICES
    assert planned["loud"] == pytest.approx(planned["quiet"], rel=0.7)  # as far as eight slices tell


def test_a_short_budget_has_short_blocks() -> None:
    records = rehearsal({"quiet": 0.01, "loud": 0.2})
    assert plan_slices(study(max_time=20), records, 0.6) == dict.fromkeys(NAMES, USUAL_SLICES)
    longer = plan_slices(study(max_time=60), records, 0.6)
    assert 0.6 + added_seconds(records, longer) <= 60 / 40


def test_a_block_that_is_long_already_gets_no_longer() -> None:
    assert plan_slices(study(), rehearsal({"quiet": 0.01, "loud": 0.2}), 9.0) == dict.fromkeys(
        NAMES, USUAL_SLICES
    )


def test_nothing_measured_asks_for_nothing() -> None:
    assert plan_slices(study(), [], 1.0) == dict.fromkeys(NAMES, USUAL_SLICES)
    assert plan_slices(study(), rehearsal({"loud": 0.0}), 1.0) == dict.fromkeys(NAMES, USUAL_SLICES)


@given(st.floats(0, 2), st.floats(0, 2), st.floats(1e-4, 0.1), st.floats(0.1, 9), st.floats(5, 600))
def test_never_out_of_bounds(
    quiet: float, loud: float, seconds: float, block: float, max_time: float
) -> None:
    noise = {"quiet": min(quiet, 0.9), "loud": min(loud, 0.9)}
    records = rehearsal(noise, seconds)
    planned = plan_slices(study(max_time=max_time), records, block)
    assert set(planned) == set(NAMES)
    assert all(USUAL_SLICES <= n <= MOST_SLICES for n in planned.values())
    assert added_seconds(records, planned) <= max(0.0, LONGEST_BLOCK - block) + 1e-9
