"""The figures as Vega-Lite specifications: one grammar for the page, SVG, PNG and PDF. Pure; draws nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.record import JsonValue
from ..model.result import Cell, Interval, NoiseFloor
from ..units import scale_of
from .cells_table import bounded, margin_text, metric_label
from .seen import RecordIndex
from .text import one_line, thin

Spec = dict[str, JsonValue]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
MOST_POINTS = 2000


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours of Okabe and Ito, told apart by the colour-blind; shapes and dashes say the same again."""

    ink: str
    quiet: str
    grid: str
    arm: str
    base: str
    margin: str
    interval: str
    font: str


# CSS variables, so that the page changes between light, dark and print without drawing again.
PAGE = Palette(
    ink="var(--ink)",
    quiet="var(--quiet)",
    grid="var(--line)",
    arm="var(--arm)",
    base="var(--base)",
    margin="var(--margin)",
    interval="var(--interval)",
    font="system-ui, sans-serif",
)
FILE = Palette(
    ink="#1a1a1a",
    quiet="#555555",
    grid="#dddddd",
    arm="#d55e00",
    base="#0072b2",
    margin="#00000012",
    interval="#d55e0030",
    font="Liberation Sans, Arial, sans-serif",
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """kind: 'points', 'looks', 'absolute', 'attribution', 'ecdf' or 'floor'; caption: what is drawn, with unit
    and n; spec: Vega-Lite without size and configuration."""

    kind: str
    title: str
    caption: str
    height: int
    spec: Spec


def config(p: Palette) -> Spec:
    """The look that all charts share."""
    return {
        "background": "transparent",
        "font": p.font,
        "view": {"stroke": None},
        "axis": {
            "labelColor": p.quiet,
            "titleColor": p.quiet,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "gridColor": p.grid,
            "domainColor": p.grid,
            "tickColor": p.grid,
            "labelLimit": 220,
        },
        "legend": {
            "labelColor": p.ink,
            "labelFontSize": 11,
            "title": None,
            "orient": "top",
            "symbolStrokeWidth": 1.5,
            "labelLimit": 320,
        },
    }


def finished(chart: Chart, p: Palette, width: int | str) -> Spec:
    """A specification that stands alone. width: pixels, or 'container'."""
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": chart.height,
        "config": config(p),
        **chart.spec,
    }


def charts_of(cell: Cell, records: RecordIndex, p: Palette) -> tuple[Chart, ...]:
    """Every chart that the figures of a cell carry, in the order in which the page shows them."""
    made = (points(cell, p), looks(cell, p), absolute(cell, records, p), attribution(cell, p), ecdf(cell, p))
    return tuple(c for c in made if c is not None)


def points(cell: Cell, p: Palette) -> Chart | None:
    """Every block's overhead with margin band, interval band and the estimate."""
    pairs = list(zip(cell.blocks, cell.d, strict=True))
    if not pairs:
        return None
    order = sorted(range(len(pairs)), key=lambda i: pairs[i][1])
    shown = thin(pairs, MOST_POINTS, keep=(order[0], order[-1]))
    y = _Overhead(cell)
    rows: list[JsonValue] = [{"block": b, "y": y.of(d)} for b, d in shown]
    layers: list[JsonValue] = [
        *_bands(cell, y, p),
        {
            "data": {"values": rows},
            "mark": {"type": "point", "filled": False, "size": 26, "color": p.arm, "tooltip": True},
            "encoding": {
                "x": _x("block", "block"),
                "y": y.encoding("y"),
                "tooltip": [_tip("block", "block"), _tip("y", y.title, ".3~f")],
            },
        },
    ]
    caption = (
        f"Overhead by block, n {cell.n}. A circle is one block's fold; the line is the estimate, the coloured "
        f"band its {cell.confidence * 100:.3g} % interval, the grey band the margin {margin_text(cell.margin)}."
        + _thinned(len(shown), len(pairs), "blocks, the lowest and the highest among them")
    )
    return Chart(kind="points", title="Overhead by block", caption=caption, height=200, spec={"layer": layers})


