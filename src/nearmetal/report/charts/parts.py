"""Elements that all charts share: colours, style, axes, bands. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model.record import JsonValue
from ...model.result import Cell
from ...units import scale_of
from ..tables.cells import bounded, margin_text
from ..text import one_line

Spec = dict[str, JsonValue]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours of Okabe and Ito, which colour-blind readers can distinguish. Shapes and dashes differ too."""

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
    """One figure.

    kind: 'points', 'looks', 'absolute', 'attribution', 'ecdf' or 'floor'.
    caption: what is drawn, with unit and n.
    spec: Vega-Lite without size and configuration.
    """

    kind: str
    title: str
    caption: str
    height: int
    spec: Spec


def emulation_sentences(*, emulated: bool, guest: str) -> list[str]:
    """Return the sentences of a caption on emulated nodes and guests; none if nothing is emulated.

    guest: how the guests are emulated.
    """
    sentences = ["Nodes emulated on one machine."] if emulated else []
    return sentences + ([f"Guests emulated ({one_line(guest)})."] if guest else [])


def with_emulation(chart: Chart, *, emulated: bool, guest: str = "") -> Chart:
    """Return the chart with a caption about emulation, if nodes or guests are emulated.

    guest: how the guests are emulated.
    """
    sentences = emulation_sentences(emulated=emulated, guest=guest)
    return replace(chart, caption=" ".join([chart.caption, *sentences])) if sentences else chart


def emulation_of(chart: Chart, cells: Sequence[Cell]) -> Chart:
    """Return the chart with a caption about emulation, if the nodes or guests of any of the cells are
    emulated."""
    guest = next((c.guest for c in cells if c.guest), "")
    return with_emulation(chart, emulated=any(c.emulated for c in cells), guest=guest)


def config(p: Palette) -> Spec:
    """Return the style configuration that all charts share."""
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
    """Return a complete specification of a chart.

    width: in pixels, or 'container'.
    """
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": chart.height,
        "config": config(p),
        **chart.spec,
    }


class OverheadAxis:
    """The overhead axis of one cell: percent, or the ratio of times if that exceeds a factor of three.

    Zero and the margin are drawn if the spread of the blocks then stays visible.
    """

    def __init__(self, cell: Cell) -> None:
        low, high = min(cell.d, default=0.0), max(cell.d, default=0.0)
        self.as_factor = max(abs(low), abs(high)) > math.log(3)
        self.title = "times as long" if self.as_factor else "overhead, %"
        self.zero = 1.0 if self.as_factor else 0.0
        edge = math.log1p(cell.margin)
        self.with_margin = max(low - edge, -edge - high) <= 4 * (high - low)

    def of(self, theta: float) -> float:
        """Return the position of a log ratio on the axis."""
        return short(math.exp(theta) if self.as_factor else math.expm1(theta) * 100)

    def of_share(self, share: float) -> float:
        """Return the position of an overhead, given as a share, on the axis."""
        return 1 + share if self.as_factor else share * 100

    def encoding(self, field: str) -> Spec:
        """Return the encoding of the y axis. It need not begin at zero."""
        scale: Spec = {"zero": False, "nice": True}
        axis: Spec = {"title": self.title, "tickCount": 6, "format": "~r" if self.as_factor else "+~r"}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}

    def margin_sentence(self, cell: Cell) -> str:
        margin = margin_text(cell.margin)
        return (
            f"Grey band: margin {margin}." if self.with_margin else f"The margin {margin} lies far outside."
        )


def bands(cell: Cell, y: OverheadAxis, p: Palette) -> list[JsonValue]:
    layers = margin_band(cell, y, p)
    if bounded(cell):
        layers.append(_band(y, cell.low, cell.high, p.interval))
    if math.isfinite(cell.overhead):
        layers.append(rule(y, y.of_share(cell.overhead), {"color": p.arm, "strokeWidth": 1.5}))
    return layers


