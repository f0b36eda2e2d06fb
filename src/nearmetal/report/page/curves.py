"""Curves: metrics of one workload that differ only by a number in their names, such as a block size or
message size. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...model.record import JsonValue
from ...model.result import Cell, Interval
from ...model.study import Better
from ...units import scale_of, show
from ..charts.parts import PAGE, Chart, Palette, Spec, short, tip, value_axis, value_scale, with_emulation
from ..text import one_line
from .cells import Draw
from .markup import Markup, folded

LEAST_POINTS = 3
BEST = "best"
"""A workload with this metric has a best point on its curve."""
# Not percentiles: p50, p99.
_NAME = re.compile(r"(?P<stem>(?!p[0-9]|.*[-_]p[0-9]).*[^0-9])(?P<at>[0-9]{1,15})")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a curve.

    value: in base units, with its interval.
    """

    side: str
    at: int
    value: Interval


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A metric as a function of a number that has several values in one workload.

    over: name of the number, such as 'nb'.
    points: points of the baseline and of its arms, by number.
    best: whether the curve has a best point.
    """

    workload: str
    over: str
    unit: str
    better: Better
    baseline: str
    points: tuple[Point, ...]
    n: int
    best: bool
    emulated: bool

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
    """Return the curves, in the order of the cells."""
    bests = {(c.workload, c.baseline) for c in cells if c.metric == BEST}
    found: dict[tuple[str, str, str, str], list[tuple[int, Cell]]] = {}
    for cell in cells:
        match = _NAME.fullmatch(cell.metric)
        if match and cell.n:
            key = cell.workload, match["stem"], cell.baseline, cell.unit
            found.setdefault(key, []).append((int(match["at"]), cell))
    return tuple(
        Curve(
            workload=workload,
            over=stem.rstrip("-_"),
            unit=unit,
            better=own[0][1].better,
            baseline=baseline,
            points=_points(own),
            n=min(c.n for _, c in own),
            best=(workload, baseline) in bests,
            emulated=any(c.emulated for _, c in own),
        )
        for (workload, stem, baseline, unit), own in found.items()
        if len({at for at, _ in own}) >= LEAST_POINTS
    )


def sentences(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the sentences of the curves that have a best point."""
    return tuple(words for curve in curves(cells) if (words := curve.sentence()))


def section(cells: Sequence[Cell], draw: Draw) -> Markup:
    """Return the section of the page; empty if there are no curves."""
    drawn = [made for curve in curves(cells) if (made := chart(curve, PAGE)) is not None]
    if not drawn:
        return Markup("")
    return folded("curves", "Curves", *map(draw, drawn))


def _points(cells: Sequence[tuple[int, Cell]]) -> tuple[Point, ...]:
    """Return the points of all arms, and the points of the baseline only once, although every arm is compared
    with it."""
    base = {at: Point(side=c.baseline, at=at, value=c.baseline_value) for at, c in cells}
    own = {(c.arm, at): Point(side=c.arm, at=at, value=c.value) for at, c in cells}
    arms = list(dict.fromkeys(arm for arm, _ in own))
    ordered = sorted(own.values(), key=lambda p: (arms.index(p.side), p.at))
    return (*(base[at] for at in sorted(base)), *ordered)


def chart(curve: Curve, p: Palette) -> Chart | None:
    """Return a chart with one line per side over the number, and the intervals of its points if they are
    known."""
    shown = [point for point in curve.points if math.isfinite(point.value.centre)]
    if not shown:
        return None
    values = [point.value.centre for point in shown]
    name, size = scale_of(max(values), curve.unit)
    rows: list[JsonValue] = []
    for point in shown:
        row: Spec = {"side": one_line(point.side), "at": point.at, "y": short(point.value.centre / size)}
        if math.isfinite(point.value.low) and math.isfinite(point.value.high):
            row |= {"low": short(point.value.low / size), "high": short(point.value.high / size)}
        rows.append(row)
    sides: list[JsonValue] = list(dict.fromkeys(one_line(point.side) for point in shown))
    colour: Spec = {"field": "side", "scale": {"domain": sides, "range": _colours(len(sides), p)}}
    ticks: list[JsonValue] = [*sorted({point.at for point in shown})]
    x: Spec = {
        "field": "at",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "nice": False, "padding": 12},
        "axis": {
            "title": f"{one_line(curve.over)}, log scale",
            "values": ticks,
            "format": "d",
            "grid": False,
        },
    }
    scale = value_scale(min(values) / size, max(values) / size)
    y: Spec = {"type": "quantitative", "scale": scale}
    axis = {**y, "field": "y", "axis": value_axis(one_line(name), scale)}
    tips: list[JsonValue] = [tip("side", "side", None), tip("at", curve.over), tip("y", name, ".4~g")]
    layers: list[JsonValue] = [
        {
            "mark": {
                "type": "line",
                "strokeWidth": 1.8,
                "point": {"filled": True, "size": 36},
                "tooltip": True,
            },
            "encoding": {"x": x, "y": axis, "color": colour, "tooltip": tips},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
    ]
    words = curve.sentence()
    made = Chart(
        kind="curve",
        title=f"{one_line(curve.workload)} over {one_line(curve.over)}",
        caption=f"Medians over rounds in {one_line(name)}, n {curve.n} or more; bars are their intervals."
        + (f" {words}." if words else ""),
        height=220,
        spec={"data": {"values": rows}, "layer": layers},
    )
    return with_emulation(made, emulated=curve.emulated)


def _colours(sides: int, p: Palette) -> list[JsonValue]:
    """Return the colours of the baseline and the arm, then further colours of Okabe and Ito."""
    further = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    more = (further[i % len(further)] for i in range(max(0, sides - 2)))
    return [*(p.base, p.arm)[:sides], *more]
