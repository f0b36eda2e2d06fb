"""Charts of a study in parts: the packing curve, all overheads of a part, and bars relative to its baseline.
No drawing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...model.published import PublishedFigure, Quantity
from ...model.record import JsonValue
from ...model.result import Cell
from ...model.series import PER_NODE
from ...model.study import Better
from ..tables.cells import bounded, metric_label
from ..text import one_line
from .parts import (
    Chart,
    Palette,
    Spec,
    colours_and_shapes,
    emulation_of,
    interval_tips,
    layer,
    metric_axis,
    short,
    tip,
)

FACTOR_BEYOND = 2.0
"""If an overhead is above this value, overheads are drawn as ratios of times on a logarithmic axis."""


class Overheads:
    """The axis that the cells of one chart share: percent, or the ratio of times."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.as_factor = max((c.high for c in cells), default=0.0) > FACTOR_BEYOND
        self.title = "times as long, log scale" if self.as_factor else "overhead, %"

    def of(self, share: float) -> float:
        return short(1 + share if self.as_factor else 100 * share)

    def row(self, cell: Cell) -> Spec:
        """Return the estimate and the interval of a cell as positions on the axis."""
        ends = {"low": self.of(cell.low), "value": self.of(cell.overhead), "high": self.of(cell.high)}
        return {**ends, "n": cell.n, "metric": metric_label(cell)}

    def encoding(self, field: str) -> Spec:
        scale: Spec = {"type": "log", "nice": False} if self.as_factor else {"zero": True, "nice": True}
        axis: Spec = {"title": self.title, "tickCount": 6, "format": "~r" if self.as_factor else "+~r"}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}

    def none(self) -> float:
        """Return the position of zero overhead on the axis."""
        return self.of(0.0)


def packing(
    cells: Sequence[Cell], packed: Mapping[str, str], figures: Sequence[PublishedFigure], p: Palette
) -> Chart | None:
    """Return a chart of the overhead by the number of containers on a node, with a mark for each workload.

    packed: '<n> per node', by arm.
    figures: the paper's figures; the chart's caption gives their range.
    """
    shown = [c for c in cells if c.arm in packed and bounded(c)]
    if not shown:
        return None
    y = Overheads(shown)
    rows: list[JsonValue] = [
        {**y.row(c), "each": int(packed[c.arm].removesuffix(PER_NODE)), "workload": one_line(c.workload)}
        for c in shown
    ]
    numbers = sorted({int(word.removesuffix(PER_NODE)) for word in packed.values()})
    order: list[JsonValue] = list(numbers)
    x: Spec = {
        "field": "each",
        "type": "ordinal",
        "scale": {"domain": order, "padding": 0.5},
        "axis": {"title": "containers on each node", "labelAngle": 0},
    }
    colour, shape = colours_and_shapes("workload", [one_line(c.workload) for c in shown])
    offset: Spec = {"field": "workload"}
    tips = interval_tips(tip("metric", "metric", None), tip("each", "containers on a node"), centre="value")
    base: Spec = {"x": x, "xOffset": offset, "color": colour, "tooltip": tips}
    layers: list[JsonValue] = [
        layer(
            rows,
            {"type": "rule", "strokeWidth": 2},
            {**base, "y": y.encoding("low"), "y2": {"field": "high"}},
        ),
        layer(
            rows,
            {"type": "point", "filled": True, "size": 55, "opacity": 1},
            {**base, "y": y.encoding("value"), "shape": shape},
        ),
        _none(y, "y", p),
    ]
    caption = "Overhead against bare nodes with one rank each: the estimate and its interval, n rounds. "
    claim = next((f for f in figures if f.quantity is Quantity.OVERHEAD and f.low < f.high), None)
    if claim is not None:
        caption += f"The paper, {claim.what}: {100 * claim.low:.0f} to {100 * claim.high:.0f} %"
        caption += "." if 8 in numbers else ", more containers on a node than this machine has CPUs for."
    chart = Chart(
        kind="packing",
        title="Packing: the same ranks on fewer nodes",
        caption=caption,
        height=260,
        spec={"layer": layers},
    )
    return emulation_of(chart, shown)


def overheads(cells: Sequence[Cell], name: Callable[[str], str], p: Palette) -> Chart | None:
    """Return a chart of all overheads of a part: a row for each metric, and a mark for each arm.

    Every arm is compared with its first baseline arm.
    name: returns the label of an arm.
    """
    first = _first(cells, bounded)
    if not first:
        return None
    x = Overheads(first)
    rows: list[JsonValue] = [{**x.row(c), "arm": one_line(name(c.arm))} for c in first]
    y = metric_axis(p)
    tips = interval_tips(tip("arm", "environment", None), tip("metric", "metric", None), centre="value")
    colour, shape = colours_and_shapes("arm", [one_line(name(c.arm)) for c in first])
    base: Spec = {"y": y, "yOffset": {"field": "arm"}, "color": colour, "tooltip": tips}
    layers: list[JsonValue] = [
        layer(
            rows,
            {"type": "rule", "strokeWidth": 3},
            {**base, "x": x.encoding("low"), "x2": {"field": "high"}},
        ),
        layer(
            rows,
            {"type": "point", "filled": True, "size": 45, "opacity": 1},
            {**base, "x": x.encoding("value"), "shape": shape},
        ),
        _none(x, "x", p),
    ]
    metrics = len({metric_label(c) for c in first})
    arms = len({c.arm for c in first})
    chart = Chart(
        kind="overheads",
        title="Overheads",
        caption="Each environment against its baseline: the estimate and its interval. Dashed: no overhead.",
        height=max(120, metrics * (14 * arms + 10)),
        spec={"layer": layers},
    )
    return emulation_of(chart, first)


