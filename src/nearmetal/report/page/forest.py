"""The forest plot: all comparisons in one figure, as SVG without scripts. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...model.result import Cell, Verdict, theta_of
from ...units import show_overhead
from ..tables.answer import Answer, AnswerRow, ArmAnswer, figures
from ..tables.cells import bounded, margin_text
from .markup import Markup, join, tag
from .sections import CHIP

AXIS = 26
"""Height of the axis with its labels, in pixels."""
_TICKS = (
    *(-0.9, -0.5, -0.2, -0.1, -0.05, -0.03, -0.01, 0.01, 0.03, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 4, 9, 19, 49, 99, 999),
)
_LEAST_GAP = 44
"""Smallest distance between the labels of two ticks, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns of the figure, in pixels.

    name: class of the figure, by which style sheets choose one of several.
    line: height of a line.
    head: height of a heading; 0 if it is in front of the first line of its group.
    gap: space between two groups.
    label: where the labels of lines begin.
    letter: width of a letter of these labels.
    plot: left and right end of the plot.
    overhead, interval: where these texts begin or end; None if they are left out.
    """

    name: str
    width: int
    line: int
    head: int
    gap: int
    label: int
    letter: float
    plot: tuple[int, int]
    overhead: int
    interval: int | None


WIDE = Layout(
    name="wide",
    width=960,
    line=17,
    head=0,
    gap=7,
    label=150,
    letter=6.6,
    plot=(330, 710),
    overhead=782,
    interval=794,
)
NARROW = Layout(
    name="narrow",
    width=358,
    line=14,
    head=17,
    gap=0,
    label=6,
    letter=6.1,
    plot=(160, 290),
    overhead=356,
    interval=None,
)
_NOTE_LETTER = 6.1


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line of the figure: a label, and the cells that are drawn on it."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Lines below one heading.

    note: the value of the baseline; '' if it is unknown, or if the lines have different baseline values.
    """

    title: str
    note: str
    lines: tuple[_Line, ...]

    def height(self, layout: Layout) -> int:
        return layout.gap + layout.head + layout.line * len(self.lines)


def forest(found: Answer) -> Markup:
    """Return the figure for wide and for narrow screens; style sheets show one of them."""
    groups = _groups(found)
    cells = [c for g in groups for line in g.lines for c in line.cells]
    if not any(bounded(c) for c in cells):
        return Markup("")
    return tag(
        "figure",
        *(_drawing(groups, cells, layout) for layout in (WIDE, NARROW)),
        tag(
            "figcaption",
            "Extra time against ",
            found.baseline.environment,
            f" with its interval. Grey band: the margin, {margin_text(max(c.margin for c in cells))}. "
            "▲ slower, ▼ faster, ■ equal within the margin, ○ undecided, ◆ changed while it was measured.",
        ),
        class_="forest",
    )


def _groups(found: Answer) -> tuple[_Group, ...]:
    """Return a group for each row, with the environments in the order of their overhead. The rows of a single
    environment are one group.
    """
    if len(found.arms) == 1:
        (arm,) = found.arms
        lines = tuple(_Line(label=row.label, cells=row.cells[arm.arm]) for row in found.table)
        return (_Group(title=arm.name, note="", lines=lines),)
    base = found.baseline.environment
    return tuple(
        _Group(
            title=row.label,
            note=f"{base} {row.baseline}" if row.baseline else "",
            lines=_ranked(row, found.arms),
        )
        for row in found.table
    )


def _ranked(row: AnswerRow, arms: Iterable[ArmAnswer]) -> tuple[_Line, ...]:
    lines = [_Line(label=a.name, cells=row.cells[a.arm]) for a in arms if a.arm in row.cells]
    return tuple(sorted(lines, key=lambda line: max(theta_of(c.overhead) for c in line.cells)))


def _scale(cells: Sequence[Cell], layout: Layout) -> tuple[Callable[[float], float], tuple[float, float]]:
    """Return a function from an overhead to pixels, and the ends of its axis as overheads.

    It is linear within the margin and logarithmic far from it, so that one figure shows both 1 % and a factor
    of 40.
    """
    unit = math.log1p(max(c.margin for c in cells)) or 0.01
    ends = [t for c in cells if bounded(c) for o in (c.low, c.high) if math.isfinite(t := theta_of(o))]
    low, high = min(-2 * unit, *ends), max(2 * unit, *ends)
    left, right = layout.plot
    first, last = math.asinh(low / unit), math.asinh(high / unit)

    def at(overhead: float) -> float:
        theta = theta_of(overhead)
        place = math.asinh(theta / unit) if math.isfinite(theta) else theta
        share = (place - first) / (last - first)
        return round(left + (right - left) * min(1.02, max(-0.02, share)), 1)

    return at, (math.expm1(low), math.expm1(high))


