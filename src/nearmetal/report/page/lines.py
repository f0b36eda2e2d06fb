"""Lines over a number, such as a block size or a dirty rate, as SVG without scripts. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...model.result import Interval
from ...units import scale_of, show
from ..charts.chart import PAGE, Palette
from ..text import one_line, tight
from .markup import Markup, join, tag

WIDTH, HEIGHT = 340, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 22, 40
_BEYOND = 92
"""Room of values without a limit, right of the axis."""
_LETTER = 6.2
_LEGEND_LINE = 16
_LOG_FROM = 4.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
_FURTHER = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_SHAPES: tuple[Callable[[float, float], str], ...] = (
    lambda x, y: f"M{x - 3:g},{y:g}a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    lambda x, y: f"M{x - 3:g},{y - 3:g}h6v6h-6z",
    lambda x, y: f"M{x:g},{y - 4:g}l4,7h-8z",
    lambda x, y: f"M{x:g},{y - 4:g}l4,4l-4,4l-4,-4z",
    lambda x, y: f"M{x:g},{y + 4:g}l4,-7h-8z",
)
"""Outlines of marks, so that lines are told apart without their colours."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines of one metric over one number.

    title: what is held, as a heading of the panel; may be empty.
    over: the number, as the title of the axis.
    lines: by side, values of the number in ascending order with the metric's value. The number may be
        infinite: such a point is drawn apart.
    text: the text of a value of the number.
    """

    title: str
    over: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, Interval]]]
    text: Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class LinesFigure:
    """One figure of panels with the same sides. It needs no script.

    name: part of the name of its files.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(side for panel in self.panels for side in panel.lines))


def html_of_lines(figure: LinesFigure) -> Markup:
    """Return the figure for the page, with its legend and its caption."""
    styles = _styles(figure.sides, PAGE)
    keys = (
        tag("li", _svg(_key(styles[side], 0), 24, 14, one_line(side)), " ", one_line(side))
        for side in figure.sides
    )
    return tag(
        "figure",
        tag("h4", figure.title),
        tag("ul", *keys, class_="legend"),
        tag("div", *(_panel(panel, styles, PAGE) for panel in figure.panels), class_="panels"),
        tag("figcaption", tight(figure.caption)),
        class_="lines",
    )


def svg_files(figure: LinesFigure, palette: Palette) -> Iterator[tuple[str, str]]:
    """Yield each panel as the text of an SVG file with its legend, and the end of its name."""
    styles = _styles(figure.sides, palette)
    for number, panel in enumerate(figure.panels):
        rows = [
            join(
                tag("g", _key(styles[side], 0), transform=f"translate(8,{_LEGEND_LINE * i + 4})"),
                _text(38, _LEGEND_LINE * i + 15, one_line(side), palette, palette.ink, "start"),
            )
            for i, side in enumerate(figure.sides)
        ]
        top = _LEGEND_LINE * len(rows) + 6
        inner = tag("g", *_parts(panel, styles, palette), transform=f"translate(0,{top})")
        whole = _svg(join(*rows, inner), WIDTH, top + HEIGHT, _label(panel), sized=True)
        yield f"-{number}" if len(figure.panels) > 1 else "", whole


@dataclass(frozen=True)
class _Style:
    colour: str
    shape: Callable[[float, float], str]
    dash: str