def looks(cell: Cell, p: Palette) -> Chart | None:
    """The running interval at each look."""
    finite = [k for k in cell.looks if math.isfinite(k.low) and math.isfinite(k.high)]
    if not finite:
        return None
    y = _Overhead(cell)
    shown = thin(finite, 400)
    rows: list[JsonValue] = [{"n": k.n, "low": y.of(k.low), "high": y.of(k.high)} for k in shown]
    tips: list[JsonValue] = [
        _tip("n", "n (blocks)"),
        _tip("low", "low", ".3~f"),
        _tip("high", "high", ".3~f"),
    ]
    bar: Spec = {
        "data": {"values": rows},
        "mark": {"type": "rule", "color": p.arm, "strokeWidth": 3, "tooltip": True},
        "encoding": {
            "x": _x("n", "n (blocks)"),
            "y": y.encoding("low"),
            "y2": {"field": "high"},
            "tooltip": tips,
        },
    }
    ends: list[JsonValue] = [
        {
            "data": {"values": rows},
            "mark": {"type": "tick", "color": p.arm, "thickness": 2, "size": 12},
            "encoding": {"x": _x("n", "n (blocks)"), "y": y.encoding(end)},
        }
        for end in ("low", "high")
    ]
    layers: list[JsonValue] = [_margin_band(cell, y, p), _zero(y, p), bar, *ends]
    caption = (
        f"The interval as it narrowed: one bar per look at n blocks, {cell.confidence * 100:.3g} % in all. "
        f"Grey band: margin {margin_text(cell.margin)}." + _thinned(len(shown), len(finite), "looks")
    )
    return Chart(kind="looks", title="The interval as it narrowed", caption=caption, height=160, spec={"layer": layers})


