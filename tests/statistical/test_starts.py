"""Quantiles of starts that come in clusters: the starts of one block resemble each other.

One start of each block, drawn beforehand, gives intervals that cover what they promise. All starts taken for
independent do not, and medians of blocks are of another distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from nearmetal.analysis import analyse
from nearmetal.analysis.intervals.quantiles import quantile_interval
from nearmetal.model.record import Fold, Row, Status, TrialRecord
from nearmetal.model.study import Better, Design, Environment, EventSubject, Placement, Study
from nearmetal.plan import make_plan
from nearmetal.subjects.start_stop import START

FloatArray = NDArray[np.float64]
RUNS, BLOCKS, STARTS = 2000, 40, 12
SLACK = 3 * math.sqrt(0.05 * 0.95 / RUNS)


def clustered(rng: np.random.Generator, shape: tuple[int, ...], icc: float) -> FloatArray:
    """Lognormal start times, shape (..., blocks, starts); icc: correlation of the logs within a block."""
    block = math.sqrt(icc) * rng.normal(size=shape[:-1])[..., None]
    return np.exp(block + math.sqrt(1 - icc) * rng.normal(size=shape))


def covers(values: FloatArray, q: float) -> float:
    """How often the 95 % interval of rows of values covers the quantile of a lognormal."""
    truth = math.exp({0.5: 0.0, 0.9: 1.2815515655446004}[q])
    found = [quantile_interval(row, q, 0.95) for row in values]
    return float(np.mean([i is not None and i.low <= truth <= i.high for i in found]))


@pytest.mark.parametrize("icc", [0.15, 0.33])
def test_one_start_of_each_block_covers_and_all_of_them_do_not(icc: float) -> None:
    """The intraclass correlations are those that were measured."""
    starts = clustered(np.random.default_rng(71), (RUNS, BLOCKS, STARTS), icc)
    for q in (0.5, 0.9):
        assert covers(starts[..., 5], q) >= 0.95 - SLACK
    assert covers(starts.reshape(RUNS, -1), 0.5) < 0.89


def test_medians_of_blocks_hide_the_tail() -> None:
    starts = clustered(np.random.default_rng(73), (RUNS, BLOCKS, STARTS), 0.33)
    assert covers(np.median(starts, axis=-1), 0.9) < 0.75


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_the_quantiles_of_an_analysis_cover(q: float) -> None:
    """The same through records: which start of a block counts follows from the seed of the study."""
    rng = np.random.default_rng(79)
    runs, covered = 60, 0
    truth = math.exp({0.5: 0.0, 0.9: 1.2815515655446004}[q])
    for seed in range(runs):
        study = Study(
            name="s",
            question="",
            environments=tuple(
                Environment(name=n, backend="native", placements=("one",)) for n in ("native", "box")
            ),
            placements=(Placement(name="one", instances=1, tasks=1),),
            workloads=(EventSubject(name="start", facts=START),),
            design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=seed),
        )
        plan = make_plan(study, blocks=BLOCKS)
        records = [
            record(t.block, t.arm, t.aa, clustered(rng, (1, STARTS), 0.33)[0])
            for block in plan.blocks
            for t in block.trials
        ]
        (cell,) = analyse(study, plan, records).cells
        found = cell.quantiles
        assert found is not None and found.n == BLOCKS == len(found.values)
        interval = found.p50 if q == 0.5 else found.p90
        covered += interval is not None and interval.low <= truth <= interval.high
    assert covered / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)


def record(block: int, arm: str, aa: bool, starts: FloatArray) -> TrialRecord:
    row = Row(
        workload="start",
        metric="start",
        unit="s",
        better=Better.LOWER,
        values=tuple(starts.tolist()),
        status=Status.OK,
    )
    return TrialRecord(
        run="r",
        trial=f"{block}.{arm}{aa}",
        block=block,
        attempt=1,
        arm=arm,
        aa=aa,
        position=0,
        begin=float(block),
        end=block + 0.5,
        fold=Fold.MEDIAN,
        status=Status.OK,
        reason="",
        rows=(row,),
    )
