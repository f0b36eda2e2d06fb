"""Why extra time was spent, from counters: throttling, waiting for a CPU, TCP timeouts, disks, memory
reclaim.

Each cause has an interval, and so has the time that they leave unexplained. Causes cut across the parts of
attribution.py: a rank is throttled while it computes, or while it waits in MPI for a throttled one.

Seconds are those of the timed part of a trial, in shares of the baseline's seconds for the same work. Of
several ranks they are the mean over the ranks (throttling, steal) or the longest (run delay). The slowest
rank may have lost more.
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
from ...model.study import Arm, Study
from ..fold.comparisons import Folded
from ..fold.counts import TIMEOUTS, FloatArray
from ..intervals.looks import carried_interval
from .attribution import NOT_EXPLAINED, clauses_of
from .network_trouble import WORTH_SAYING, OneSide, extra_seconds, rto_or_least, side_of, timeout_clause
from .suggestions import suggest

Value = TypeVar("Value")
Result = TypeVar("Result")


class Each(Protocol):
    """A map() over values, in their order, possibly in threads."""

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
    """A count of events that cannot be converted to seconds.

    beside: the parts of the time that the events may have made longer.
    least: the report mentions the count if it is at least this multiple of the baseline's count for the same
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

    rto: smallest retransmission timeout of its connections, in seconds.
    processes: number of processes that run at once.
    """

    arm: Arm
    trials: OneSide
    rto: float
    processes: int


def throttled(side: CountedSide) -> FloatArray:
    """Return the throttled seconds. They are 0 without a quota, whether throttling is counted or not."""
    if side.arm.environment.limits.cpu_quota is None:
        return np.zeros(side.trials.at.size)
    return side.trials.timed("throttled") / side.processes


def delayed(side: CountedSide) -> FloatArray:
    """Return the seconds of waiting for a CPU.

    The kernel counts throttled time as run delay, too, so it is subtracted. A vCPU that waits for a CPU
    appears as steal inside of the guest, or as run delay of its thread outside: both are the same time.
    """
    steal, outside = (np.nan_to_num(side.trials.timed(c)) for c in ("steal", "vcpu_delay"))
    own = side.trials.timed("run_delay") - throttled(side)
    return np.maximum(own, 0.0) + np.maximum(steal, outside) / side.processes


def timed_out(side: CountedSide) -> FloatArray:
    """Return the seconds of TCP timeouts; 0 for an arm without a network."""
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
    """The costs of the causes in one comparison.

    causes: cost of each cause; causes that occur on neither side are left out.
    seconds: by cause, seconds more than the baseline for the same work, mean over trials.
    total: all extra time, as a share of the baseline's time.
    extra: all extra time, in seconds.
    """

    causes: Mapping[Cause, Interval]
    seconds: Mapping[Cause, float]
    total: Interval
    extra: float
    unexplained: Interval


def with_causes(
    study: Study,
    cells: Sequence[Cell],
    folded: Folded,
    *,
    schedules: Mapping[str, Schedule],
    each: Each = map,
) -> tuple[Cell, ...]:
    """Return the cells with the causes of their extra time, and with a change that may help.

    Causes that account for a part of the extra time are added to the sentence.
    schedules: schedule of each cell's looks, by its key.
    each: used for the cells, which do not depend on each other.
    """
    arms = {arm.name: arm for arm in study.arms()}

    def explained(cell: Cell) -> Cell:
        material = cell.verdict in (Verdict.SLOWER, Verdict.FASTER)
        if cell.attribution is None and not material:
            return cell
        env, base = sides_of(study, arms, folded, cell)
        if env is None or base is None:
            return cell
        schedule = schedules[cell.key]
        found = find(study, cell, env, base, schedule=schedule)
        return _explained(study, cell, env, base, found, schedule=schedule)

    return tuple(each(explained, cells))


def sides_of(
    study: Study, arms: Mapping[str, Arm], folded: Folded, cell: Cell
) -> tuple[CountedSide | None, CountedSide | None]:
    """Both sides of a cell. Both are None if the workload starts no processes of its own."""
    workload = next((w for w in study.workloads if w.name == cell.workload), None)
    if workload is None or workload.event:
        return None, None

    def one(name: str) -> CountedSide:
        trials = side_of(folded, (name, False), cell)
        rto = rto_or_least(trials.counts.smallest_rto)
        processes = workload.processes(arms[name].placement.ranks)
        return CountedSide(arm=arms[name], trials=trials, rto=rto, processes=processes)

    return one(cell.arm), one(cell.baseline)


def find(
    study: Study, cell: Cell, env: CountedSide, base: CountedSide, *, schedule: Schedule
) -> CauseTotals | None:
    """Return the costs of the causes; None if the timed seconds of a block are unknown or without
    counters."""
    if cell.metric in ("user", "system") and not _sliced(study, cell.workload):
        return None  # CPU time; none of the causes here is part of it
    extra = extra_seconds(env.trials, base.trials)
    if extra.size == 0 or bool(np.isnan(extra).any()):
        return None
    scale, same_work = same_work_of(env, base)
    total = extra / same_work
    shares: dict[Cause, FloatArray] = {}
    seconds: dict[Cause, float] = {}
    for cause, spent in SECONDS.items():
        ours, theirs = spent(env), spent(base)
        more = ours * env.trials.part - theirs * base.trials.part * scale
        if bool(np.isnan(more).any()) or not bool(np.any(ours) or np.any(theirs)):
            continue
        seconds[cause] = float(np.mean(more))
        shares[cause] = more / same_work
    if not shares:
        return None
    return CauseTotals(
        causes={c: carried(x, cell, schedule) for c, x in shares.items()},
        seconds=seconds,
        total=carried(total, cell, schedule),
        extra=float(np.mean(extra)),
        unexplained=carried(total - np.sum(list(shares.values()), axis=0), cell, schedule),
    )


def carried(values: FloatArray, cell: Cell, schedule: Schedule) -> Interval:
    """Return the carried interval of the centre of one value for each block of a cell, at its confidence."""
    return carried_interval(values, schedule=schedule, alpha=1 - cell.confidence, numbers=cell.blocks)


def same_work_of(env: CountedSide, base: CountedSide) -> tuple[FloatArray, FloatArray]:
    """Return the environment's work as a multiple of the baseline's, and the baseline's seconds for it, by
    trial.
    """
    scale = env.trials.work / base.trials.work
    return scale, base.trials.seconds * scale


def _sliced(study: Study, workload: str) -> bool:
    return any(w.name == workload and w.sliced for w in study.workloads)


def _explained(
    study: Study,
    cell: Cell,
    env: CountedSide,
    base: CountedSide,
    found: CauseTotals | None,
    *,
    schedule: Schedule,
) -> Cell:
    had, clauses = cell.attribution or Attribution(), clauses_of(cell)
    slower = cell.verdict is Verdict.SLOWER
    proven: list[str] = []
    if found is not None and slower:
        named = [c for c in found.causes if _worth_saying(found, c) and c is not Cause.TIMEOUTS]
        named.sort(key=lambda c: -found.seconds[c])
        clauses += [f"{c.value}: {found.seconds[c]:.2g} s of {found.extra:.2g} s" for c in named]
        proven += [c.name for c in named]
    if slower and cell.network is not None and timeout_clause(cell.network) is not None:
        proven.insert(0, Cause.TIMEOUTS.name)
    for cause, count in COUNTS.items() if slower else ():
        if had.sentence.split(";")[0] in count.beside:
            times = _times_more(cell, env, base, count, schedule=schedule)
            if times is not None:
                clauses.append(f"{cause.value} ×{times:.2g}")
                proven.append(cause.name)
    if found is None and cell.attribution is None and not clauses:
        return cell
    sentence = "; ".join(clauses) or (NOT_EXPLAINED if slower else had.sentence)
    workload = next(w for w in study.workloads if w.name == cell.workload)
    suggestion = suggest(proven, sentence, env.arm, base.arm, workload) if slower else None
    causes = tuple(TimePart(name=c.value, overhead=i) for c, i in found.causes.items()) if found else ()
    return replace(
        cell,
        attribution=replace(
            had,
            sentence=sentence,
            causes=causes,
            unexplained=found.unexplained if found else None,
            suggestion=suggestion,
        ),
    )


def _worth_saying(found: CauseTotals, cause: Cause) -> bool:
    """Return whether a cause is large enough to report.

    The whole interval of its extra time must exceed the share WORTH_SAYING of all extra time.
    """
    return found.causes[cause].low > WORTH_SAYING * found.total.centre > 0


def _times_more(
    cell: Cell, env: CountedSide, base: CountedSide, count: Count, *, schedule: Schedule
) -> float | None:
    """Return a count as a multiple of the baseline's count for the same work.

    Returns None if it is unknown or not clearly larger.
    """
    ours, theirs = (side.trials.timed(count.counter) / side.trials.work for side in (env, base))
    if ours.size == 0 or not bool(np.all((ours > 0) & (theirs > 0))):
        return None
    ratio = carried(np.log(ours / theirs), cell, schedule)
    return math.exp(ratio.centre) if ratio.low > math.log(count.least) else None
