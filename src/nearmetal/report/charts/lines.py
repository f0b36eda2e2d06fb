"""Charts of lines over a number, such as a block size or a dirty rate."""

from __future__ import annotations

import json
import math
from functools import partial

from ...units import scale_of, show
from ..text import one_line
from .altair_here import alt
from .chart import Chart, LinesFigure, Palette, Panel, Row
from .parts import colour_and_shape, data, layered, needs_log, short, tips, value_axis

_APART = 0.3
"""Distance from the largest finite number to the position of an infinite one, as a share of the axis."""


def lines_charts(figure: LinesFigure) -> tuple[Chart, ...]:
    """Return a chart of each panel. A line has the same colour and shape in all of them."""
    sides = tuple(dict.fromkeys(one_line(side) for panel in figure.panels for side in panel.lines))
    return tuple(_chart(figure, panel, sides) for panel in figure.panels)


def _lines_view(
    over: str,
    unit: str,
    log: tuple[bool, bool],
    ticks: tuple[tuple[float, str], ...],
    sides: tuple[str, ...],
    p: Palette,
) -> alt.LayerChart:
    """Return the view of a panel.

    over, unit: titles of the axes.
    log: whether the axis of the number is logarithmic, and whether the axis of the metric is.
    ticks: positions on the axis of the number, each with its label.
    sides: names of the lines of the whole figure.
    """
    colour, shape = colour_and_shape("side", sides)
    places, texts = zip(*ticks, strict=True)
    axis = alt.Axis(
        values=places,
        labelExpr=f"{json.dumps(texts)}[round(datum.index * {len(texts) - 1})]",
        labelOverlap="greedy",
        grid=False,
    )
    scale = alt.Scale(type="log" if log[0] else "linear", zero=False, nice=False, padding=12)
    x = alt.X("x:Q", title=over + (", log scale" if log[0] else ""), scale=scale, axis=axis)
    y = value_axis(alt.Y, "y", unit, log=log[1])
    return layered(
        data("lines").mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour),
        data("ends").mark_rule(strokeWidth=1.6).encode(x=x, y="low:Q", y2="high", color=colour),
        data("points")
        .mark_point(filled=True, size=40, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description=tips()),
    )


def _chart(figure: LinesFigure, panel: Panel, sides: tuple[str, ...]) -> Chart:
    points = [(one_line(side), at, v) for side, line in panel.lines.items() for at, v in line]
    unit, size = scale_of(max(v.centre for _, _, v in points), panel.unit)
    known = sorted({at for _, at, _ in points if math.isfinite(at)}) or [1.0]
    x_log = needs_log(known[0], known[-1])
    places = {at: at for at in known} | {math.inf: _beyond(known[0], known[-1], log=x_log)}
    rows: list[Row] = []
    for side, at, v in points:
        tip = f"{side}, {panel.text(at)}: {show(v.centre, panel.unit)}"
        row: Row = {"side": side, "x": places[at], "y": short(v.centre / size), "tip": tip}
        if math.isfinite(v.low) and math.isfinite(v.high) and v.low > 0:
            row |= {"low": short(v.low / size), "high": short(v.high / size)}
            row["tip"] = f"{tip} [{show(v.low, panel.unit)} … {show(v.high, panel.unit)}]"
        rows.append(row)
    drawn = [float(str(row[key])) for row in rows for key in ("low", "y", "high") if key in row]
    ticks = tuple((places[at], panel.text(at)) for at in sorted({at for _, at, _ in points}))
    log = (x_log, needs_log(min(drawn), max(drawn)))
    over = one_line(panel.over)
    return Chart(
        kind="lines",
        title=f"{figure.title}, {panel.title}" if panel.title else figure.title,
        caption=figure.caption,
        height=160,
        width=300,
        view=partial(_lines_view, over, one_line(unit), log, ticks, sides),
        data={
            "lines": [row for row in rows if row["x"] != places[math.inf]],
            "ends": [row for row in rows if "low" in row],
            "points": rows,
        },
    )


def _beyond(low: float, high: float, *, log: bool) -> float:
    """Return the position of an infinite number on an axis whose finite numbers run from low to high."""
    if log:
        return high * math.pow(high / low, _APART)
    return high + _APART * ((high - low) or high or 1.0)
