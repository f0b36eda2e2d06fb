"""One comparison of one metric, with all values that a table row and its detail view show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..model.design import Estimand
from ..model.plan import ExpectedLooks, Plan, Schedule
from ..model.result import Cell, Interval, Quantiles, Verdict
from ..model.study import Arm, Design
from .causes.attribution import measured_parts
from .companions import evidence, slice_spread, totals
from .decision import Criteria, Decision, decide
from .fold.attempts import RunTimes, Side
from .fold.columns import RowName
from .fold.comparisons import Folded, Paired, pair
from .fold.counts import FloatArray
from .intervals.looks import carried_interval, own_schedule
from .intervals.mean import anytime_mean
from .intervals.multiplicity import e_bh, holm, smallest_alpha
from .intervals.quantiles import median_interval, quantiles
from .intervals.sign import sign_interval
from .nodes.factor import Nodes, StratifiedBlocks, carried_over_nodes
from .nodes.findings import qualified, with_estimates
from .verdict import disagreement, share_of, smallest_material


@dataclass(frozen=True, kw_only=True)
class Question:
    """One comparison in one metric of a workload, which answer() answers by a cell.

    row: workload and metric.
    aa: whether the baseline is compared with its own second run; `arm` is then the baseline, too.
    aa_cells: number of A/A comparisons in the study; 0 if aa is False.
    alpha: error probability that this cell may use.
    exploratory: whether the cell is outside the named primary metrics.
    quantiles: whether to compute quantiles of the arm's values.
    events: see Cell.events.
    """

    arm: Arm
    baseline: Arm
    row: RowName
    aa: bool
    aa_cells: int
    alpha: float
    exploratory: bool
    quantiles: bool
    events: str

    @property
    def sides(self) -> tuple[Side, Side]:
        """Return the environment's side and the baseline's side, which is always its first run, A1."""
        return (self.arm.name, self.aa), (self.baseline.name, False)


@dataclass(frozen=True, kw_only=True)
class JudgedCell:
    """A cell with values that only the analysis needs.

    schedule: the schedule of its looks.
    p: its p value; None if it has none.
    """

    cell: Cell
    schedule: Schedule
    p: float | None


def answer(
    question: Question,
    folded: Folded,
    design: Design,
    plan: Plan,
    clock: RunTimes,
    *,
    detail: bool,
    nodes: Nodes | None = None,
    left_out: Collection[str] = (),
) -> JudgedCell | None:
    """Return the cell of a question, or None if no block has the row on both sides.

    nodes: the nodes of the blocks; None if there is one. A comparison of the baseline with itself is always
        about these nodes (Estimand.THESE).
    left_out: names of the nodes without which the estimates are also computed; see unlike.left_out_nodes().
    detail: False is for use between blocks. Then sign, mean, difference, baseline_value and value have
        infinite ends, and p, quantiles and attribution are None. The number of blocks, interval, verdict,
        reason and blocks still needed are the same, but the reason does not mention the sign interval.
    """
    env, base = question.sides
    paired = pair(folded, env, base, question.row)
    if paired is None:
        return None
    schedule, alpha = own_schedule(plan.schedule, paired.left_out), question.alpha
    criteria = Criteria(
        schedule=schedule,
        alpha=alpha,
        node_alpha=1 - design.confidence,
        margin=design.margin,
        min_blocks=design.min_blocks,
    )
    if question.aa and nodes is not None:
        nodes = nodes.of(Estimand.THESE)
    decision = decide(paired, criteria, nodes=nodes)
    if question.aa:
        decision = _corrected(decision, question, paired, criteria, nodes)
    found = None
    if nodes is not None and not question.aa:
        decision, found = qualified(decision, paired, nodes, criteria)
    cell = replace(_plain(question, folded, design.margin, paired, decision, clock), nodes=found)
    if not detail:
        return JudgedCell(cell=cell, schedule=schedule, p=None)
    difference = _difference(paired, schedule, alpha, nodes)
    sign = sign_interval(paired.judged, alpha)
    other = disagreement(decision.carried.low, decision.carried.high, sign, cell.verdict, margin=cell.margin)
    cell = replace(
        cell,
        baseline_value=median_interval(paired.base_values, design.confidence),
        value=median_interval(paired.env_values, design.confidence),
        difference=difference,
        reason=f"{cell.reason}; {other}" if other else cell.reason,
        sign=sign,
        mean=_mean(paired.d, alpha, schedule),
        attribution=None if question.aa else measured_parts(paired, schedule=schedule, alpha=alpha),
        quantiles=_quantiles(question, folded, paired, design) if question.quantiles else None,
        total=totals(paired, cell.better, design.confidence),
        spread=slice_spread(paired, clock.block_seconds),
        e=min(evidence(paired.d), evidence(paired.judged)),
        nodes=None
        if found is None or nodes is None
        else with_estimates(found, paired, nodes, criteria, left_out),
    )
    p = _p_value(paired, schedule, cell, decision.least, nodes)
    return JudgedCell(cell=cell, schedule=schedule, p=p)


def _difference(paired: Paired, schedule: Schedule, alpha: float, nodes: Nodes | None) -> Interval:
    """Return the paired difference in base units with its carried interval."""
    x, numbers = paired.both.difference, paired.blocks.tolist()
    if nodes is not None:
        return carried_over_nodes(x, numbers, nodes, schedule=schedule, alpha=alpha).interval
    return carried_interval(x, schedule=schedule, alpha=alpha, numbers=numbers)


def _corrected(
    decision: Decision, question: Question, paired: Paired, criteria: Criteria, nodes: Nodes | None
) -> Decision:
    """Correct the decision of an A/A comparison for the number of A/A comparisons.

    A material or inconsistent verdict is kept only if it is also reached with alpha divided by the number of
    these comparisons. Without this, sound machines would be distrusted because of chance alone.
    """
    if decision.verdict in (Verdict.NONE, Verdict.EQUIVALENT) or question.aa_cells < 2:
        return decision
    strict = decide(paired, replace(criteria, alpha=criteria.alpha / question.aa_cells), nodes=nodes)
    if strict.verdict is decision.verdict:
        return replace(decision, block=strict.block)
    why = (
        f"{decision.verdict.value} by itself, but among {question.aa_cells} comparisons of the baseline with "
        "itself that may be chance"
    )
    return replace(decision, verdict=Verdict.NONE, block=None, reason=why)


def _p_value(paired: Paired, schedule: Schedule, cell: Cell, least: int, nodes: Nodes | None) -> float | None:
    """Return the p value for Holm's column, or None if there is none.

    If blocks failed, it is the larger of two p values, because a verdict has to be reached both by all blocks
    and by the blocks without failures.
    """
    if cell.n < least:
        return None
    samples = [(paired.judged, paired.judged_blocks)]
    if paired.failed:
        samples.append((paired.d, paired.blocks))
    found = [
        smallest_alpha(
            d,
            schedule=schedule,
            margin=cell.margin,
            verdict=cell.verdict,
            numbers=blocks.tolist(),
            sample_at=None if nodes is None else StratifiedBlocks(d, blocks.tolist(), nodes).sample,
        )
        for d, blocks in samples
    ]
    known = [p for p in found if p is not None]
    return max(known) if len(known) == len(found) else None


def _plain(
    question: Question,
    folded: Folded,
    margin: float,
    paired: Paired,
    decision: Decision,
    clock: RunTimes,
) -> Cell:
    carried, needed, block_seconds = decision.carried, decision.needed, clock.block_seconds
    base = folded.measured[question.sides[1], question.row]
    sides = question.arm.environment, question.baseline.environment
    guest = sides[0].emulation or sides[1].emulation
    return Cell(
        arm=question.arm.name,
        environment=question.arm.environment.name,
        placement=question.arm.placement.name,
        attachment=question.arm.environment.attachment.value,
        emulated=question.arm.placement.node.emulated or question.baseline.placement.node.emulated,
        guest=guest,
        guest_of=tuple(dict.fromkeys(e.name for e in sides if guest and e.emulation == guest)),
        baseline=question.baseline.name,
        workload=question.row[0],
        metric=question.row[1],
        unit=base.unit,
        better=base.better,
        n=int(paired.judged.size),
        failed=len(paired.failed),
        failed_blocks=tuple(sorted(paired.env_failed)),
        baseline_failed_blocks=tuple(sorted(paired.base_failed)),
        baseline_value=Interval.unbounded(float(np.median(paired.base_values))),
        value=Interval.unbounded(float(np.median(paired.env_values))),
        overhead=share_of(carried.centre),
        low=share_of(carried.low),
        high=share_of(carried.high),
        margin=margin,
        confidence=1 - question.alpha,
        exploratory=question.exploratory,
        verdict=decision.verdict,
        reason=decision.reason,
        decided_block=decision.block,
        decided_seconds=None if decision.block is None else clock.ended.get(decision.block),
        smallest_material=smallest_material(carried.low, carried.high, margin),
        blocks_needed=needed,
        seconds_needed=needed * block_seconds if needed is not None and block_seconds > 0 else None,
        difference=Interval.unbounded(float(np.median(paired.env_values - paired.base_values))),
        sign=Interval.unbounded(float(np.median(paired.d))),
        mean=Interval.unbounded(float(np.mean(paired.d))),
        p_holm=None,
        looks=carried.looks,
        blocks=tuple(paired.blocks.tolist()),
        d=tuple(paired.d.tolist()),
        baseline_values=tuple(paired.base_values.tolist()),
        values=tuple(paired.env_values.tolist()),
        quantiles=None,
        attribution=None,
        events=question.events,
    )


def with_holm(cells: tuple[Cell, ...], p: Mapping[str, float | None]) -> tuple[Cell, ...]:
    """Fill Holm's column, separately for the named cells of a confirmatory study and the exploratory cells.

    A cell without a p value (too few blocks, inconsistent) counts as p = 1 in its family and shows none."""
    out = {c.key: c for c in cells}
    for exploratory in (False, True):
        family = [c for c in cells if c.exploratory is exploratory]
        known = [p[c.key] for c in family]
        column = holm([1.0 if x is None else x for x in known])
        for cell, own, adjusted in zip(family, known, column, strict=True):
            out[cell.key] = replace(cell, p_holm=None if own is None else adjusted)
    return tuple(out[c.key] for c in cells)


def with_discoveries(cells: tuple[Cell, ...], alpha: float) -> tuple[Cell, ...]:
    """Mark the cells that e-BH counts as differences, among all cells of the study."""
    differs = e_bh([c.e or 0.0 for c in cells], alpha)
    return tuple(replace(c, discovered=yes) for c, yes in zip(cells, differs, strict=True))


def _quantiles(question: Question, folded: Folded, paired: Paired, design: Design) -> Quantiles:
    """Return the quantiles of the arm and the values of both sides.

    A failed trial counts as longer than any other (right-censored). Without failed trials, the quantiles of
    starts that sometimes hang would be too short.
    """
    env, base = (folded.measured[side, question.row].drawn for side in question.sides)
    return quantiles(env, base, design.confidence, failed=len(paired.env_failed))


def _mean(d: FloatArray, alpha: float, schedule: Schedule) -> Interval:
    if isinstance(schedule, ExpectedLooks):
        return anytime_mean(d, alpha=alpha, expected=schedule.expected)
    return anytime_mean(d, alpha=alpha)