def _drawing(groups: Sequence[_Group], cells: Sequence[Cell], layout: Layout) -> Markup:
    at, (low, high) = _scale(cells, layout)
    margin = max(c.margin for c in cells)
    height = sum(g.height(layout) for g in groups) + AXIS
    band = tag(
        "rect",
        x=str(at(-margin / (1 + margin))),
        y="4",
        width=str(round(at(margin) - at(-margin / (1 + margin)), 1)),
        height=str(height - AXIS),
        class_="margin",
    )
    parts = [band, *_axis(at, low, high, margin, height - AXIS + 4)]
    y = 0
    for group in groups:
        parts += _heading(group, y + layout.gap, layout)
        first = y + layout.gap + layout.head
        for i, line in enumerate(group.lines):
            parts += _line(line, first + layout.line * i + layout.line // 2 + 1, at, layout)
        y += group.height(layout)
    return tag(
        "svg",
        tag("title", "Forest plot of all comparisons"),
        *parts,
        viewBox=f"0 0 {layout.width} {height}",
        role="img",
        aria_label="Forest plot; the table below it has the same figures",
        class_=layout.name,
    )


def _axis(
    at: Callable[[float], float], low: float, high: float, margin: float, bottom: int
) -> Iterable[Markup]:
    yield _segment(at(0), 4, at(0), bottom, "zero")
    yield _text(at(0), bottom + 14, "0", "tick")
    shown = [at(0)]
    ends = (-margin / (1 + margin), margin)
    for tick in (*ends, *sorted(_TICKS, key=abs)):
        x = at(tick)
        if low <= tick <= high and all(abs(x - other) >= _LEAST_GAP for other in shown):
            shown.append(x)
            yield _segment(x, bottom - 3, x, bottom + 2, "zero")
            yield _text(x, bottom + 14, _tick(-margin if tick == ends[0] else tick), "tick")


def _tick(overhead: float) -> str:
    return show_overhead(overhead) if overhead >= 1 else f"{overhead * 100:+.3g} %".replace("-", "−")


def _heading(group: _Group, top: int, layout: Layout) -> Iterable[Markup]:
    if layout.head:
        note = tag("tspan", f"  {group.note}", class_="note") if group.note else ""
        yield _text(0, top + layout.head - 4, join(group.title, note), "head")
        return
    first = top + layout.line // 2 + 5
    yield _text(0, first, _cut(group.title, layout.label, layout.letter), "head")
    if group.note and len(group.lines) > 1:
        yield _text(0, first + layout.line, _cut(group.note, layout.label, _NOTE_LETTER), "note")


def _line(line: _Line, y: int, at: Callable[[float], float], layout: Layout) -> Iterable[Markup]:
    texts = figures(line.cells)
    label = _cut(line.label, layout.plot[0] - layout.label, layout.letter)
    yield _text(layout.label, y + 4, label, "label")
    for cell in line.cells:
        kind = CHIP[cell.verdict]
        if bounded(cell):
            yield _segment(at(cell.low), y, at(cell.high), y, f"interval {kind}")
        if bounded(cell) or cell.verdict is not Verdict.NONE:
            yield _mark(at(cell.overhead), y, cell.verdict, small=len(line.cells) > 1)
    kind = CHIP[texts.verdict]
    overhead = texts.overhead or "no interval"
    yield tag(
        "text",
        overhead if layout.interval is not None else f"{overhead} {texts.symbol}",
        x=str(layout.overhead),
        y=str(y + 4),
        class_=f"end {kind}",
    )
    if layout.interval is not None:
        yield _text(layout.interval, y + 4, f"{texts.interval} {texts.symbol}".strip(), kind)


def _cut(text: str, room: int, letter: float) -> str:
    """Return the text, or its beginning if it would need more than `room` pixels."""
    most = int((room - 4) / letter)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _mark(x: float, y: int, verdict: Verdict, *, small: bool) -> Markup:
    """Draw the estimate, with a shape of its own for each verdict."""
    r = 3 if small else 4.5
    kind = f"mark {CHIP[verdict]}"
    points: tuple[tuple[float, float], ...]
    match verdict:
        case Verdict.SLOWER:
            points = ((x, y - r), (x + r, y + r), (x - r, y + r))
        case Verdict.FASTER:
            points = ((x, y + r), (x + r, y - r), (x - r, y - r))
        case Verdict.EQUIVALENT:
            s = r - 1
            points = ((x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s))
        case Verdict.INCONSISTENT:
            points = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
        case Verdict.NONE:
            return tag("circle", cx=str(x), cy=str(y), r=str(r - 1), class_=kind)
    return tag("polygon", points=" ".join(f"{a:g},{b:g}" for a, b in points), class_=kind)


def _segment(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=str(x1), y1=str(y1), x2=str(x2), y2=str(y2), class_=kind)


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return tag("text", join(text), x=str(x), y=str(y), class_=kind)