def _first(cells: Iterable[Cell], known: Callable[[Cell], bool]) -> tuple[Cell, ...]:
    """Return the known comparisons of every metric of every arm with its first baseline arm."""
    first: dict[tuple[str, str, str], Cell] = {}
    for c in cells:
        if known(c):
            first.setdefault((c.arm, c.workload, c.metric), c)
    return tuple(first.values())


WIDE = 4.0
"""If a bar is longer than this factor, or shorter than its inverse, bars are drawn on a logarithmic axis."""


def relative(cells: Sequence[Cell], name: Callable[[str], str], p: Palette) -> Chart | None:
    """Return bars of all metrics of a part, divided by the values of the baseline.

    Every arm is compared with its first baseline arm, whose bars have the length 1. On a logarithmic axis all
    bars begin at 1. An interval without ends is not drawn.
    name: returns the label of an arm.
    """
    first = _first(cells, lambda c: c.n > 0 and math.isfinite(c.overhead) and c.overhead > -1)
    if not first:
        return None
    rows = _bars(first, lambda arm: one_line(name(arm)))
    ratios = [_ratio(c, c.overhead) for c in first]
    log = max(ratios) > WIDE or min(ratios) < 1 / WIDE
    scale: Spec = {"type": "log", "nice": False} if log else {"zero": True, "nice": True}
    title = f"relative to the baseline{', log scale' if log else ''}"
    x: Spec = {
        "type": "quantitative",
        "scale": scale,
        "axis": {"title": title, "tickCount": 6, "format": "~r"},
    }
    arms = list(dict.fromkeys(str(r["arm"]) for r in rows))
    colour, _ = colours_and_shapes("arm", arms)
    tips = interval_tips(tip("arm", "environment", None), tip("metric", "metric", None), centre="value")
    base: Spec = {
        "y": metric_axis(p),
        "yOffset": {"field": "arm", "sort": None},
        "color": colour,
        "tooltip": tips,
    }
    begin: Spec = {"x2": {"datum": 1}} if log else {}
    layers: list[JsonValue] = [
        layer(list(rows), {"type": "bar", "opacity": 0.85}, {**base, "x": {"field": "value", **x}, **begin}),
        layer(
            [r for r in rows if "low" in r],
            {"type": "rule", "color": p.ink, "strokeWidth": 1.5},
            {
                **{k: v for k, v in base.items() if k != "color"},
                "x": {"field": "low", **x},
                "x2": {"field": "high"},
            },
        ),
        layer(
            [{"at": 1}], {"type": "rule", "color": p.quiet, "strokeDash": [3, 3]}, {"x": {"field": "at", **x}}
        ),
    ]
    metrics = len({str(r["metric"]) for r in rows})
    chart = Chart(
        kind="relative",
        title="Relative to the baseline",
        caption="Values divided by those of the baseline, which is 1: the estimate and its interval, "
        "n rounds. Less is better where the name ends with ↓, more where it ends with ↑.",
        height=max(120, metrics * (14 * len(arms) + 10)),
        spec={"layer": layers},
    )
    return emulation_of(chart, first)


def _bars(cells: Sequence[Cell], name: Callable[[str], str]) -> list[Spec]:
    """Return a bar for each cell and, before the first cell of each metric, the bar of its baseline."""
    rows: list[Spec] = []
    known: set[str] = set()
    for c in cells:
        metric = f"{metric_label(c)} {'↓' if c.better is Better.LOWER else '↑'}"
        if metric not in known:
            known.add(metric)
            rows.append({"metric": metric, "arm": name(c.baseline), "value": 1.0, "n": c.n})
        ends: Spec = {}
        if bounded(c):
            low, high = sorted((_ratio(c, c.low), _ratio(c, c.high)))
            ends = {"low": short(low), "high": short(high)}
        value = short(_ratio(c, c.overhead))
        rows.append({"metric": metric, "arm": name(c.arm), "value": value, "n": c.n, **ends})
    return rows


def _ratio(cell: Cell, overhead: float) -> float:
    """Return a time-equivalent overhead as the ratio of values of the cell's metric."""
    return 1 + overhead if cell.better is Better.LOWER else 1 / (1 + overhead)


def _none(axis: Overheads, channel: str, p: Palette) -> Spec:
    mark: Spec = {"type": "rule", "color": p.quiet, "strokeDash": [3, 3]}
    return layer([{"at": axis.none()}], mark, {channel: axis.encoding("at")})
