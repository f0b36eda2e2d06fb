"""Why extra time was spent, from counters: throttling, waiting for a CPU, TCP timeouts, disks, memory
reclaim.

The time of each cause has an interval, and so has the unexplained time. Causes cut across the parts of
attribution.py: a rank may be throttled while it computes, or wait in MPI for a throttled rank.

Seconds are counted in the timed part of a trial and given as fractions of the baseline's seconds for the same
work. With several ranks they are the mean over the ranks (throttling, steal) or the longest (run delay). The
slowest rank may have lost more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, TypeVar

import numpy as np

from ...model.plan import Schedule
from ...model.result import Attribution, Cell, Interval, TimePart, Verdict
from ...model.study import Arm, Study, Workload
from ..fold.comparisons import Folded
from ..fold.counts import TIMEOUTS, FloatArray
from ..intervals.looks import carried_interval
from .attribution import NOT_EXPLAINED, clauses_of
from .network_trouble import WORTH_SAYING, OneSide, extra_seconds, rto_or_least, side_of, timeout_clause
from .suggestions import suggest

Value = TypeVar("Value")
Result = TypeVar("Result")


class MapFunction(Protocol):
    """A function like map(): yields function(value) for each value, in order. It may use threads."""

    def __call__(
        self, function: Callable[[Value], Result], values: Iterable[Value], /
    ) -> Iterable[Result]: ...


class Cause(StrEnum):
    """A cause of extra time, in the words of the report."""

    THROTTLED = "throttled by the CPU quota"
    DELAY = "waiting for a CPU (steal, run delay)"
    TIMEOUTS = "TCP time-outs"
    DISK = "waiting for disks"
    MEMORY = "reclaim of memory"
    TLB = "TLB misses"
    CACHE = "cache misses"
    FAULTS = "page faults"


@dataclass(frozen=True, kw_only=True)
class Count:
    """A counter of events whose cost in seconds is unknown.

    beside: names of the parts of the time (attribution.NAMES) that such events make longer. The count is
        mentioned only if one of them is the main part of the extra time.
    least: the count is mentioned only if it is at least this multiple of the baseline's count for the same
        work.
    """

    counter: str
    beside: tuple[str, ...]
    least: float


COUNTS: Mapping[Cause, Count] = {
    Cause.TLB: Count(counter="dtlb_misses", beside=("computation", "user code"), least=1.5),
    Cause.CACHE: Count(counter="cache_misses", beside=("computation", "user code"), least=1.5),
    Cause.FAULTS: Count(counter="page_faults", beside=("computation", "system calls"), least=2.0),
}


@dataclass(frozen=True, kw_only=True)
class CountedSide:
    """One side of a comparison, the environment or the baseline.

    rto: smallest retransmission timeout of its connections, in seconds; LEAST_RTO if unknown.
    processes: number of processes that run at once.
    """

    arm: Arm
    trials: OneSide
    rto: float
    processes: int


def throttled(side: CountedSide) -> FloatArray:
    """Return the throttled seconds of one process, by trial. They are 0 without a CPU quota, even if
    throttling was not counted; otherwise nan if it was not counted.
    """
    if side.arm.environment.limits.cpu_quota is None:
        return np.zeros(side.trials.at.size)
    return side.trials.timed("throttled") / side.processes


def delayed(side: CountedSide) -> FloatArray:
    """Return the seconds of waiting for a CPU, by trial; nan if run delay was not counted.

    The kernel counts throttled time as run delay, too, so it is subtracted. A vCPU that waits for a CPU
    appears as steal inside the guest and as run delay of its thread outside. Both are the same time, so only
    the larger of the two is added.
    """
    steal, outside = (np.nan_to_num(side.trials.timed(c)) for c in ("steal", "vcpu_delay"))
    own = side.trials.timed("run_delay") - throttled(side)
    return np.maximum(own, 0.0) + np.maximum(steal, outside) / side.processes


def timed_out(side: CountedSide) -> FloatArray:
    """Return the seconds of TCP timeouts, by trial; 0 for an arm without a network, nan if unknown."""
    found = side.trials.timed_network(TIMEOUTS)
    networked = side.trials.counts.networked[side.trials.at]
    return np.where(networked, found, 0.0) * side.rto


def _pressed(resource: str) -> Callable[[CountedSide], FloatArray]:
    return lambda side: side.trials.timed(f"pressure_{resource}_some")


#: Functions that return the seconds of each cause in the timed part of each trial; nan if unknown.
SECONDS: Mapping[Cause, Callable[[CountedSide], FloatArray]] = {
    Cause.THROTTLED: throttled,
    Cause.DELAY: delayed,
    Cause.TIMEOUTS: timed_out,
    Cause.DISK: _pressed("io"),
    Cause.MEMORY: _pressed("memory"),
}


@dataclass(frozen=True, kw_only=True)
class CauseTotals:
    """The extra time of one comparison by cause. Intervals are in fractions of the baseline's time.

    causes: extra time of each cause. Causes that occur on neither side are left out.
    seconds: extra time of each cause in seconds for the same work, mean over trials.
    total: all extra time.
    extra: all extra time in seconds, mean over trials.
    unexplained: extra time that no cause accounts for.
    """

    causes: Mapping[Cause, Interval]
    seconds: Mapping[Cause, float]
    total: Interval
    extra: float
    unexplained: Interval


@dataclass(frozen=True, kw_only=True)
class CountedCell:
    """A cell with the counters of both sides.

    schedule: schedule of the cell's looks.
    """

    cell: Cell
    workload: Workload
    env: CountedSide
    base: CountedSide
    schedule: Schedule

    @property
    def same_work(self) -> FloatArray:
        """The baseline's seconds for the work of the environment, by trial; nan if unknown."""
        return self.base.trials.seconds * self._scale

    @property
    def extra(self) -> FloatArray:
        """The seconds by which the environment takes longer for the same work, by trial; nan if unknown."""
        return extra_seconds(self.env.trials, self.base.trials)

    def more(self, ours: FloatArray, theirs: FloatArray) -> FloatArray:
        """Return by how much a counter exceeds the baseline's for the same work, by trial; nan if unknown.

        ours, theirs: the counter over the timed part of each trial, of the environment and of the baseline.
        """
        return ours * self.env.trials.part - theirs * self.base.trials.part * self._scale

    def carried(self, values: FloatArray) -> Interval:
        """Return the carried interval of one value for each block, at the confidence of the cell."""
        alpha = 1 - self.cell.confidence
        return carried_interval(values, schedule=self.schedule, alpha=alpha, numbers=self.cell.blocks)

    @property
    def _scale(self) -> FloatArray:
        return self.env.trials.work / self.base.trials.work