def absolute(cell: Cell, records: RecordIndex, p: Palette) -> Chart | None:
    """Absolute values by block of both sides: raw slices small, the fold of each block large."""
    triples = list(zip(cell.blocks, cell.baseline_values, cell.values, strict=True))
    if not triples:
        return None
    factor, unit = _axis(cell, [cell.baseline_value.centre, cell.value.centre])
    raw_per_block = max(1, len(records.raw(cell.arm, cell.blocks[0], cell)))
    shown = thin(triples, max(1, MOST_POINTS // (2 * (1 + raw_per_block))))
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    folds: list[JsonValue] = []
    raws: list[JsonValue] = []
    for block, b, v in shown:
        for name, arm_name, value in ((base, cell.baseline, b), (arm, cell.arm, v)):
            folds.append({"block": block, "y": value * factor, "side": name})
            raw = records.raw(arm_name, block, cell)
            if len(raw) > 1:
                raws.extend({"block": block, "y": x * factor, "side": name} for x in raw)
    domain: list[JsonValue] = [base, arm]
    colour: Spec = {"field": "side", "scale": {"domain": domain, "range": [p.base, p.arm]}}
    shape: Spec = {"field": "side", "scale": {"domain": domain, "range": ["circle", "triangle-up"]}}
    low, high = (min(x["y"] for x in _rows(folds + raws)), max(x["y"] for x in _rows(folds + raws)))
    scale = _value_scale(low, high)
    y: Spec = {"field": "y", "type": "quantitative", "scale": scale, "axis": _value_axis(unit, scale)}
    x = _x("block", "block")
    tips: list[JsonValue] = [_tip("side", "side", None), _tip("block", "block"), _tip("y", unit, ".4~g")]
    layers: list[JsonValue] = []
    if raws:
        layers.append(
            {
                "data": {"values": raws},
                "mark": {"type": "circle", "size": 5, "opacity": 0.45},
                "encoding": {"x": x, "y": y, "color": colour},
            }
        )
    layers.append(
        {
            "data": {"values": folds},
            "mark": {"type": "point", "filled": False, "size": 34, "tooltip": True},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tips},
        }
    )
    caption = (
        f"Absolute values in {unit}, n {cell.n}: the fold of each block"
        + (" (large) and its raw slices (small)." if raws else ".")
        + _thinned(len(shown), len(triples), "blocks")
    )
    return Chart(kind="absolute", title="Absolute values", caption=caption, height=200, spec={"layer": layers})


def attribution(cell: Cell, p: Palette) -> Chart | None:
    """Shares of the baseline's time by cause, with the residual that nothing explains."""
    a = cell.attribution
    if a is None or not a.parts:
        return None
    parts = [(one_line(part.name), part.overhead) for part in a.parts]
    if a.residual is not None:
        parts.append(("residual (not explained)", a.residual))
    rows: list[JsonValue] = [_part(name, i) for name, i in parts]
    order: list[JsonValue] = [name for name, _ in parts]
    y: Spec = {"field": "part", "type": "nominal", "sort": order, "axis": {"title": None, "labelColor": p.ink}}
    title = "share of the baseline's time, %"
    x: Spec = {"field": "x", "type": "quantitative", "axis": {"title": title, "tickCount": 6}}
    bars: Spec = {
        "mark": {"type": "bar", "color": p.interval, "stroke": p.arm, "strokeWidth": 1, "tooltip": True},
        "encoding": {
            "y": y,
            "x": x,
            "tooltip": [_tip("part", "part", None), *(_tip(k, k, ".3~f") for k in ("x", "low", "high"))],
        },
    }
    whiskers: Spec = {
        "mark": {"type": "rule", "color": p.ink, "strokeWidth": 1.5},
        "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
    }
    return Chart(
        kind="attribution",
        title="Where the time went",
        caption=f"Bars: share of the baseline's time, n {cell.n}; lines: {cell.confidence * 100:.3g} % intervals. "
        "The residual is what the measured phases do not explain.",
        height=34 * len(rows) + 10,
        spec={"data": {"values": rows}, "layer": [bars, whiskers]},
    )


def ecdf(cell: Cell, p: Palette) -> Chart | None:
    """Both sides' distribution functions, and order-statistic intervals of the arm's quantiles."""
    q = cell.quantiles
    if q is None or not cell.values:
        return None
    factor, unit = _axis(cell, [cell.baseline_value.centre, cell.value.centre])
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    rows: list[JsonValue] = []
    for name, values in ((base, cell.baseline_values), (arm, cell.values)):
        ranked = [(v * factor, (i + 1) / len(values)) for i, v in enumerate(sorted(values))]
        rows.append({"side": name, "x": ranked[0][0], "share": 0.0})
        rows.extend({"side": name, "x": v, "share": f} for v, f in thin(ranked, 500))
    known = [(s, i) for s, i in ((50, q.p50), (90, q.p90), (95, q.p95), (99, q.p99)) if i is not None]
    bars: list[JsonValue] = [
        {"q": f"p{s}", "share": s / 100, "low": i.low * factor, "x": i.centre * factor, "high": i.high * factor}
        for s, i in known
    ]
    domain: list[JsonValue] = [base, arm]
    side: Spec = {"field": "side", "scale": {"domain": domain, "range": [p.base, p.arm]}}
    dash: Spec = {"field": "side", "scale": {"domain": domain, "range": [[5, 3], [1, 0]]}}
    y: Spec = {
        "field": "share",
        "type": "quantitative",
        "axis": {"title": "share of starts", "format": ".0%", "tickCount": 5},
    }
    xs = [r["x"] for r in _rows(rows)]
    scale = _value_scale(min(xs), max(xs))
    x: Spec = {"field": "x", "type": "quantitative", "scale": scale, "axis": _value_axis(unit, scale)}
    layers: list[JsonValue] = [
        {
            "data": {"values": rows},
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
            "encoding": {"x": x, "y": y, "color": side, "strokeDash": dash, "order": {"field": "share"}},
        },
        {
            "data": {"values": bars},
            "mark": {"type": "rule", "color": p.ink, "strokeWidth": 1.5},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
        },
        {
            "data": {"values": bars},
            "mark": {"type": "point", "shape": "diamond", "filled": True, "size": 60, "color": p.ink, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "tooltip": [_tip("q", "quantile", None), *(_tip(k, k, ".4~g") for k in ("x", "low", "high"))],
            },
        },
    ]
    missing = [f"p{s}" for s, i in ((50, q.p50), (90, q.p90), (95, q.p95), (99, q.p99)) if i is None]
    caption = f"Share of starts that took at most so long, in {unit}, n {q.n}."
    caption += " Diamonds: quantiles of the arm with order-statistic intervals." if known else ""
    caption += f" Not estimable at this n: {', '.join(missing)}." if missing else ""
    return Chart(kind="ecdf", title="Distribution", caption=caption, height=200, spec={"layer": layers})


def floor(noise: NoiseFloor, p: Palette) -> Chart | None:
    """The baseline against itself, one interval per metric, with the margin as a band."""
    cells = [c for c in noise.cells if bounded(c)]
    if not cells:
        return None
    rows: list[JsonValue] = [
        {"metric": metric_label(c), "low": c.low * 100, "x": c.overhead * 100, "high": c.high * 100, "n": c.n}
        for c in cells
    ]
    margin = min(c.margin for c in cells)
    band: Spec = {
        "data": {"values": [{"low": -margin / (1 + margin) * 100, "high": margin * 100}]},
        "mark": {"type": "rect", "color": p.margin},
        "encoding": {
            "x": {"field": "low", "type": "quantitative", "axis": {"title": "baseline against itself, %"}},
            "x2": {"field": "high"},
        },
    }
    y: Spec = {"field": "metric", "type": "nominal", "sort": None, "axis": {"title": None, "labelColor": p.ink}}
    tips: list[JsonValue] = [
        _tip("metric", "metric", None),
        *(_tip(k, k, ".3~f") for k in ("low", "x", "high")),
        _tip("n", "n (blocks)"),
    ]
    interval: Spec = {
        "data": {"values": rows},
        "mark": {"type": "rule", "color": p.base, "strokeWidth": 3},
        "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "tooltip": tips},
    }
    centre: Spec = {
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 40, "color": p.base, "opacity": 1},
        "encoding": {"y": y, "x": {"field": "x", "type": "quantitative"}, "tooltip": tips},
    }
    return Chart(
        kind="floor",
        title="Noise floor",
        caption=f"The baseline against itself: {cells[0].confidence * 100:.3g} % interval of each metric, "
        f"n up to {max(c.n for c in cells)} blocks. Grey band: margin {margin_text(margin)}.",
        height=24 * len(rows) + 10,
        spec={"layer": [band, interval, centre]},
    )


