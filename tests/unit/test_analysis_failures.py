"""Trials that failed count: as infinitely slow in the interval, and never as a verdict by themselves."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.small_study import RATE, small_study

from nearmetal.analysis import analyse
from nearmetal.analysis.companions import evidence
from nearmetal.analysis.intervals.looks import look_and_carry
from nearmetal.analysis.intervals.sign import sign_interval
from nearmetal.analysis.intervals.signed_rank import LIST_UP_TO, Walsh, critical
from nearmetal.model.change import replace
from nearmetal.model.plan import GROWING
from nearmetal.model.record import Status, cause_of
from nearmetal.model.result import Cell, Verdict
from nearmetal.plan import make_plan
from nearmetal.testing.simulate import Spread, simulate

INFINITE = st.sampled_from([math.inf, -math.inf])
SAMPLES = st.lists(st.floats(-5, 5, allow_subnormal=False) | INFINITE, min_size=1, max_size=40).filter(
    lambda x: any(map(math.isfinite, x))
)


@given(d=SAMPLES, alpha=st.floats(0.001, 0.5), seed=st.integers(0, 1000))
def test_an_infinite_value_is_one_beyond_all_others(d: list[float], alpha: float, seed: int) -> None:
    """The interval holds all those for which every failure is some enormous number instead."""
    values = np.array(d)
    rng = np.random.default_rng(seed)
    huge = np.where(np.isfinite(values), values, np.sign(values) * rng.choice((1e6, 1e7, 1e8), values.size))
    low, high = np.clip(Walsh(values).interval(alpha), -1e5, 1e5)
    inner = np.clip(Walsh(huge).interval(alpha), -1e5, 1e5)
    assert low <= inner[0] + 1e-9 and inner[1] - 1e-9 <= high


@given(d=SAMPLES, alpha=st.floats(0.001, 0.5))
def test_ends_mirror_each_other(d: list[float], alpha: float) -> None:
    low, high = Walsh(np.array(d)).interval(alpha)
    turned = Walsh(-np.array(d)).interval(alpha)
    assert turned == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize("failed", [1, 5, 60])
def test_counting_bears_infinities_as_listing_does(failed: int) -> None:
    rng = np.random.default_rng(failed)
    finite = rng.normal(size=LIST_UP_TO + 20)
    d = np.concatenate([finite, np.full(failed, math.inf), np.full(failed // 2, -math.inf)])
    i, j = np.triu_indices(d.size)
    opposed = np.isposinf(d[i]) & np.isneginf(d[j]) | np.isneginf(d[i]) & np.isposinf(d[j])
    averages = np.full(i.size, -math.inf)
    averages[~opposed] = d[i][~opposed] / 2 + d[j][~opposed] / 2
    listed = np.sort(averages)
    walsh = Walsh(d)
    k = critical(d.size, 0.005)
    assert walsh.lower(k + 1) == pytest.approx(listed[k], abs=1e-14)
    assert walsh.number_at_most(0.1) == int(np.sum(listed <= 0.1))
    averages[opposed] = math.inf
    listed = np.sort(averages)
    assert walsh.upper(k + 1) == pytest.approx(listed[-k - 1], abs=1e-14)
    assert walsh.number_below(0.1) == int(np.sum(listed < 0.1))
    assert Walsh(finite).centre() == walsh.centre()


def test_companions_bear_infinities() -> None:
    d = np.array([0.01, math.inf, 0.02, -math.inf, 0.03, 0.01, 0.02, 0.03, 0.01, 0.02])
    sign = sign_interval(d, 0.05)
    assert sign.low <= 0.02 <= sign.high and sign.centre == pytest.approx(0.02)
    assert math.isfinite(evidence(d))
    carried = look_and_carry(d, schedule=GROWING, alpha=0.05)
    assert (carried.low, carried.high) == (-math.inf, math.inf)  # one of eight in each direction
    assert carried.centre == pytest.approx(0.02, abs=0.005)
    with pytest.raises(ValueError, match="without a failure"):
        look_and_carry(np.full(9, math.inf), schedule=GROWING, alpha=0.05)
    with pytest.raises(ValueError, match="without a failure"):
        sign_interval(np.full(9, math.inf), 0.05)


NAMES = ("native", "box")
STUDY = small_study(*NAMES)


def box(
    blocks: int,
    failed: Collection[int],
    *,
    overhead: float = 0.0,
    base_failed: Collection[int] = (),
    detail: bool = True,
) -> Cell:
    """The cell of 'box' where its trials, or those of its baseline, failed in some blocks."""
    plan = make_plan(STUDY, blocks=blocks)
    records = simulate(
        STUDY, plan, metrics=(RATE,), overheads={"box/one": overhead}, spread=Spread(instance=0.005)
    )
    lost = {"box/one": failed, "native/one": base_failed}
    told = [
        replace(r, status=Status.FAILED, reason="killed", rows=())
        if r.block in lost[r.arm] and not r.aa
        else r
        for r in records
    ]
    (cell,) = analyse(STUDY, plan, told, detail=detail).cells
    return cell


def test_half_of_the_trials_failed_and_the_rest_are_alike() -> None:
    """It was called equivalent."""
    cell = box(24, range(1, 25, 2))
    assert cell.verdict is Verdict.NONE
    assert cell.reason.startswith("fails in 12 of 24 rounds; ")
    assert (cell.n, cell.failed, len(cell.d), cell.decided_block) == (24, 12, 12, None)
    assert cell.overhead == pytest.approx(0.0, abs=0.01) or math.isinf(cell.overhead)
    assert cell.p_holm is not None and cell.p_holm > 0.05


def test_failures_alone_never_say_slower() -> None:
    """Two thirds failed: the interval of all blocks lies above the margin, that of the others does not."""
    cell = box(30, [b for b in range(1, 31) if b % 3])
    assert cell.low > cell.margin
    assert cell.verdict is Verdict.NONE
    assert cell.reason == (
        "fails in 20 of 30 rounds; the rounds without failures give no verdict by themselves"
    )


def test_failures_of_the_baseline_alone_never_say_faster() -> None:
    cell = box(30, (), base_failed=[b for b in range(1, 31) if b % 3])
    assert cell.verdict is Verdict.NONE and cell.high < 0
    assert cell.reason.startswith("its baseline fails in 20 of 30 rounds; ")
    assert (cell.failed_blocks, len(cell.baseline_failed_blocks)) == ((), 20)


def test_slower_environment_that_also_fails_is_slower_and_says_so() -> None:
    cell = box(24, range(1, 25, 2), overhead=0.5)
    assert cell.verdict is Verdict.SLOWER
    assert cell.reason == "fails in 12 of 24 rounds; the whole interval lies above +3 %"
    assert cell.high == math.inf


@pytest.mark.parametrize(("failures", "verdict"), [(2, Verdict.EQUIVALENT), (3, Verdict.NONE)])
def test_up_to_5_percent_may_fail(failures: int, verdict: Verdict) -> None:
    failed = [5, 15, 25][:failures]
    cell = box(41, failed)
    assert cell.verdict is verdict
    assert cell.reason.startswith(f"fails in {failures} of 41 rounds; ")
    if verdict is Verdict.NONE:
        assert cell.reason.endswith("equivalent needs at most 5 % of failed rounds")


def test_a_verdict_that_waits_for_the_share_of_failures_is_reached_between_looks() -> None:
    """One of 12 blocks is more than 5 %, one of 20 is not."""
    assert box(19, [3]).verdict is Verdict.NONE
    cell = box(25, [3])
    assert (cell.verdict, cell.decided_block) == (Verdict.EQUIVALENT, 20)


def test_without_detail_the_verdict_is_the_same() -> None:
    failed = [b for b in range(1, 31) if b % 3]
    whole, short = box(30, failed), box(30, failed, detail=False)
    assert (whole.verdict, whole.reason, whole.decided_block) == (
        short.verdict,
        short.reason,
        short.decided_block,
    )


def test_the_cause_of_a_failure_is_the_same_in_every_block() -> None:
    said = [f"results/my run-1/logs/{n}.native~1x2: ring: ended with 3: no licence" for n in (1, 2)]
    assert {cause_of(text) for text in said} == {"ring: ended with 3: no licence"}
    assert cause_of("results/x/logs/1.native~1x2") == "results/x/logs/1.native~1x2"
    own = "ring: ended with 1: cannot open /var/logs/ring: Permission denied"
    assert cause_of(own) == own
    assert cause_of(f"results/x/logs/1.native~1x2: {own}") == own