def with_causes(
    study: Study,
    cells: Sequence[Cell],
    folded: Folded,
    *,
    schedules: Mapping[str, Schedule],
    each: MapFunction = map,
) -> tuple[Cell, ...]:
    """Return the cells with the causes of their extra time, and with a change that may help.

    Causes that account for a part of the extra time are added to the explaining sentence.

    schedules: schedule of each cell's looks, by Cell.key.
    each: applies a function to every cell; may use threads.
    """
    arms = {arm.name: arm for arm in study.arms()}

    def explained(cell: Cell) -> Cell:
        material = cell.verdict in (Verdict.SLOWER, Verdict.FASTER)
        if cell.attribution is None and not material:
            return cell
        counted = counted_cell(study, arms, folded, cell, schedules[cell.key])
        return cell if counted is None else _explained(counted, find(counted))

    return tuple(each(explained, cells))


def counted_cell(
    study: Study, arms: Mapping[str, Arm], folded: Folded, cell: Cell, schedule: Schedule
) -> CountedCell | None:
    """Return a cell with its counters; None if the workload is an event, or is not in the study."""
    workload = next((w for w in study.workloads if w.name == cell.workload), None)
    if workload is None or workload.event:
        return None

    def one(name: str) -> CountedSide:
        trials = side_of(folded, (name, False), cell)
        rto = rto_or_least(trials.counts.smallest_rto)
        processes = workload.processes(arms[name].placement.ranks)
        return CountedSide(arm=arms[name], trials=trials, rto=rto, processes=processes)

    env, base = one(cell.arm), one(cell.baseline)
    return CountedCell(cell=cell, workload=workload, env=env, base=base, schedule=schedule)