def margin_band(cell: Cell, y: OverheadAxis, p: Palette) -> list[JsonValue]:
    """Return the margin as a band and zero overhead as a dashed line; nothing if they are far outside the
    chart."""
    if not y.with_margin:
        return []
    band = _band(y, -cell.margin / (1 + cell.margin), cell.margin, p.margin)
    return [band, rule(y, y.zero, {"color": p.quiet, "strokeDash": [3, 3], "strokeWidth": 1})]


def _band(y: OverheadAxis, low: float, high: float, colour: str) -> Spec:
    """Return a band between two overheads, given as shares."""
    ends: Spec = {"low": y.of_share(low), "high": y.of_share(high)}
    return layer([ends], {"type": "rect", "color": colour}, {"y": y.encoding("low"), "y2": {"field": "high"}})


def rule(y: OverheadAxis, at: float, mark: Spec) -> Spec:
    return layer([{"y": at}], {"type": "rule", **mark}, {"y": y.encoding("y")})


def layer(rows: list[JsonValue], mark: Spec, encoding: Spec) -> Spec:
    """Return one layer of a chart, with its own data."""
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def count_axis(field: str, title: str) -> Spec:
    """Return an axis of block numbers or n: whole numbers, with room at both ends."""
    axis: Spec = {"title": title, "tickMinStep": 1, "grid": False, "format": "d"}
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"zero": False, "nice": False, "padding": 12},
        "axis": axis,
    }


def metric_axis(p: Palette) -> Spec:
    """Return an axis of metric names, one row each, in the order of the data."""
    axis: Spec = {"title": None, "labelColor": p.ink}
    return {"field": "metric", "type": "nominal", "sort": None, "axis": axis}


def tip(field: str, title: str, number: str | None = "d") -> Spec:
    if number is None:
        return {"field": field, "type": "nominal", "title": title}
    return {"field": field, "type": "quantitative", "title": title, "format": number}


def interval_tips(*names: Spec, centre: str) -> list[JsonValue]:
    """Return the tooltip of an estimate: its names, the estimate between the ends of its interval, and n."""
    return [*names, *(tip(k, k, ".3~f") for k in ("low", centre, "high")), tip("n", "n (rounds)")]


def value_scale(low: float, high: float) -> Spec:
    """Return a linear scale, or a logarithmic one if the values span more than a factor of four."""
    return {"type": "log", "nice": False} if low > 0 and high > 4 * low else {"zero": False, "nice": True}


def value_axis(unit: str, scale: Spec) -> Spec:
    log = ", log scale" if scale.get("type") == "log" else ""
    return {"title": f"{unit}{log}", "tickCount": 5, "format": "~g", "grid": not log}


def value_unit(cell: Cell, values: Sequence[float]) -> tuple[float, str]:
    """Return the factor from base units to the axis, and the unit of the axis. The unit suits the largest
    value.
    """
    name, size = scale_of(max(values), cell.unit)
    return 1 / size, one_line(name or cell.metric)


def short(value: float) -> float:
    """Round to six significant digits. A chart cannot show more, and this halves the size of the page."""
    return float(f"{value:.6g}")


def thinned(shown: int, of: int, what: str) -> str:
    return f" Thinned for drawing: {shown:,} of {of:,} {what}; the figures use all." if shown < of else ""


def colours_and_shapes(field: str, names: Sequence[str]) -> tuple[Spec, Spec]:
    """Return encodings that distinguish series by colour and by shape, in one legend. Both have the same
    domain."""
    own = dict.fromkeys(names)
    domain: list[JsonValue] = list(own)
    long = max(map(len, own), default=0) > 12
    both: Spec = {"field": field, "type": "nominal", **({"legend": {"columns": 1}} if long else {})}
    return (
        {**both, "scale": {"domain": domain, "scheme": "tableau10"}},
        {**both, "scale": {"domain": domain}},
    )
