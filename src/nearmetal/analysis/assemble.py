"""The whole analysis of a run: every comparison of the study, the noise floor, and what was not used and
why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from ..model.plan import Plan
from ..model.record import TOO_SHORT, Status, TrialRecord
from ..model.result import Analysis, Unused
from ..model.study import Event, EventSubject, Study
from .attribution import attribute
from .causes import with_causes
from .cells import Answer, QuantilesOf, Question, answer, with_discoveries, with_holm
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
    spans = _spans(records)
    block_seconds = _block_seconds(spans)
    questions = _questions(study, folded)
    answers = [
        a
        for q in questions
        if (
            a := answer(
                q,
                folded,
                study.design,
                schedule=plan.schedule,
                block_seconds=block_seconds,
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
        cells = with_causes(study, cells, folded.used, schedule=plan.schedule)
        cells = with_hypervisor(study, cells, folded.used, schedule=plan.schedule)
    disturbance = disturbances(folded.used)
    return Analysis(
        study=study.name,
        question=study.question,
        seed=plan.seed,
        blocks=len(folded.blocks),
        torn_blocks=folded.torn,
        failed_trials=sum(1 for r in records if r.status is not Status.OK or _unverified(r)),
        elapsed=_elapsed(spans, block_seconds),
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
                    alpha=alpha / named if primary else alpha,
                    exploratory=not primary,
                    quantiles=_quantiles_of(events.get(row[0]), row[1]),
                )
            )
    return out


def _quantiles_of(event: Event | None, metric: str) -> QuantilesOf | None:
    """Of times of events alone. Commands in one instance share its fate, so that its median is the value;
    every start and every stop is that of a fresh instance."""
    if event is Event.EXEC:
        return QuantilesOf.BLOCKS
    timed = metric in ("start", "stop", "removed", "start_all")
    return QuantilesOf.VALUES if (event is not None and timed) or metric == "start" else None


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


def _spans(records: Iterable[TrialRecord]) -> list[tuple[float, float]]:
    """Begin and end of every attempt at a block, in the order of time."""
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for r in records:
        if r.block < 1:
            continue
        begin, end = spans.get((r.block, r.attempt), (r.begin, r.end))
        spans[r.block, r.attempt] = (min(begin, r.begin), max(end, r.end))
    return sorted(spans.values())


def _block_seconds(spans: Sequence[tuple[float, float]]) -> float:
    """Median seconds from one block's begin to the next, the time between blocks included; 0 without
    records."""
    if not spans:
        return 0.0
    own = median(end - begin for begin, end in spans)
    steps = [b[0] - a[0] for a, b in pairwise(spans)]
    return max(own, median(steps)) if steps else own


def _elapsed(spans: Sequence[tuple[float, float]], block_seconds: float) -> float:
    """Seconds spent on blocks. The time from one block to the next counts while it is shorter than a block;
    longer gaps are pauses between a run and its resumption."""
    total = sum(end - begin for begin, end in spans)
    gaps = (b[0] - a[1] for a, b in pairwise(spans))
    return total + sum(gap for gap in gaps if 0 < gap <= max(block_seconds, 1.0))
