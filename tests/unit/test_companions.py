"""What stands beside a verdict: totals, the two levels of spread, evidence and discoveries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nearmetal.analysis import analyse
from nearmetal.analysis.companions import evidence
from nearmetal.analysis.intervals.sign import log_e_value
from nearmetal.model.result import Cell
from nearmetal.model.study import Better, Design, Environment, KernelWorkload, Placement, Study
from nearmetal.plan import make_plan
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

STUDY = Study(
    name="s",
    question="",
    environments=tuple(
        Environment(name=n, backend="native", placements=("one",)) for n in ("native", "slow", "same")
    ),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(KernelWorkload(name="ep", kernel="ep", params={}),),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=4),
)
RATE = SimulatedMetric(workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=1e6)


def cells(spread: Spread, blocks: int = 60) -> dict[str, Cell]:
    plan = make_plan(STUDY, blocks=blocks)
    records = simulate(STUDY, plan, metrics=(RATE,), overheads={"slow/one": 0.2}, spread=spread)
    return {c.environment: c for c in analyse(STUDY, plan, records).cells}


def test_the_total_counts_time_where_the_metric_is_a_rate() -> None:
    total = cells(Spread(instance=0.02, run=0.0))["slow"].total
    assert total is not None and total.low < 0.2 < total.high
    assert total.centre == pytest.approx(0.2, abs=0.02)


def test_the_planted_levels_of_spread_are_found() -> None:
    found = cells(Spread(instance=0.01, run=0.04), blocks=200)["same"].spread
    assert found is not None and found.slices == 8
    assert math.sqrt(found.slice_variance) == pytest.approx(0.04 * math.sqrt(2), rel=0.1)
    assert math.sqrt(found.block_variance) == pytest.approx(0.01 * math.sqrt(2), rel=0.4)
    assert found.slice_seconds > 0


def test_evidence_is_of_signs_and_zeros_weigh_against_it() -> None:
    assert evidence(np.array([0.1] * 10)) == pytest.approx(math.exp(log_e_value(10, 0)))
    assert evidence(np.array([0.1] * 5 + [-0.1] * 5)) == pytest.approx(math.exp(log_e_value(10, 5)))
    assert evidence(np.zeros(10)) == pytest.approx(math.exp(log_e_value(10, 5)))
    assert evidence(np.array([0.1] * 8 + [0.0] * 2)) == pytest.approx(math.exp(log_e_value(10, 2)))
    assert evidence(np.ones(5000)) == math.inf
    with pytest.raises(ValueError, match="one block"):
        evidence(np.array([]))


def test_a_difference_is_discovered_and_none_is_not() -> None:
    found = cells(Spread(instance=0.02, run=0.01))
    assert found["slow"].discovered is True and found["same"].discovered is False
    assert (found["slow"].e or 0) > 1 / 0.05
