"""The whole analysis of a run: every comparison of the study, the noise floor, and what was not used and
why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from ..model.plan import Plan
from ..model.record import TOO_SHORT, Status, TrialRecord
from ..model.result import Analysis, Unused
from ..model.study import Event, EventSubject, Study
from .attribution import attribute
from .causes import with_causes
from .cells import Answer, Question, answer, with_discoveries, with_holm
from .fold import Folded, RowName, fold
from .hypervisor import with_hypervisor
from .network_trouble import with_network
from .noise_floor import disturbances, noise_floor


def analyse(study: Study, plan: Plan, records: Sequence[TrialRecord], *, detail: bool = True) -> Analysis:
    """Estimates and verdicts of everything the records hold.

    Cells stand in the order of study.comparisons(), then of workloads, then of metrics as measured. A
    comparison without one usable block is not a cell but stands under `unused` with its reason. detail=False
    is for use between blocks: the same intervals and verdicts without quantiles, Holm's column, companions
    (sign, mean), differences and attribution, which then are None or have infinite ends."""
    folded = fold(plan, records)
    attempts = _attempts(records)
    block_seconds = _block_seconds(attempts)
    clock = _clock(attempts, block_seconds)
    ended = _ended(attempts, clock, plan.started)
    questions = _questions(study, folded)
    answers = [
        a
        for q in questions
        if (
            a := answer(
                q,
                folded,
                study.design,
                plan,
                block_seconds=block_seconds,
                ended=ended,
                detail=detail,
            )
        )
    ]
    compared = [a for a in answers if a.cell.arm != a.cell.baseline]
    cells = tuple(a.cell for a in compared)
    if detail:
        cells = with_holm(cells, {a.cell.key: a.p for a in compared})
        cells = with_discoveries(cells, 1 - study.design.confidence)
        found = attribute(study, cells, {a.cell.key: a.parts for a in compared if a.parts is not None})
        cells = tuple(replace(c, attribution=found.get(c.key)) for c in cells)
        cells = with_network(cells, folded.used)
        schedules = {a.cell.key: a.schedule for a in compared}
        cells = with_causes(study, cells, folded.used, schedules=schedules)
        cells = with_hypervisor(study, cells, folded.used, schedules=schedules)
    disturbance = disturbances(folded.used)
    return Analysis(
        study=study.name,
        question=study.question,
        seed=plan.seed,
        blocks=len(folded.blocks),
        torn_blocks=folded.torn,
        failed_trials=sum(1 for r in records if r.status is not Status.OK or _unverified(r)),
        elapsed=clock[-1] if clock else 0.0,
        block_seconds=block_seconds,
        cells=cells,
        noise_floor=noise_floor([a.cell for a in answers if a.cell.arm == a.cell.baseline], disturbance),
        unused=(*folded.unused, *_not_measured(study, folded, questions, answers)),
        disturbance=disturbance,
    )


def _unverified(record: TrialRecord) -> bool:
    """Whether a result of the trial was found to be wrong."""
    return any(row.verification.get("ok") is False for row in record.rows)


def _questions(study: Study, folded: Folded) -> list[Question]:
    """A/A first, then every comparison; each for every row that either side has."""
    design = study.design
    arms = {arm.name: arm for arm in study.arms()}
    alpha = 1 - design.confidence
    comparisons = study.comparisons()
    # Fixed before data: every comparison of every named metric, whether or not its rows will all be there.
    named = max(1, len(comparisons) * len(set(design.primary)))
    rows = _ordered(study, folded.rows)
    events = {w.name: w.event for w in study.workloads if isinstance(w, EventSubject)}
    twins = sorted({arm for (arm, aa), _ in folded.series if aa and arm in arms}, key=list(arms).index)
    pairs = [(arm, arm, True) for arm in twins] + [(c.arm, c.baseline, False) for c in comparisons]
    aa_cells = sum(
        ((arm, True), row) in folded.series and ((arm, False), row) in folded.series
        for arm in twins
        for row in rows
    )
    out: list[Question] = []
    for arm, baseline, aa in pairs:
        for row in rows:
            primary = not aa and ".".join(row) in design.primary
            out.append(
                Question(
                    arm=arms[arm],
                    baseline=arms[baseline],
                    row=row,
                    aa=aa,
                    aa_cells=aa_cells if aa else 0,
                    alpha=alpha / named if primary else alpha,
                    exploratory=not primary,
                    quantiles=_has_quantiles(events.get(row[0]), row[1]),
                )
            )
    return out


def _has_quantiles(event: Event | None, metric: str) -> bool:
    """Whether quantiles are taken of a metric: of times of events alone."""
    timed = event is Event.EXEC or metric in ("start", "stop", "removed", "start_all")
    return (event is not None and timed) or metric == "start"


def _ordered(study: Study, rows: Iterable[RowName]) -> list[RowName]:
    order = {w.name: i for i, w in enumerate(study.workloads)}
    return sorted(rows, key=lambda row: order.get(row[0], len(order)))


def _not_measured(
    study: Study, folded: Folded, questions: Sequence[Question], answers: Sequence[Answer]
) -> list[Unused]:
    """Failed trials, failed rows by comparison, comparisons without a cell, arms without a trial."""
    out: list[Unused] = []
    measured = {r.arm for r in folded.used}
    absent = [a.name for a in study.arms() if a.name not in measured]
    out += [Unused(what=name, reason="no trial of this arm in a complete block", count=0) for name in absent]
    trials = Counter((arm, reason) for (arm, _), by in folded.silent.items() for reason in by.values())
    out += [
        Unused(what=f"trials of {arm}", reason=reason, count=n, failed=True)
        for (arm, reason), n in trials.items()
    ]
    rows = Counter(
        (side[0], ".".join(row), reason) for (side, row), by in folded.lost.items() for reason in by.values()
    )
    out += [
        Unused(what=f"{arm}: {row}", reason=reason, count=n, failed=not reason.endswith(TOO_SHORT))
        for (arm, row, reason), n in rows.items()
    ]
    missing = set(absent)
    have = {(a.cell.arm, a.cell.baseline, a.cell.workload, a.cell.metric) for a in answers}
    for q in questions:
        if missing & {q.arm.name, q.baseline.name} or (q.arm.name, q.baseline.name, *q.row) in have:
            continue
        if any((side, q.row) in folded.series for side in q.sides):
            out.append(
                Unused(
                    what=f"{q.arm.name} against {q.baseline.name}: {'.'.join(q.row)}",
                    reason="no block has it on both sides",
                    count=len(folded.blocks),
                )
            )
    return out


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One attempt at a block, from the begin of its first trial to the end of its last, Unix seconds."""

    block: int
    begin: float
    end: float


