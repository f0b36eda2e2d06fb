"""The whole analysis of a run: every comparison of the study, the noise floor, and the data that were not
used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..model.node_results import RunNodes, SetEvidence
from ..model.plan import Plan
from ..model.record import Head, Status, TrialRecord, cause_of, unmeasurable
from ..model.result import Analysis, Unused
from ..model.study import Study, quantiles_of
from .causes.attribution import with_sentences
from .causes.counted import MapFunction, with_causes
from .causes.hypervisor import with_hypervisor
from .causes.network_trouble import with_network
from .cells import JudgedCell, Question, answer, with_discoveries, with_holm
from .fold.attempts import RunTimes
from .fold.columns import RowName
from .fold.comparisons import Folded, fold
from .fold.pieces import fold_request
from .nodes.factor import Nodes, nodes_of_run
from .nodes.outliers import baseline_rows, left_out_nodes, unlike_nodes
from .nodes.sets import unlike_sets
from .noise_floor import disturbances, noise_floor


def analyse(study: Study, plan: Plan, records: Sequence[TrialRecord], *, detail: bool = True) -> Analysis:
    """Return the estimates and verdicts of all measurements in the records.

    The cells are ordered by study.comparisons(), then by workload, then by metric as measured. A comparison
    without a usable block gives no cell; it is listed in `unused` with the reason.

    detail: False is for use between blocks. The intervals and verdicts are then the same, but quantiles,
        Holm's column, companions (sign, mean), differences and attribution are None or have infinite ends.
    """
    folded = fold(fold_request(study, detail=detail), plan, records)
    return conclude(study, plan, records, folded, detail=detail)


def conclude(
    study: Study,
    plan: Plan,
    heads: Sequence[Head],
    folded: Folded,
    *,
    detail: bool = True,
    each: MapFunction = map,
) -> Analysis:
    """Return the same as analyse() for a run whose records are already folded.

    heads: the heads of all records of the run.
    each: applies a function to every question, and later to every cell; may use threads.
    """
    clock = RunTimes(heads, plan.started)
    questions = _questions(study, folded)
    nodes = nodes_of_run(folded.blocks, folded.nodes, study.design.estimand)
    run_nodes = None if nodes is None or not detail else _run_nodes(nodes, study, folded)

    def answered(question: Question) -> JudgedCell | None:
        return answer(
            question,
            folded,
            study.design,
            plan,
            clock,
            detail=detail,
            nodes=nodes,
            left_out=() if run_nodes is None else run_nodes.left_out,
        )

    answers = [a for a in each(answered, questions) if a is not None]
    compared = [a for a in answers if a.cell.arm != a.cell.baseline]
    cells = tuple(a.cell for a in compared)
    if detail:
        cells = with_holm(cells, {a.cell.key: a.p for a in compared})
        cells = with_discoveries(cells, 1 - study.design.confidence)
        cells = with_sentences(study, cells)
        cells = with_network(cells, folded)
        schedules = {a.cell.key: a.schedule for a in compared}
        cells = with_causes(study, cells, folded, schedules=schedules, each=each)
        cells = with_hypervisor(study, cells, folded, schedules=schedules)
    disturbance = disturbances(folded.counts.values())
    return Analysis(
        study=study.name,
        question=study.question,
        seed=plan.seed,
        blocks=len(folded.blocks),
        torn_blocks=folded.torn,
        failed_trials=sum(h.status is not Status.OK for h in heads) + folded.wrong,
        elapsed=clock.elapsed,
        block_seconds=clock.block_seconds,
        cells=cells,
        noise_floor=noise_floor(
            study, [a.cell for a in answers if a.cell.arm == a.cell.baseline], disturbance
        ),
        unused=(*folded.unused, *_not_measured(study, folded, questions, answers)),
        disturbance=disturbance,
        nodes=run_nodes,
        sets=_sets(study, plan, folded) if detail else (),
    )


def _sets(study: Study, plan: Plan, folded: Folded) -> tuple[SetEvidence, ...]:
    """Return the slow machines and links; empty unless the machines of each block were drawn at random."""
    if not plan.machines:
        return ()
    return unlike_sets(
        baseline_rows(folded.measured),
        plan.machines,
        {arm.name: arm.placement.nodes for arm in study.arms()},
        seed=plan.seed,
        alpha=1 - study.design.confidence,
        margin=study.design.margin,
    )


def _run_nodes(nodes: Nodes, study: Study, folded: Folded) -> RunNodes:
    """Return the nodes of a run, with those that behave unlike the others."""
    design = study.design
    rows = baseline_rows(folded.measured)
    evidence = unlike_nodes(rows, nodes, alpha=1 - design.confidence, margin=design.margin)
    rounds = Counter(nodes.nodes_of(folded.blocks).tolist())
    return RunNodes(
        estimand=nodes.estimand,
        rounds={name: rounds[at] for at, name in enumerate(nodes.names)},
        states=nodes.states,
        evidence=evidence,
        left_out=left_out_nodes(evidence, nodes),
    )


def _questions(study: Study, folded: Folded) -> list[Question]:
    """List the questions: the A/A comparisons first, then the comparisons of the study, each for every row
    (workload and metric) that any arm measured in the run."""
    design = study.design
    arms = {arm.name: arm for arm in study.arms()}
    alpha = 1 - design.confidence
    comparisons = study.comparisons()
    # Fixed before the data: every comparison of every named metric, even if some rows will be missing.
    named = max(1, len(comparisons) * len(set(design.primary)))
    rows = _ordered(study, folded.rows)
    quantiles = quantiles_of(study.workloads)
    plurals = {(w.name, metric): noun for w in study.events for metric, noun in w.facts.plurals.items()}
    twins = sorted({arm for (arm, aa), _ in folded.measured if aa and arm in arms}, key=list(arms).index)
    pairs = [(arm, arm, True) for arm in twins] + [(c.arm, c.baseline, False) for c in comparisons]
    aa_cells = sum(
        ((arm, True), row) in folded.measured and ((arm, False), row) in folded.measured
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
                    quantiles=row[1] in quantiles.get(row[0], ()),
                    events=plurals.get(row, "events"),
                )
            )
    return out


def _ordered(study: Study, rows: Iterable[RowName]) -> list[RowName]:
    order = {w.name: i for i, w in enumerate(study.workloads)}
    return sorted(rows, key=lambda row: order.get(row[0], len(order)))


def _not_measured(
    study: Study, folded: Folded, questions: Sequence[Question], answers: Sequence[JudgedCell]
) -> list[Unused]:
    """List arms without a trial, failed trials, lost rows, and comparisons without a cell."""
    out: list[Unused] = []
    measured = {arm for arm, _ in folded.present}
    absent = [a.name for a in study.arms() if a.name not in measured]
    out += [
        Unused(what=name, reason="no trial of this environment in a complete round", count=0)
        for name in absent
    ]
    trials = Counter(
        (arm, cause_of(reason)) for (arm, _), by in folded.silent.items() for reason in by.values()
    )
    out += [
        Unused(what=f"trials of {arm}", reason=reason, count=n, failed=True)
        for (arm, reason), n in trials.items()
    ]
    rows = Counter(
        (side[0], ".".join(row), cause_of(reason))
        for (side, row), by in folded.lost.items()
        for reason in by.values()
    )
    out += [
        Unused(what=f"{arm}: {row}", reason=reason, count=n, failed=not unmeasurable(reason))
        for (arm, row, reason), n in rows.items()
    ]
    missing = set(absent)
    have = {(a.cell.arm, a.cell.baseline, a.cell.workload, a.cell.metric) for a in answers}
    for q in questions:
        if missing & {q.arm.name, q.baseline.name} or (q.arm.name, q.baseline.name, *q.row) in have:
            continue
        if any((side, q.row) in folded.measured for side in q.sides):
            out.append(
                Unused(
                    what=f"{q.arm.name} against {q.baseline.name}: {'.'.join(q.row)}",
                    reason="no round has it on both sides",
                    count=len(folded.blocks),
                )
            )
    return out