def find(counted: CountedCell) -> CauseTotals | None:
    """Return the extra time by cause.

    Returns None if the timed seconds of a block are unknown, if no cause occurred and was counted in every
    block, or if the metric is the CPU time of a program, to which none of the causes contributes.
    """
    if counted.cell.metric in ("user", "system") and not counted.workload.sliced:
        return None  # CPU time; none of the causes here is part of it
    extra, same_work = counted.extra, counted.same_work
    if extra.size == 0 or bool(np.isnan(extra).any()):
        return None
    shares: dict[Cause, FloatArray] = {}
    seconds: dict[Cause, float] = {}
    for cause, spent in SECONDS.items():
        ours, theirs = spent(counted.env), spent(counted.base)
        more = counted.more(ours, theirs)
        if bool(np.isnan(more).any()) or not bool(np.any(ours) or np.any(theirs)):
            continue
        seconds[cause] = float(np.mean(more))
        shares[cause] = more / same_work
    if not shares:
        return None
    total = extra / same_work
    return CauseTotals(
        causes={c: counted.carried(x) for c, x in shares.items()},
        seconds=seconds,
        total=counted.carried(total),
        extra=float(np.mean(extra)),
        unexplained=counted.carried(total - np.sum(list(shares.values()), axis=0)),
    )


def _explained(counted: CountedCell, found: CauseTotals | None) -> Cell:
    cell, arms = counted.cell, (counted.env.arm, counted.base.arm)
    had, clauses = cell.attribution or Attribution(), clauses_of(cell)
    slower = cell.verdict is Verdict.SLOWER
    proven: list[str] = []
    if found is not None and slower:
        # The whole interval of a cause must lie above this share of all extra time.
        least = WORTH_SAYING * found.total.centre
        named = [c for c, i in found.causes.items() if i.low > least > 0 and c is not Cause.TIMEOUTS]
        named.sort(key=lambda c: -found.seconds[c])
        clauses += [f"{c.value}: {found.seconds[c]:.2g} s of {found.extra:.2g} s" for c in named]
        proven += [c.name for c in named]
    if slower and cell.network is not None and timeout_clause(cell.network) is not None:
        proven.insert(0, Cause.TIMEOUTS.name)
    for cause, count in COUNTS.items() if slower else ():
        if had.sentence.split(";")[0] in count.beside:
            times = _times_more(counted, count)
            if times is not None:
                clauses.append(f"{cause.value} ×{times:.2g}")
                proven.append(cause.name)
    if found is None and cell.attribution is None and not clauses:
        return cell
    sentence = "; ".join(clauses) or (NOT_EXPLAINED if slower else had.sentence)
    causes: Mapping[Cause, Interval] = {} if found is None else found.causes
    return replace(
        cell,
        attribution=replace(
            had,
            sentence=sentence,
            causes=tuple(TimePart(name=c.value, overhead=i) for c, i in causes.items()),
            unexplained=found.unexplained if found else None,
            suggestion=suggest(proven, sentence, *arms, counted.workload) if slower else None,
        ),
    )


def _times_more(counted: CountedCell, count: Count) -> float | None:
    """Return a count as a multiple of the baseline's count for the same work.

    Returns None if it is unknown, or if its interval does not lie above `count.least`.
    """
    sides = counted.env.trials, counted.base.trials
    ours, theirs = (side.timed(count.counter) / side.work for side in sides)
    if ours.size == 0 or not bool(np.all((ours > 0) & (theirs > 0))):
        return None
    ratio = counted.carried(np.log(ours / theirs))
    return math.exp(ratio.centre) if ratio.low > math.log(count.least) else None