def _attempts(records: Iterable[TrialRecord]) -> list[_Attempt]:
    """Every attempt at a block, in the order of time."""
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for r in records:
        if r.block < 1:
            continue
        begin, end = spans.get((r.block, r.attempt), (r.begin, r.end))
        spans[r.block, r.attempt] = (min(begin, r.begin), max(end, r.end))
    found = (_Attempt(block=block, begin=begin, end=end) for (block, _), (begin, end) in spans.items())
    return sorted(found, key=lambda a: (a.begin, a.end))


def _block_seconds(attempts: Sequence[_Attempt]) -> float:
    """Median seconds from one block's begin to the next, the time between blocks included; 0 without
    records."""
    if not attempts:
        return 0.0
    own = median(a.end - a.begin for a in attempts)
    steps = [b.begin - a.begin for a, b in pairwise(attempts)]
    return max(own, median(steps)) if steps else own


def _clock(attempts: Sequence[_Attempt], block_seconds: float) -> list[float]:
    """Seconds spent on blocks up to the end of each attempt. The time from one block to the next counts while
    it is shorter than a block; longer gaps are pauses between a run and its resumption."""
    out: list[float] = []
    spent, before = 0.0, None
    for a in attempts:
        gap = 0.0 if before is None else a.begin - before
        spent += a.end - a.begin + (gap if 0 < gap <= max(block_seconds, 1.0) else 0.0)
        before = a.end
        out.append(spent)
    return out


def _ended(
    attempts: Sequence[_Attempt], clock: Sequence[float], started: float | None
) -> Mapping[int, float]:
    """Seconds of the run at the end of each block, by its number: since the command that began the run was
    started, or since the first block began where that is not known."""
    first = max(attempts[0].begin - started, 0.0) if attempts and started is not None else 0.0
    return {a.block: first + spent for a, spent in zip(attempts, clock, strict=True)}
