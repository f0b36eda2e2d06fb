"""Interprets the verdicts so far for a run that continues: which comparisons are decided, and how far the
others are from a verdict. This module itself does not import numpy."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..model.result import Analysis, Cell, Verdict, VerdictState, theta_of
from ..model.study import Study


def half_width(cell: Cell) -> float:
    """Return the half-width of a cell's primary interval of theta (ln ratio); inf before the first look."""
    if math.isinf(cell.high) or cell.low <= -1:
        return math.inf
    return (math.log1p(cell.high) - math.log1p(cell.low)) / 2


def distance(cell: Cell) -> float:
    """Return how far a cell is from a verdict, in ln ratio; inf before it has an interval.

    For each possible verdict, this is how far an end of the interval lies on the wrong side of the margin;
    for *equivalent*, which limits both ends, the larger of the two distances. The smallest is returned.
    """
    if math.isinf(half_width(cell)):
        return math.inf
    low, high, delta = math.log1p(cell.low), math.log1p(cell.high), math.log1p(cell.margin)
    return max(0.0, min(delta - low, high + delta, max(-delta - low, high - delta)))


def furthest(cells: Iterable[Cell]) -> list[Cell]:
    """Sort cells, the one furthest from a verdict first.

    Cells without an interval are sorted by the distance of their estimate from an end of the margin, nearest
    first.
    """

    def key(cell: Cell) -> tuple[float, float]:
        return -distance(cell), abs(abs(theta_of(cell.overhead)) - math.log1p(cell.margin))

    return sorted(cells, key=key)


def all_cells(analysis: Analysis) -> tuple[Cell, ...]:
    """Return the A/A cells, then those of the comparisons."""
    return (*analysis.noise_floor.cells, *analysis.cells)


def decided(analysis: Analysis) -> bool:
    """Return whether every cell, A/A included, has its verdict.

    Inconsistent cells, and cells whose verdict is withheld because the nodes disagree, count as decided:
    more blocks do not change them. An A/A cell also counts as decided once it can no longer become
    equivalent, even if its difference may be due to chance.
    """
    cells = all_cells(analysis)
    open_ = [c for c in analysis.noise_floor.cells if c.verdict is Verdict.NONE and not _hopeless(c)]
    return bool(cells) and not analysis.undecided and not open_


def _hopeless(cell: Cell) -> bool:
    """Return whether no part of the cell's interval lies within the margin.

    The interval can only narrow, so such a cell can never become equivalent.
    """
    return cell.low > cell.high or cell.low > cell.margin or cell.high < -cell.margin / (1 + cell.margin)


def settled(analysis: Analysis, study: Study) -> dict[str, frozenset[str]]:
    """Return, for each arm, the workloads that later blocks need not run.

    A workload of an arm is settled if every comparison that includes the arm has reached its requested width
    or verdict. A baseline therefore keeps a workload as long as any arm, or its own second run, is undecided
    in it.
    """
    design = study.design
    target = design.target_width
    taking: set[tuple[str, str]] = set()
    open_: set[tuple[str, str]] = set()
    for c in all_cells(analysis):
        sides = {(c.arm, c.workload), (c.baseline, c.workload)}
        taking |= sides
        if c.n < design.min_blocks or half_width(c) > target if target else c.open:
            open_ |= sides
    out: dict[str, set[str]] = {}
    for arm, workload in taking - open_:
        out.setdefault(arm, set()).add(workload)
    return {arm: frozenset(workloads) for arm, workloads in out.items()}


def verdict_state(analysis: Analysis, study: Study) -> VerdictState:
    """Return which comparisons and workloads are decided, for the decision whether and how the run
    continues."""
    design = study.design
    cells = all_cells(analysis)
    finished = ""
    if cells and min(c.n for c in cells) >= design.min_blocks:
        if design.target_width is not None:
            if not any(half_width(c) > design.target_width for c in cells):
                finished = f"every interval is at most ±{100 * design.target_width:.3g} % wide"
        elif decided(analysis):
            finished = "every comparison has its verdict"
    return VerdictState(
        finished=finished,
        unbounded=bool(cells) and all(math.isinf(half_width(c)) for c in cells),
        looked=max((c.looks[-1].n for c in cells if c.looks), default=0),
        settled=settled(analysis, study),
    )
