"""Curves of a metric over a number. The number is part of the metric's name, such as a block or message size,
or a parameter in which workloads differ, such as a dirty rate. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from ...model.result import Cell, Interval
from ...model.study import Better, Study
from ...model.sweep import LEAST_POINTS, numbered
from ...units import show
from ..tables.events.sweeps import SweptMetric, at_text, swept_metrics, title
from ..text import one_line
from .chart import LinesFigure, Panel, emulation_sentences

BEST = "best"
"""Name of a metric. The best points of the curves of a workload with this metric are named."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a curve.

    side: name of the baseline arm or of the arm.
    at: value of the number.
    value: value of the metric in base units, with its interval.
    """

    side: str
    at: int
    value: Interval


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric of one workload as a function of the number in the metric's name.

    over: name of the number, such as 'nb'.
    points: the points of the baseline, then those of each arm, in ascending order of the number.
    cells: the cells with these points.
    best: whether the best point of the curve is named.
    """

    workload: str
    over: str
    unit: str
    better: Better
    baseline: str
    points: tuple[Point, ...]
    cells: tuple[Cell, ...]
    best: bool

    def sentence(self) -> str:
        """Return a sentence about the best points, empty if the curve has none.

        Example: 'hpl over nb: best in native/1x2 at 256 (23.0 GFLOP/s), in lxc/1x2 at 128 (20.7 GFLOP/s)'.
        """
        if not self.best:
            return ""
        words = []
        for side in dict.fromkeys(p.side for p in self.points):
            own = [p for p in self.points if p.side == side and math.isfinite(p.value.centre)]
            if own:
                pick = max if self.better is Better.HIGHER else min
                top = pick(own, key=lambda p: p.value.centre)
                words.append(f"in {side} at {top.at} ({show(top.value.centre, self.unit)})")
        return one_line(f"{self.workload} over {self.over}: best {', '.join(words)}") if words else ""


def curves(cells: Sequence[Cell]) -> tuple[Curve, ...]:
    """Return the curves of metrics with numbers in their names, in the order of the cells."""
    bests = {(c.workload, c.baseline) for c in cells if c.metric == BEST}
    found: dict[tuple[str, str, str, str], list[tuple[int, Cell]]] = {}
    for cell in cells:
        name = numbered(cell.metric)
        if name is not None and cell.n:
            stem, at = name
            found.setdefault((cell.workload, stem, cell.baseline, cell.unit), []).append((at, cell))
    return tuple(
        Curve(
            workload=workload,
            over=stem.rstrip("-_"),
            unit=unit,
            better=own[0][1].better,
            baseline=baseline,
            points=_points(own),
            cells=tuple(c for _, c in own),
            best=(workload, baseline) in bests,
        )
        for (workload, stem, baseline, unit), own in found.items()
        if len({at for at, _ in own}) >= LEAST_POINTS
    )


def sentences(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the sentences of the curves that have a best point."""
    return tuple(words for curve in curves(cells) if (words := curve.sentence()))


def curve_figures(cells: Sequence[Cell]) -> tuple[LinesFigure, ...]:
    """Return a figure of each curve with known values."""
    return tuple(figure for curve in curves(cells) if (figure := figure_of(curve)) is not None)


def _points(cells: Sequence[tuple[int, Cell]]) -> tuple[Point, ...]:
    """Return the points of all arms, and the points of the baseline only once, although every arm is compared
    with it."""
    base = {at: Point(side=c.baseline, at=at, value=c.baseline_value) for at, c in cells}
    own = {(c.arm, at): Point(side=c.arm, at=at, value=c.value) for at, c in cells}
    arms = list(dict.fromkeys(arm for arm, _ in own))
    ordered = sorted(own.values(), key=lambda p: (arms.index(p.side), p.at))
    return (*(base[at] for at in sorted(base)), *ordered)


def figure_of(curve: Curve) -> LinesFigure | None:
    """Return a figure with one line for each environment over the number that varies; None if no value is
    known."""
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for point in curve.points:
        if math.isfinite(point.value.centre):
            lines.setdefault(point.side, []).append((float(point.at), point.value))
    if not lines:
        return None
    panel = Panel(title="", over=curve.over, unit=curve.unit, lines=lines, text=lambda at: f"{at:.0f}")
    return LinesFigure(
        name=f"curve-{curve.workload}-{curve.over}-vs-{curve.baseline}",
        title=f"{one_line(curve.workload)} over {one_line(curve.over)}",
        caption=caption_of(curve.cells, curve.sentence()),
        panels=(panel,),
    )


def swept_figures(study: Study, cells: Sequence[Cell]) -> tuple[LinesFigure, ...]:
    """Return a figure for each metric over each swept key, with a panel for each combination of values of the
    other keys."""
    found = swept_metrics(study, cells)
    groups = groupby(found, key=lambda line: (line.sweep, line.metric, line.key))
    return tuple(_swept(list(lines)) for _, lines in groups)


def _swept(lines: Sequence[SweptMetric]) -> LinesFigure:
    first = lines[0]
    name, metric = one_line(first.sweep.name), one_line(first.metric)
    over = title(first.key)
    names = _short_names([side for line in lines for side in line.points])
    text: Callable[[float], str] = partial(at_text, first.sweep.axes[first.key])
    return LinesFigure(
        name=f"curve-{first.sweep.name}-{first.metric}-{first.key}",
        title=f"{name}: {metric} over {over}",
        caption=caption_of([c for line in lines for c in line.cells]),
        panels=tuple(
            Panel(
                title=line.held,
                over=over,
                unit=line.unit,
                lines={names[side]: points for side, points in line.points.items()},
                text=text,
            )
            for line in lines
        ),
    )


def _short_names(arms: Iterable[str]) -> dict[str, str]:
    """Return a short name for each arm: the name of its environment if all arms have the same placement, else
    its own name."""
    known = dict.fromkeys(arms)
    placements = {arm.partition("/")[2] for arm in known}
    return {arm: arm.partition("/")[0] if len(placements) == 1 else arm for arm in known}


def caption_of(cells: Sequence[Cell], sentence: str = "") -> str:
    """Return the caption of a figure with medians over rounds.

    cells: the cells that the figure shows.
    sentence: further sentence of the caption, without its full stop; '' for none.
    """
    words = [f"Medians over rounds, n {min(c.n for c in cells)} or more; bars are their intervals."]
    words += [f"{sentence}."] if sentence else []
    words += emulation_sentences(cells)
    return " ".join(words)