class _Overhead:
    """The overhead axis of one cell: percent, or the ratio of times on a log scale beyond +100 %."""

    def __init__(self, cell: Cell) -> None:
        largest = max((abs(x) for x in cell.d), default=0.0)
        self.as_factor = largest > math.log(3)
        self.title = "times as long (log scale)" if self.as_factor else "overhead, %"
        self.zero = 1.0 if self.as_factor else 0.0

    def of(self, theta: float) -> float:
        """Position of a log ratio."""
        return math.exp(theta) if self.as_factor else math.expm1(theta) * 100

    def of_share(self, share: float) -> float:
        """Position of an overhead given as a share."""
        return 1 + share if self.as_factor else share * 100

    def encoding(self, field: str) -> Spec:
        """y, never clipped to a baseline of its own."""
        scale: Spec = {"type": "log", "nice": False} if self.as_factor else {"zero": False, "nice": True}
        axis: Spec = {"title": self.title, "tickCount": 6, "format": "~g" if self.as_factor else "+~g"}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _bands(cell: Cell, y: _Overhead, p: Palette) -> list[JsonValue]:
    layers: list[JsonValue] = [_margin_band(cell, y, p)]
    if bounded(cell):
        ends: Spec = {"low": y.of_share(cell.low), "high": y.of_share(cell.high)}
        layers.append(
            {
                "data": {"values": [ends]},
                "mark": {"type": "rect", "color": p.interval},
                "encoding": {"y": y.encoding("low"), "y2": {"field": "high"}},
            }
        )
    layers.append(_zero(y, p))
    if math.isfinite(cell.overhead):
        layers.append(_rule(y, y.of_share(cell.overhead), {"color": p.arm, "strokeWidth": 1.5}))
    return layers


def _margin_band(cell: Cell, y: _Overhead, p: Palette) -> Spec:
    ends: Spec = {"low": y.of_share(-cell.margin / (1 + cell.margin)), "high": y.of_share(cell.margin)}
    return {
        "data": {"values": [ends]},
        "mark": {"type": "rect", "color": p.margin},
        "encoding": {"y": y.encoding("low"), "y2": {"field": "high"}},
    }


def _zero(y: _Overhead, p: Palette) -> Spec:
    return _rule(y, y.zero, {"color": p.quiet, "strokeDash": [3, 3], "strokeWidth": 1})


def _rule(y: _Overhead, at: float, mark: Spec) -> Spec:
    return {
        "data": {"values": [{"y": at}]},
        "mark": {"type": "rule", **mark},
        "encoding": {"y": y.encoding("y")},
    }


def _x(field: str, title: str) -> Spec:
    """Block numbers and n: whole numbers, room at both ends."""
    axis: Spec = {"title": title, "tickMinStep": 1, "grid": False, "format": "d"}
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"zero": False, "nice": False, "padding": 12},
        "axis": axis,
    }


def _tip(field: str, title: str, number: str | None = "d") -> Spec:
    if number is None:
        return {"field": field, "type": "nominal", "title": title}
    return {"field": field, "type": "quantitative", "title": title, "format": number}


def _value_scale(low: float, high: float) -> Spec:
    """Linear, or logarithmic where the values span more than a factor of four."""
    return {"type": "log", "nice": False} if 0 < low and high > 4 * low else {"zero": False, "nice": True}


def _value_axis(unit: str, scale: Spec) -> Spec:
    log = ", log scale" if scale.get("type") == "log" else ""
    return {"title": f"{unit}{log}", "tickCount": 5, "format": "~g"}


def _axis(cell: Cell, values: Sequence[float]) -> tuple[float, str]:
    """Factor from base units to the axis, and the axis' unit: that in which the largest value is shown."""
    name, size = scale_of(max(values), cell.unit)
    return 1 / size, name or cell.metric


def _part(name: str, i: Interval) -> Spec:
    ends = {k: v * 100 if math.isfinite(v) else None for k, v in (("low", i.low), ("high", i.high))}
    return {"part": name, "x": i.centre * 100, **ends}


def _rows(items: list[JsonValue]) -> list[dict[str, float]]:
    return [{k: v for k, v in r.items() if isinstance(v, float)} for r in items if isinstance(r, dict)]


def _thinned(shown: int, of: int, what: str) -> str:
    return f" Thinned for drawing: {shown:,} of {of:,} {what}; the figures use all." if shown < of else ""