def _styles(sides: Sequence[str], p: Palette) -> dict[str, _Style]:
    """Return colours of Okabe and Ito, the baseline's first. Shapes and dashes differ too."""
    colours = (p.base, p.arm, *_FURTHER)
    return {
        side: _Style(
            colours[i % len(colours)], _SHAPES[i % len(_SHAPES)], ("", "5 3", "2 3")[i // len(colours) % 3]
        )
        for i, side in enumerate(sides)
    }


def _key(style: _Style, y: int) -> Markup:
    return join(_line([(1, y + 7), (23, y + 7)], style), _mark(12, y + 7, style, ""))


def _panel(panel: Panel, styles: Mapping[str, _Style], p: Palette) -> Markup:
    drawn = _svg(join(*_parts(panel, styles, p)), WIDTH, HEIGHT, _label(panel))
    return tag("div", tag("h5", panel.title) if panel.title else "", drawn)


def _label(panel: Panel) -> str:
    """Return the values of a panel in words, for those who do not see it."""
    held = f", {panel.title}" if panel.title else ""
    words = [
        f"{one_line(side)}: "
        + ", ".join(f"{show(v.centre, panel.unit)} at {panel.text(at)}" for at, v in points)
        for side, points in panel.lines.items()
    ]
    return f"over {one_line(panel.over)}{held}. {'; '.join(words)}"


def _svg(inside: Markup, width: int, height: int, label: str, *, sized: bool = False) -> Markup:
    """sized: as a file, which also names its size and its format."""
    file = {"xmlns": "http://www.w3.org/2000/svg", "width": str(width), "height": str(height)}
    return tag(
        "svg",
        inside,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        **(file if sized else {}),
    )


def _parts(panel: Panel, styles: Mapping[str, _Style], p: Palette) -> Iterator[Markup]:
    points = [point for line in panel.lines.values() for point in line]
    values = [v.centre for _, v in points]
    name, size = scale_of(max(values), panel.unit)
    ends = [e for _, v in points for e in (v.low, v.high) if math.isfinite(e) and e > 0]
    y = _Axis.over([*values, *ends], HEIGHT - _BOTTOM, _TOP)
    limits = sorted({at for at, _ in points if math.isfinite(at)})
    endless = any(math.isinf(at) for at, _ in points)
    right = WIDTH - _RIGHT - (_BEYOND if endless else 10)
    x = _Axis.over(limits or [1.0], _LEFT + 12, right)
    for tick in y.ticks(size):
        yield _rule(_LEFT, y.at(tick), WIDTH - _RIGHT, y.at(tick), p)
        yield _text(_LEFT - 6, y.at(tick) + 4, f"{tick / size:g}", p, p.quiet, "end")
    yield from _names(panel, x, limits, endless, p)
    log = ", log scale" if y.log else ""
    yield _text(0, 9, f"{one_line(name)}{log}", p, p.quiet, "start")
    for side, line in panel.lines.items():
        style = styles[side]
        placed = [(x.at(at) if math.isfinite(at) else WIDTH - _RIGHT - 28, at, v) for at, v in line]
        yield _line([(px, y.at(v.centre)) for px, at, v in placed if math.isfinite(at)], style)
        for px, at, v in placed:
            if math.isfinite(v.low) and math.isfinite(v.high) and v.low > 0:
                yield _line([(px, y.at(v.low)), (px, y.at(v.high))], style, solid=True)
            known = f" [{show(v.low, panel.unit)} … {show(v.high, panel.unit)}]"
            words = f"{one_line(side)}, {panel.text(at)}: {show(v.centre, panel.unit)}"
            yield _mark(px, y.at(v.centre), style, words + (known if math.isfinite(v.high) else ""))


def _names(panel: Panel, x: _Axis, limits: Iterable[float], endless: bool, p: Palette) -> Iterator[Markup]:
    """Yield the labels of the values of the number, as far as they have room, and the axis' title."""
    bottom, end = HEIGHT - _BOTTOM + 14, -math.inf
    places = [(x.at(at), panel.text(at)) for at in limits]
    if endless:
        places.append((WIDTH - _RIGHT - 28, panel.text(math.inf)))
    for place, text in places:
        half = _LETTER * len(text) / 2
        if place - half > end + 4:
            yield _text(place, bottom, text, p, p.quiet, "middle")
            end = place + half
    log = ", log scale" if x.log else ""
    yield _text(WIDTH / 2, HEIGHT - 6, f"{one_line(panel.over)}{log}", p, p.quiet, "middle")


@dataclass(frozen=True)
class _Axis:
    """From low to high, which are drawn at two places in pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> _Axis:
        low, high = min(values), max(values)
        log = low > 0 and high > _LOG_FROM * low
        if not log and high == low:
            low, high = low * 0.9, high * 1.1 or 1.0
        return cls(low, high, begin, end, log)

    def at(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self, size: float) -> list[float]:
        """Return round values, in units of a size, of which there are about four."""
        low, high = self.low / size, self.high / size
        if self.log:
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            found = [m * 10.0**d for d in decades for m in (1, 2, 5)]
            inside = [v for v in found if low <= v <= high]
            return [v * size for v in inside[:: -(-len(inside) // 6) or 1]]
        step = 10.0 ** math.floor(math.log10((high - low) / 2))
        step *= next((m for m in (1, 2, 5) if (high - low) / (m * step) <= 5), 10)
        return [k * step * size for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _line(points: Sequence[tuple[float, float]], style: _Style, *, solid: bool = False) -> Markup:
    if len(points) < 2:
        return Markup("")
    way = "M" + "L".join(f"{x:g},{y:g}" for x, y in points)
    dash = f";stroke-dasharray:{style.dash}" if style.dash and not solid else ""
    return tag("path", d=way, style=f"fill:none;stroke:{style.colour};stroke-width:1.6{dash}")


def _mark(x: float, y: float, style: _Style, words: str) -> Markup:
    title = tag("title", words) if words else ""
    return tag("path", title, d=style.shape(x, y), style=f"fill:{style.colour}")


def _rule(x1: float, y1: float, x2: float, y2: float, p: Palette) -> Markup:
    return tag("path", d=f"M{x1:g},{y1:g}L{x2:g},{y2:g}", style=f"stroke:{p.grid};stroke-width:1")


def _text(x: float, y: float, text: str, p: Palette, colour: str, anchor: str) -> Markup:
    style = f"fill:{colour};font:11px {p.font};text-anchor:{anchor}"
    return tag("text", text, x=f"{x:g}", y=f"{y:g}", style=style)
