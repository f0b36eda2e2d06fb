"""Simulates records with planted overheads, spread and drift from a seed. Needs neither numpy nor a
machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

from ..model.plan import Plan, TrialSpec
from ..model.record import Fold, Row, Status, TrialRecord, slice_values
from ..model.scope import NODE
from ..model.study import Better, Mode, Study

EPOCH = 1_790_000_000.0
SLICE_SECONDS = 0.01
SLICES = 8
"""Number of slices if the study does not state one."""
PLAIN = TrialRecord(
    run="nearmetal-1",
    trial="3.native/1x2",
    block=3,
    attempt=1,
    arm="native/1x2",
    aa=False,
    position=0,
    begin=1.5,
    end=2.5,
    fold=Fold.PAIRED,
    status=Status.OK,
    reason="",
    rows=(
        Row(
            workload="stream",
            metric="triad",
            unit="B/s",
            better=Better.HIGHER,
            values=(7.1e10, 7.2e10),
            status=Status.OK,
            seconds=(0.01, 0.02),
            parts={"comm": (0.0, 0.001)},
        ),
    ),
    counters={NODE: {"steal": None, "user": 0.5}},
)
"""A simple record for tests that need any record."""


@dataclass(frozen=True, kw_only=True)
class SimulatedMetric:
    """A metric of simulated trials.

    value: value of the baseline without noise, in base units.
    comm: share of the baseline's time inside MPI; None if this time is not measured. If it is measured, the
        whole overhead is time inside MPI.
    """

    workload: str
    metric: str
    unit: str
    better: Better
    value: float
    comm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Standard deviations of the natural logarithm of times.

    block: common to all trials of a block; it cancels in comparisons.
    instance: of one trial.
    run: of one slice or run.
    shared: of one slice, the same for all arms; it cancels if slices are paired.
    drift: change of the logarithm from one block to the next; not a standard deviation.
    """

    instance: float = 0.005
    run: float = 0.005
    shared: float = 0.0
    block: float = 0.0
    drift: float = 0.0


def simulate(
    study: Study,
    plan: Plan,
    *,
    metrics: Sequence[SimulatedMetric],
    overheads: Mapping[str, float | Mapping[str, float]],
    spread: Spread,
    run: str = "nearmetal-simulated",
) -> list[TrialRecord]:
    """Return simulated records of all blocks of the plan. The same arguments give the same records.

    A metric for which higher is better is divided by 1 + overhead. The number of slices (or runs) and the
    fold follow the study's design.

    metrics: the metrics of every trial.
    overheads: overhead of the time by arm (0.03 = takes 3 % longer), or by arm and then by
        '<workload>.<metric>'; 0 for an arm or a metric that is not named.
    spread: random variation of the times.
    run: label of the run, also part of the random seed.
    """
    rng = Random(f"{plan.seed}:{run}")
    fold = Fold.PAIRED if study.design.mode is Mode.SLICES else Fold.MEDIAN
    design = study.design
    count = (design.slices or SLICES) if design.mode is Mode.SLICES else design.runs
    records: list[TrialRecord] = []
    for order, block in enumerate(plan.blocks):
        level = rng.gauss(0.0, spread.block)
        shared = {m: [rng.gauss(0.0, spread.shared) for _ in range(count)] for m in metrics}
        for trial in block.trials:
            # Slices of a block run side by side; plain trials one after the other, so drift moves them apart.
            moved = trial.position / len(block.trials) if fold is Fold.MEDIAN else 0.0
            at = level + spread.drift * (order + moved)
            rows = tuple(
                _row(m, _overhead(overheads, trial.arm, m), at, shared[m], spread, rng) for m in metrics
            )
            records.append(_record(trial, rows, run=run, fold=fold, order=order))
    return records


def _overhead(
    overheads: Mapping[str, float | Mapping[str, float]], arm: str, metric: SimulatedMetric
) -> float:
    planted = overheads.get(arm, 0.0)
    if isinstance(planted, Mapping):
        return planted.get(f"{metric.workload}.{metric.metric}", 0.0)
    return planted


def _row(
    metric: SimulatedMetric,
    overhead: float,
    level: float,
    shared: Sequence[float],
    spread: Spread,
    rng: Random,
) -> Row:
    base = metric.value if metric.unit == "s" else SLICE_SECONDS
    own = rng.gauss(0.0, spread.instance)
    times = [
        base * (1.0 + overhead) * exp(level + own + common + rng.gauss(0.0, spread.run)) for common in shared
    ]
    work = 0.0
    if metric.unit != "s":
        work = metric.value * base if metric.better is Better.HIGHER else base / metric.value
    parts: dict[str, tuple[float, ...]] = {}
    if metric.comm is not None:
        inside = (metric.comm + overhead) / (1.0 + overhead)
        parts["comm"] = tuple(t * inside for t in times)
    return Row(
        workload=metric.workload,
        metric=metric.metric,
        unit=metric.unit,
        better=metric.better,
        values=slice_values(metric.better, work, times) if work else tuple(times),
        status=Status.OK,
        seconds=tuple(times) if work else (),
        work=work,
        parts=parts,
    )


def _record(trial: TrialSpec, rows: tuple[Row, ...], *, run: str, fold: Fold, order: int) -> TrialRecord:
    begin = EPOCH + order * 4.0 + trial.position * 0.5
    return TrialRecord(
        run=run,
        trial=trial.id,
        block=trial.block,
        attempt=1,
        arm=trial.arm,
        aa=trial.aa,
        position=trial.position,
        begin=begin,
        end=begin + 0.5,
        fold=fold,
        status=Status.OK,
        reason="",
        rows=rows,
        disturbance={"other_cpu_share": 0.001, "steal_share": 0.0},
    )
