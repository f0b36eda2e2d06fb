"""Curves over the one number in which workloads of a study differ, such as a message size. No drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model.record import JsonValue
from ...model.result import Cell, Interval
from ...model.study import Study
from ...model.sweep import LEAST_POINTS, sweeps
from ...units import scale_of
from ..text import one_line
from .parts import Chart, Spec, colours_and_shapes, emulation_of, short, tip, value_axis, value_scale

_SIZES = ("bytes", "memory", "working_set", "size", "block")
"""Keys of numbers of bytes."""
# Sizes in bytes as in a study file.
_IN_BYTES = (
    "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? datum.value / 1024 + ' KiB'"
    " : datum.value / 1048576 + ' MiB'"
)


@dataclass(frozen=True, kw_only=True)
class SweptCurve:
    """One metric of workloads that differ in one number.

    name: what the workloads' names have in common, and the metric.
    over: key of the number.
    unit: base unit of the values.
    sides: by arm, the baseline first: the value and its interval by number.
    cells: the comparisons that the values are of.
    """

    name: str
    over: str
    unit: str
    sides: Mapping[str, Mapping[float, Interval]]
    cells: tuple[Cell, ...]


def swept_curves(study: Study, cells: Sequence[Cell]) -> tuple[SweptCurve, ...]:
    """Return a curve for each metric and baseline of the sweeps of a study, if it has enough points."""
    found = []
    for sweep in sweeps(study.workloads):
        at = {name: number for number, name in sweep.points.items()}
        own: dict[tuple[str, str], list[Cell]] = {}
        for c in cells:
            if c.workload in at and c.n:
                own.setdefault((c.metric, c.baseline), []).append(c)
        for (metric, baseline), points in own.items():
            if len({at[c.workload] for c in points}) < LEAST_POINTS:
                continue
            sides: dict[str, dict[float, Interval]] = {baseline: {}}
            for c in points:
                sides[baseline].setdefault(at[c.workload], c.baseline_value)
                sides.setdefault(c.arm, {})[at[c.workload]] = c.value
            name = f"{sweep.name}.{metric}"
            curve = SweptCurve(
                name=name, over=sweep.over, unit=points[0].unit, sides=sides, cells=tuple(points)
            )
            found.append(curve)
    return tuple(found)


def swept_charts(study: Study, cells: Sequence[Cell]) -> list[Chart]:
    """Return a chart of each curve: a line for each arm, and the intervals that are known."""
    return [made for curve in swept_curves(study, cells) if (made := _chart(curve)) is not None]


def _chart(curve: SweptCurve) -> Chart | None:
    values = [v.centre for own in curve.sides.values() for v in own.values() if math.isfinite(v.centre)]
    if not values:
        return None
    name, size = scale_of(max(values), curve.unit)
    rows: list[JsonValue] = []
    for side, own in curve.sides.items():
        for at in sorted(k for k, v in own.items() if math.isfinite(v.centre)):
            row: Spec = {"side": one_line(side), "at": at, "y": short(own[at].centre / size)}
            if math.isfinite(own[at].low) and math.isfinite(own[at].high):
                row |= {"low": short(own[at].low / size), "high": short(own[at].high / size)}
            rows.append(row)
    colour, shape = colours_and_shapes("side", [one_line(side) for side in curve.sides])
    ticks: list[JsonValue] = [*sorted({at for own in curve.sides.values() for at in own})]
    labels: Spec = {"labelExpr": _IN_BYTES} if curve.over in _SIZES else {"format": "~s"}
    axis: Spec = {"title": f"{one_line(curve.over)}, log scale", "values": ticks, "grid": False, **labels}
    x: Spec = {
        "field": "at",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "nice": False, "padding": 12},
        "axis": axis,
    }
    scale = value_scale(min(values) / size, max(values) / size)
    y: Spec = {"type": "quantitative", "scale": scale}
    tips: list[JsonValue] = [tip("side", "side", None), tip("at", curve.over), tip("y", name, ".4~g")]
    line: Spec = {
        "mark": {"type": "line", "strokeWidth": 1.8, "point": {"filled": True, "size": 36}, "tooltip": True},
        "encoding": {
            "x": x,
            "y": {**y, "field": "y", "axis": value_axis(one_line(name), scale)},
            "color": colour,
            "shape": shape,
            "tooltip": tips,
        },
    }
    ends: Spec = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 1.5},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
    }
    chart = Chart(
        kind="swept",
        title=f"{one_line(curve.name)} over {one_line(curve.over)}",
        caption=f"Medians over rounds in {one_line(name)}, n {min(c.n for c in curve.cells)} or more; "
        "bars are their intervals.",
        height=240,
        spec={"data": {"values": rows}, "layer": [line, ends]},
    )
    return emulation_of(chart, curve.cells)
