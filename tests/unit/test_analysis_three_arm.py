"""The three-arm interval: its definition, symmetries and failures, and how blocks become brackets."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.small_study import RATE, small_study

from nearmetal.analysis import analyse
from nearmetal.analysis.fold.comparisons import brackets, fold, pair
from nearmetal.analysis.fold.pieces import fold_request
from nearmetal.analysis.intervals import three_arm
from nearmetal.analysis.intervals.looks import look_and_carry
from nearmetal.analysis.intervals.signed_rank import (
    EXACT_UP_TO,
    Walsh,
    attained,
    critical,
    criticals,
    lower_tail,
)
from nearmetal.analysis.intervals.three_arm import Brackets, most_attained, three_arm_interval
from nearmetal.model.change import replace
from nearmetal.model.plan import GROWING
from nearmetal.model.record import Fold, Status, TrialRecord
from nearmetal.model.result import Verdict
from nearmetal.plan import make_plan
from nearmetal.testing.simulate import Spread, simulate

FloatArray = NDArray[np.float64]
LEVELS = st.sampled_from([0.02, 0.05, 0.1, 0.3])


def samples(seed: int, n: int, scale: float) -> Brackets:
    rng = np.random.default_rng(seed)
    e, a1, a2 = scale * rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    return Brackets(lower=e - np.maximum(a1, a2), upper=e - np.minimum(a1, a2))


def lower_end(found: Brackets, level: float) -> float:
    """By the definition, at a point between any two at which the statistic may change."""
    lower, upper = found.lower, found.upper
    changes = np.concatenate([lower, upper, ((lower[:, None] + upper[None, :]) / 2).ravel()])
    points = np.unique(changes)
    middles = np.concatenate([[points[0] - 1], (points[1:] + points[:-1]) / 2, [points[-1] + 1]])
    for i, theta in enumerate(middles):
        largest, smallest = theta < lower, theta > upper
        spread = np.where(largest, upper - theta, np.where(smallest, theta - lower, np.inf))
        ranks = np.argsort(np.argsort(spread)) + 1
        if np.sum(ranks[smallest]) > critical(int(np.sum(largest | smallest)), level / 2):
            return float(points[i - 1]) if i else -math.inf
    return math.inf


@given(seed=st.integers(0, 10_000), n=st.integers(1, 14), scale=st.sampled_from([0.2, 1, 5]), level=LEVELS)
def test_the_interval_is_that_of_the_definition(seed: int, n: int, scale: float, level: float) -> None:
    found = samples(seed, n, scale)
    turned = Brackets(lower=-found.upper, upper=-found.lower)
    low, high = three_arm_interval(found, level)
    if critical(n, level / 2) < 0:
        assert (low, high) == (-math.inf, math.inf)
        return
    assert low == pytest.approx(lower_end(found, level), abs=1e-9)
    assert high == pytest.approx(-lower_end(turned, level), abs=1e-9)
    assert three_arm_interval(turned, level) == pytest.approx((-high, -low), abs=1e-9)


@given(seed=st.integers(0, 10_000), n=st.integers(5, 40), by=st.floats(-3, 3), level=LEVELS)
def test_shift(seed: int, n: int, by: float, level: float) -> None:
    found = samples(seed, n, 1)
    low, high = three_arm_interval(found, level)
    moved = Brackets(lower=found.lower + by, upper=found.upper + by)
    assert three_arm_interval(moved, level) == pytest.approx((low + by, high + by), abs=1e-9)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), level=LEVELS)
def test_without_a_second_baseline_run_it_is_the_signed_rank_interval(
    seed: int, n: int, level: float
) -> None:
    d = np.random.default_rng(seed).normal(size=n)
    found = three_arm_interval(Brackets(lower=d, upper=d), level)
    assert found == pytest.approx(Walsh(d).interval(level), abs=1e-9)


@given(seed=st.integers(0, 10_000), n=st.integers(6, 30), lost=st.integers(0, 2))
def test_failures_widen_it(seed: int, n: int, lost: int) -> None:
    found = samples(seed, n, 1)
    lower, upper = found.lower.copy(), found.upper.copy()
    lower[:lost] = upper[:lost] = math.inf
    low, high = three_arm_interval(found, 0.1)
    lo, hi = three_arm_interval(Brackets(lower=lower, upper=upper), 0.1)
    assert lo >= low - 1e-9 and hi >= high - 1e-9


def test_the_criticals_of_all_smaller_numbers() -> None:
    for p in (0.0039, 0.025):
        reached, tails = criticals(EXACT_UP_TO + 5, p)
        for m in (0, 1, 5, 8, 12, 100, EXACT_UP_TO, EXACT_UP_TO + 5):
            assert reached[m] == critical(m, p)
            assert tails[m] == pytest.approx(lower_tail(m, int(reached[m])), rel=1e-12)


def test_the_level_is_that_of_the_number_of_blocks_that_attains_most() -> None:
    assert most_attained(5, 0.02) == 0.0
    assert most_attained(8, 0.008) == 2 / 256  # fewer than all 8 attain nothing
    assert most_attained(12, 0.0142) == max(attained(m, 0.0142) for m in range(13))


def test_a_thousand_blocks_of_fifty_cells_take_seconds() -> None:
    d = np.random.default_rng(1).normal(size=1000)
    found = samples(1, 1000, 1)
    look_and_carry(d, schedule=GROWING, alpha=0.05, brackets=found)  # distributions are kept
    begin = time.process_time()
    for _ in range(5):
        look_and_carry(d, schedule=GROWING, alpha=0.05, brackets=found)
    assert (time.process_time() - begin) * 10 < 15


NAMES = ("native", "box")
STUDY = small_study(*NAMES)
BOX, A1, A2, ROW = ("box/one", False), ("native/one", False), ("native/one", True), ("ep", "rate")
PLAN = make_plan(STUDY, blocks=30)
LIBVIRT_STEP = fold_request(STUDY, three_arms=True)


def records(overhead: float = 0.0, spread: float = 0.01) -> list[TrialRecord]:
    return simulate(
        STUDY, PLAN, metrics=(RATE,), overheads={"box/one": overhead}, spread=Spread(instance=spread)
    )


def test_blocks_become_brackets_by_rounds_of_slices() -> None:
    told = records(0.1)
    folded = fold(LIBVIRT_STEP, PLAN, told)
    paired = pair(folded, BOX, A1, ROW)
    assert paired is not None
    found = brackets(paired)
    assert found is not None
    logs = np.array(
        [
            next(-np.log(r.rows[0].values) for r in told if r.block == 5 and (r.arm, r.aa) == side)
            for side in (BOX, A1, A2)
        ]
    )
    e, a1, a2 = np.median(logs - logs.mean(axis=0), axis=1)
    assert found.lower[4] == pytest.approx(e - max(a1, a2)) and found.upper[4] == pytest.approx(
        e - min(a1, a2)
    )
    assert np.all(found.lower <= found.upper)
    assert float(np.median(found.lower)) < math.log(1.1) < float(np.median(found.upper))


def test_slices_that_are_not_paired_fold_to_medians_first() -> None:
    told = [replace(r, fold=Fold.MEDIAN) for r in records()]
    folded = fold(LIBVIRT_STEP, PLAN, told)
    paired = pair(folded, BOX, A1, ROW)
    assert paired is not None
    found = brackets(paired)
    assert found is not None
    e, a1, a2 = (-np.log(folded.measured[s, ROW].middles[7]) for s in (BOX, A1, A2))
    assert found.lower[7] == pytest.approx(e - max(a1, a2))


def test_a_block_without_a_second_baseline_run_is_compared_with_the_first() -> None:
    told = [
        replace(r, status=Status.FAILED, reason="killed", rows=())
        if (r.block, (r.arm, r.aa)) in ((3, A2), (5, BOX), (6, A1))
        else r
        for r in records()
    ]
    folded = fold(LIBVIRT_STEP, PLAN, told)
    paired = pair(folded, BOX, A1, ROW)
    assert paired is not None
    found = brackets(paired)
    assert found is not None and found.lower.size == 30
    assert found.lower[2] == found.upper[2] == paired.judged[2]
    assert found.lower[4] == math.inf and found.upper[5] == -math.inf


def test_no_second_baseline_run_no_brackets() -> None:
    folded = fold(LIBVIRT_STEP, PLAN, [replace(r, members=2) for r in records() if not r.aa])
    paired = pair(folded, BOX, A1, ROW)
    assert paired is not None and brackets(paired) is None


@pytest.mark.parametrize("overhead", [0.0, 0.1])
def test_the_statistic_is_a_constant_of_the_code(monkeypatch: pytest.MonkeyPatch, overhead: float) -> None:
    told = records(overhead)
    (by_signs,) = analyse(STUDY, PLAN, told).cells
    monkeypatch.setattr(three_arm, "USED", True)
    analysis = analyse(STUDY, PLAN, told)
    (cell,) = analysis.cells
    expected = Verdict.SLOWER if overhead else Verdict.EQUIVALENT
    assert cell.verdict is by_signs.verdict is expected
    assert (cell.low, cell.high) != (by_signs.low, by_signs.high)
    assert cell.low <= overhead <= cell.high
    monkeypatch.undo()
    assert analyse(STUDY, PLAN, told).noise_floor == analysis.noise_floor  # itself by signs in any case
