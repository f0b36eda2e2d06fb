"""Why extra time was spent, as far as it was counted beside the workload: what throttling, waiting for a CPU,
time-outs of TCP, disks and the reclaim of memory took, with intervals and what they leave unexplained.

Causes cut across the parts of attribution.py: a rank is throttled while it computes, or while it waits in MPI
for one that is. Seconds are of the timed part of a trial, in shares of the baseline's for the same work. Of
several ranks they are the mean over ranks (throttling, steal) or the longest (run delay): what the slowest
lost can be more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

import numpy as np

from ..model.plan import Schedule
from ..model.record import TrialRecord
from ..model.result import Attribution, Cell, Interval, Part, Verdict
from ..model.study import ApplicationWorkload, Arm, CommandWorkload, KernelWorkload, Study
from .attribution import NOT_EXPLAINED
from .looks import look_and_carry
from .network_trouble import (
    TIMEOUTS,
    WORTH_SAYING,
    Trials,
    by_sides,
    rto_or_least,
    timeout_clause,
)
from .suggestions import suggest


class Cause(StrEnum):
    """In the words of the report."""

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
    """A count without seconds of its own. beside: the parts that it may have made slower; least: times the
    baseline's for the same work from which it is told."""

    counter: str
    beside: tuple[str, ...]
    least: float


