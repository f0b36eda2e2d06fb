"""One comparison of one metric: everything a table row and its detail view show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from ..model.plan import ExpectedLooks, Schedule
from ..model.result import Cell, Interval, Part, Quantiles, Verdict
from ..model.study import Arm, Design
from .attribution import measured_parts
from .companions import discoveries, evidence, slice_spread, totals
from .fold import FloatArray, Folded, Paired, RowName, Side, pair, row_medians
from .looks import Carried, least_blocks, look_and_carry
from .mean_interval import anytime_mean
from .multiplicity import holm, smallest_alpha
from .quantiles import median_interval, quantiles
from .sign_interval import sign_interval
from .verdict import blocks_needed, judge, reason, smallest_material


class QuantilesOf(Enum):
    """What quantiles are taken of: every value, or one value of each block."""

    VALUES = auto()
    BLOCKS = auto()


@dataclass(frozen=True, kw_only=True)
class Question:
    """One comparison of one row. aa: the baseline against its own second run; alpha: what this cell may
    spend; quantiles: None = none are taken."""

    arm: Arm
    baseline: Arm
    row: RowName
    aa: bool
    alpha: float
    exploratory: bool
    quantiles: QuantilesOf | None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Environment and baseline. The first run of the baseline, A1, stands on the baseline's side
        everywhere."""
        return (self.arm.name, self.aa), (self.baseline.name, False)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A cell, its smallest alpha (None without a look) and its measured parts (None where there are none)."""

    cell: Cell
    p: float | None
    parts: tuple[tuple[Part, ...], Interval] | None


def answer(
    question: Question,
    folded: Folded,
    design: Design,
    *,
    schedule: Schedule,
    block_seconds: float,
    detail: bool,
) -> Answer | None:
    """The cell of a question; None where no block has the row on both sides.

    Without detail (between blocks of a run) sign, mean and difference have infinite ends, baseline_value and
    value too, and p, quantiles and parts are left out; n, interval, verdict, reason and need are the same.
    """
    env, base = question.sides
    paired = pair(folded, env, base, question.row)
    if paired is None:
        return None
    alpha, n = question.alpha, int(paired.d.size)
    numbers = paired.blocks.tolist()
    carried = look_and_carry(paired.d, schedule=schedule, alpha=alpha, numbers=numbers)
    least = least_blocks(schedule, design.min_blocks)
    cell = _plain(question, folded, design, paired, carried, least=least, block_seconds=block_seconds)
    if not detail:
        return Answer(cell=cell, p=None, parts=None)
    series = folded.series
    parts = measured_parts(
        paired, series[env, question.row], series[base, question.row], schedule=schedule, alpha=alpha
    )
    difference = look_and_carry(
        _difference(folded, question, paired), schedule=schedule, alpha=alpha, numbers=numbers
    )
    cell = replace(
        cell,
        baseline_value=median_interval(paired.base_values, design.confidence),
        value=median_interval(paired.env_values, design.confidence),
        difference=difference.interval,
        sign=sign_interval(paired.d, alpha),
        mean=_mean(paired.d, alpha, schedule),
        quantiles=_quantiles(question, folded, paired, design.confidence),
        total=totals(paired, cell.better, design.confidence),
        spread=slice_spread(series[env, question.row], series[base, question.row], paired, block_seconds),
        e=evidence(paired.d),
    )
    p = None
    if n >= least:
        p = smallest_alpha(
            paired.d, schedule=schedule, margin=design.margin, verdict=cell.verdict, numbers=numbers
        )
    return Answer(cell=cell, p=p, parts=parts)


def _plain(
    question: Question,
    folded: Folded,
    design: Design,
    paired: Paired,
    carried: Carried,
    *,
    least: int,
    block_seconds: float,
) -> Cell:
    n, low, high = int(paired.d.size), carried.low, carried.high
    margin = design.margin
    verdict = judge(low, high, n=n, margin=margin, min_blocks=least)
    needed = None
    if verdict is Verdict.NONE:
        needed = blocks_needed(carried, n=n, margin=margin, min_blocks=least)
    base = folded.series[question.sides[1], question.row]
    sides = question.arm.environment, question.baseline.environment
    guest = sides[0].emulation or sides[1].emulation
    return Cell(
        arm=question.arm.name,
        environment=question.arm.environment.name,
        placement=question.arm.placement.name,
        attachment=question.arm.environment.attachment.value,
        emulated=question.arm.placement.emulated or question.baseline.placement.emulated,
        guest=guest,
        guest_of=tuple(dict.fromkeys(e.name for e in sides if guest and e.emulation == guest)),
        baseline=question.baseline.name,
        workload=question.row[0],
        metric=question.row[1],
        unit=base.unit,
        better=base.better,
        n=n,
        failed=sum(paired.failures.values()),
        baseline_value=_open(float(np.median(paired.base_values))),
        value=_open(float(np.median(paired.env_values))),
        overhead=_share(carried.centre),
        low=_share(low),
        high=_share(high),
        margin=margin,
        confidence=1 - question.alpha,
        exploratory=question.exploratory,
        verdict=verdict,
        reason=reason(verdict, carried, n=n, margin=margin, min_blocks=least, needed=needed),
        smallest_material=smallest_material(low, high, margin),
        blocks_needed=needed,
        seconds_needed=needed * block_seconds if needed is not None and block_seconds > 0 else None,
        difference=_open(float(np.median(paired.env_values - paired.base_values))),
        sign=_open(float(np.median(paired.d))),
        mean=_open(float(np.mean(paired.d))),
        p_holm=None,
        looks=carried.looks,
        blocks=tuple(paired.blocks.tolist()),
        d=tuple(paired.d.tolist()),
        baseline_values=tuple(paired.base_values.tolist()),
        values=tuple(paired.env_values.tolist()),
        quantiles=None,
        attribution=None,
    )


def with_holm(cells: tuple[Cell, ...], p: Mapping[str, float | None]) -> tuple[Cell, ...]:
    """Holm's column, within the named cells of a confirmatory study and, apart, within the exploratory ones.

    A cell without a p value (too few blocks, inconsistent) counts in its family as 1 and shows none."""
    out = {c.key: c for c in cells}
    for exploratory in (False, True):
        family = [c for c in cells if c.exploratory is exploratory]
        known = [p[c.key] for c in family]
        column = holm([1.0 if x is None else x for x in known])
        for cell, own, adjusted in zip(family, known, column, strict=True):
            out[cell.key] = replace(cell, p_holm=None if own is None else adjusted)
    return tuple(out[c.key] for c in cells)


def with_discoveries(cells: tuple[Cell, ...], alpha: float) -> tuple[Cell, ...]:
    """Which comparisons e-BH counts as differences, among all of the study."""
    told = discoveries([c.e or 0.0 for c in cells], alpha)
    return tuple(replace(c, discovered=yes) for c, yes in zip(cells, told, strict=True))


def _difference(folded: Folded, question: Question, paired: Paired) -> FloatArray:
    """env - base by block in base units: median over paired slices, else difference of the instances'
    medians."""
    env, base = (folded.series[side, question.row] for side in question.sides)
    out = paired.env_values - paired.base_values
    together = paired.together
    if bool(np.any(together)):
        width = min(env.values.shape[1], base.values.shape[1])
        e, b = paired.env_rows[together], paired.base_rows[together]
        out[together] = row_medians(env.values[e, :width] - base.values[b, :width], env.lengths[e])
    return out


def _quantiles(question: Question, folded: Folded, paired: Paired, confidence: float) -> Quantiles | None:
    """Of this arm, as the question wants them."""
    if question.quantiles is None:
        return None
    if question.quantiles is QuantilesOf.BLOCKS:
        return quantiles(paired.env_values, confidence)
    series = folded.series[question.sides[0], question.row]
    inside = np.arange(series.values.shape[1]) < series.lengths[:, None]
    return quantiles(series.values[inside], confidence)


def _mean(d: FloatArray, alpha: float, schedule: Schedule) -> Interval:
    if isinstance(schedule, ExpectedLooks):
        return anytime_mean(d, alpha=alpha, expected=schedule.expected)
    return anytime_mean(d, alpha=alpha)


def _open(centre: float) -> Interval:
    return Interval(centre=centre, low=-math.inf, high=math.inf)


def _share(theta: float) -> float:
    """exp(theta) - 1; infinite where the factor is beyond what a float holds."""
    return math.expm1(theta) if theta < 709 else math.inf
