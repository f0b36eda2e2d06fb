"""The decisions between two blocks of a run: which comparisons are decided, and whether to stop. This module
does not import numpy itself."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.result import Analysis, Cell, Verdict
from ..model.study import Study


def half_width(cell: Cell) -> float:
    """Return the half-width of a cell's primary interval of theta (ln ratio); inf before the first look."""
    if math.isinf(cell.high) or cell.low <= -1:
        return math.inf
    return (math.log1p(cell.high) - math.log1p(cell.low)) / 2


def distance(cell: Cell) -> float:
    """Return how far a cell is from a verdict, in ln ratio; inf before it has an interval.

    For each possible verdict, this is the length by which the interval reaches across the end of the margin.
    The smallest of these lengths is returned.
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
        theta = math.log1p(cell.overhead) if -1 < cell.overhead < math.inf else math.inf
        return -distance(cell), abs(abs(theta) - math.log1p(cell.margin))

    return sorted(cells, key=key)


def all_cells(analysis: Analysis) -> tuple[Cell, ...]:
    """Return the A/A cells, then those of the comparisons."""
    return (*analysis.noise_floor.cells, *analysis.cells)


def decided(analysis: Analysis) -> bool:
    """Whether every cell, A/A included, has its verdict.

    An inconsistent cell counts as decided, because more blocks do not change it. An A/A cell also counts as
    decided if it can no longer become equivalent, even if its difference may be chance.
    """
    cells = all_cells(analysis)
    open_ = [c for c in analysis.noise_floor.cells if c.verdict is Verdict.NONE and not _hopeless(c)]
    return bool(cells) and not analysis.undecided and not open_


def _hopeless(cell: Cell) -> bool:
    """Whether no part of the cell's interval lies within the margin. The interval only ever narrows, so the
    cell can then never become equivalent."""
    return cell.low > cell.high or cell.low > cell.margin or cell.high < -cell.margin / (1 + cell.margin)


def wide_cells(analysis: Analysis, target: float) -> tuple[Cell, ...]:
    """Return the cells whose half-width of theta still exceeds the target."""
    return tuple(c for c in all_cells(analysis) if half_width(c) > target)


def settled(analysis: Analysis, study: Study) -> dict[str, frozenset[str]]:
    """Return by arm the workloads that later blocks need not run.

    A workload of an arm is settled if every comparison with the arm on either side has reached the wanted
    width or verdict. A baseline therefore keeps a workload as long as any arm, or its own second run, is
    undecided in it.
    """
    design = study.design
    target = design.target_width
    taking: set[tuple[str, str]] = set()
    open_: set[tuple[str, str]] = set()
    for c in all_cells(analysis):
        sides = {(c.arm, c.workload), (c.baseline, c.workload)}
        taking |= sides
        if c.n < design.min_blocks or half_width(c) > target if target else c.verdict is Verdict.NONE:
            open_ |= sides
    out: dict[str, set[str]] = {}
    for arm, workload in taking - open_:
        out.setdefault(arm, set()).add(workload)
    return {arm: frozenset(workloads) for arm, workloads in out.items()}


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The decision to start no further block.

    reason: why, in words.
    planned: whether a limit that was set beforehand ended the run, and not the measured values. A closing
        look may then be taken.
    """

    reason: str
    planned: bool


def should_stop(
    analysis: Analysis,
    study: Study,
    *,
    blocks: int,
    elapsed: float,
    block_seconds: float,
    overrun: bool = False,
    next_look: int = 0,
) -> Stop | None:
    """Return why to stop, or None to go on.

    A run stops when all intervals have the target width, if the study sets one, or else when all cells have
    a verdict. It also stops at max_blocks, and when the next block would end after max_time. A p value never
    stops a run.

    blocks: number of blocks done so far; the analysis may lack the last one.
    elapsed: seconds of the run so far.
    block_seconds: expected duration of the next block.
    overrun: whether a run whose time is used up may go on until next_look.
    next_look: number of blocks at the next look.
    """
    design = study.design
    cells = all_cells(analysis)
    if cells and min(c.n for c in cells) >= design.min_blocks:
        if design.target_width is not None:
            if not wide_cells(analysis, design.target_width):
                reason = f"every interval is at most ±{100 * design.target_width:.3g} % wide"
                return Stop(reason=reason, planned=False)
        elif decided(analysis):
            return Stop(reason="every comparison has its verdict", planned=False)
    if blocks >= design.max_blocks:
        done = "1 round is done" if design.max_blocks == 1 else f"{design.max_blocks} rounds are done"
        unbounded = bool(cells) and all(math.isinf(half_width(c)) for c in cells)
        return Stop(reason=f"{done}, too few for an interval" if unbounded else done, planned=True)
    if design.max_time is not None and elapsed + block_seconds > design.max_time:
        # With overrun the last look was either just taken (the next one is 1.5 times as far) or lies ahead.
        if overrun and blocks < next_look and not _just_looked(analysis, blocks):
            return None
        return Stop(reason=design.time_is_up, planned=True)
    return None


def _just_looked(analysis: Analysis, blocks: int) -> bool:
    """Whether the last look at some cell was after the last of all blocks."""
    return any(c.looks and c.looks[-1].n == blocks for c in all_cells(analysis))