COUNTS: Mapping[Cause, Count] = {
    Cause.TLB: Count(counter="dtlb_misses", beside=("computation", "user code"), least=1.5),
    Cause.CACHE: Count(counter="cache_misses", beside=("computation", "user code"), least=1.5),
    Cause.FAULTS: Count(counter="page_faults", beside=("computation", "system calls"), least=2.0),
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison. rto: smallest retransmission time-out seen on it, seconds; processes: that
    run at once."""

    arm: Arm
    trials: Trials
    rto: float
    processes: int

    def timed(self, block: int, workload: str) -> Mapping[str, float | None]:
        """What was counted in the timed part; empty where the block has no good trial."""
        record = self.trials.record(block)
        return {} if record is None else record.counters.get(f"timed.{workload}", {})


def throttled(side: Side, block: int, workload: str) -> float | None:
    """Who has no quota is not throttled by it, whether that is counted or not."""
    if side.arm.environment.limits.cpu_quota is None:
        return 0.0
    found = side.timed(block, workload).get("throttled")
    return None if found is None else found / side.processes


def delayed(side: Side, block: int, workload: str) -> float | None:
    """The kernel counts throttled time as run delay, too. A virtual CPU that waits for a real one shows as
    steal inside, or as its thread's delay outside: the same time."""
    timed = side.timed(block, workload)
    own, quota = timed.get("run_delay"), throttled(side, block, workload)
    stolen = max(timed.get("steal") or 0.0, timed.get("vcpu_delay") or 0.0) / side.processes
    return None if own is None or quota is None else max(0.0, own - quota) + stolen


def timed_out(side: Side, block: int, workload: str) -> float | None:
    """An arm without a network has none."""
    record = side.trials.record(block)
    network = {} if record is None else record.network
    found = network.get(f"timed.{workload}", {}).get(TIMEOUTS, None if network else 0.0)
    return None if found is None else found * side.rto


def _pressed(resource: str) -> Callable[[Side, int, str], float | None]:
    return lambda side, block, workload: side.timed(block, workload).get(f"pressure_{resource}_some")


#: Seconds of each cause in the timed part of a trial.
SECONDS: Mapping[Cause, Callable[[Side, int, str], float | None]] = {
    Cause.THROTTLED: throttled,
    Cause.DELAY: delayed,
    Cause.TIMEOUTS: timed_out,
    Cause.DISK: _pressed("io"),
    Cause.MEMORY: _pressed("memory"),
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """causes: of which either side had any; seconds: more than the baseline's for the same work, by cause,
    mean over trials; total: of all extra time, in shares; extra: the same in seconds."""

    causes: Mapping[Cause, Interval]
    seconds: Mapping[Cause, float]
    total: Interval
    extra: float
    unexplained: Interval


def with_causes(
    study: Study, cells: Sequence[Cell], records: Iterable[TrialRecord], *, schedules: Mapping[str, Schedule]
) -> tuple[Cell, ...]:
    """The cells with the causes of their extra time, those that hold a part of it in the sentence, and a
    change that may help. records: those of complete blocks; schedules: of each cell's looks, by its key."""
    arms = {arm.name: arm for arm in study.arms()}
    sides = by_sides(records)

    def told(cell: Cell) -> Cell:
        env, base = (side_of(study, arms[name], sides, cell.workload) for name in (cell.arm, cell.baseline))
        material = cell.verdict in (Verdict.SLOWER, Verdict.FASTER)
        if env is None or base is None or (cell.attribution is None and not material):
            return cell
        schedule = schedules[cell.key]
        found = find(study, cell, env, base, schedule=schedule)
        return _told(study, cell, env, base, found, schedule=schedule)

    return tuple(told(c) for c in cells)


def _processes_of(workload: object) -> Callable[[Arm], int] | None:
    if isinstance(workload, KernelWorkload):
        return lambda arm: arm.placement.ranks
    if isinstance(workload, ApplicationWorkload):
        return lambda arm: arm.placement.ranks
    if isinstance(workload, CommandWorkload):
        several = workload.mpi or workload.per_task
        return lambda arm: arm.placement.ranks if several else 1
    return None


def side_of(study: Study, arm: Arm, sides: Mapping[tuple[str, bool], Trials], workload: str) -> Side | None:
    """An arm's side of a comparison by one workload; None where that has no processes of its own."""
    count = next((_processes_of(w) for w in study.workloads if w.name == workload), None)
    if count is None:
        return None
    trials = sides.get((arm.name, False), Trials())
    rto = rto_or_least(trials.smallest_rto)
    return Side(arm=arm, trials=trials, rto=rto, processes=count(arm))


def find(study: Study, cell: Cell, env: Side, base: Side, *, schedule: Schedule) -> Found | None:
    """None where the timed seconds of a block are not known, or nothing was counted in them."""
    if cell.metric in ("user", "system") and not _is_kernel(study, cell.workload):
        return None  # CPU time, of which no cause here is a part
    total: list[float] = []
    extra: list[float] = []
    shares: dict[Cause, list[float]] = {cause: [] for cause in SECONDS}
    seconds: dict[Cause, list[float]] = {cause: [] for cause in SECONDS}
    seen: set[Cause] = set()
    for block in cell.blocks:
        pair = [timed_part(side, block, cell) for side in (env, base)]
        if pair[0] is None or pair[1] is None:
            return None
        (ours, our_work, our_part), (theirs, their_work, their_part) = pair[0], pair[1]
        scale = our_work / their_work
        extra.append(ours - theirs * scale)
        total.append(extra[-1] / (theirs * scale))
        for cause in list(shares):
            spent = SECONDS[cause](env, block, cell.workload), SECONDS[cause](base, block, cell.workload)
            if spent[0] is None or spent[1] is None:
                del shares[cause]
                continue
            if spent[0] or spent[1]:
                seen.add(cause)
            seconds[cause].append(spent[0] * our_part - spent[1] * their_part * scale)
            shares[cause].append(seconds[cause][-1] / (theirs * scale))
    known = [cause for cause in shares if cause in seen]
    if not known or not total:
        return None
    alpha = 1 - cell.confidence

    def carried(values: Sequence[float]) -> Interval:
        return look_and_carry(
            np.asarray(values), schedule=schedule, alpha=alpha, numbers=cell.blocks
        ).interval

    left = [t - sum(shares[c][i] for c in known) for i, t in enumerate(total)]
    return Found(
        causes={c: carried(shares[c]) for c in known},
        seconds={c: fmean(seconds[c]) for c in known},
        total=carried(total),
        extra=fmean(extra),
        unexplained=carried(left),
    )


def timed_part(side: Side, block: int, cell: Cell) -> tuple[float, float, float] | None:
    """Seconds and work of the cell's metric in one trial, and its share of the seconds that were counted."""
    found = side.trials.time_and_work(block, cell)
    if found is None:
        return None
    whole = side.trials.counted_seconds(block, cell.workload)
    return (*found, min(1.0, found[0] / whole) if whole > 0 else 1.0)


def _is_kernel(study: Study, workload: str) -> bool:
    return any(w.name == workload and isinstance(w, KernelWorkload) for w in study.workloads)


def _told(
    study: Study, cell: Cell, env: Side, base: Side, found: Found | None, *, schedule: Schedule
) -> Cell:
    had = cell.attribution or Attribution(parts=(), residual=None, sentence="")
    slower = cell.verdict is Verdict.SLOWER
    clauses: list[str] = [] if had.sentence in ("", NOT_EXPLAINED) else [had.sentence]
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
    causes = tuple(Part(name=c.value, overhead=i) for c, i in found.causes.items()) if found else ()
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


def _worth_saying(found: Found, cause: Cause) -> bool:
    """Whether its whole interval holds a part of the extra time that is worth a word."""
    return found.causes[cause].low > WORTH_SAYING * found.total.centre > 0


def _times_more(cell: Cell, env: Side, base: Side, count: Count, *, schedule: Schedule) -> float | None:
    """A count for the same work, as a multiple of the baseline's; None where it is not known or not clearly
    more."""
    logs: list[float] = []
    for block in cell.blocks:
        pair = []
        for side in (env, base):
            part = timed_part(side, block, cell)
            found = side.timed(block, cell.workload).get(count.counter) if part is not None else None
            if part is None or not found:
                return None
            pair.append(found / part[1])
        logs.append(math.log(pair[0] / pair[1]))
    if not logs:
        return None
    ratio = look_and_carry(
        np.asarray(logs), schedule=schedule, alpha=1 - cell.confidence, numbers=cell.blocks
    ).interval
    return math.exp(ratio.centre) if ratio.low > math.log(count.least) else None
