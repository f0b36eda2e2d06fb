"""Charts of a study in parts: the packing curve, all overheads of a part, bars relative to its baseline.

Each chart has a row for each metric or number, and in the row a mark for each arm or workload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ...model.papers.published import PublishedFigure, Quantity
from ...model.result import Cell
from ...model.series import PER_NODE
from ...model.study import Better
from ..tables.cells import bounded, metric_label
from ..text import one_line
from .altair_here import alt
from .chart import Chart, Palette, Row, with_emulation
from .parts import (
    colour_and_shape,
    dashed,
    data,
    ends_text,
    layered,
    names_y,
    number_axis,
    short,
    tips,
)

FACTOR_BEYOND = 2.0
"""If the interval of an overhead reaches beyond this fraction (2.0 = +200 %), all overheads of the chart are
drawn as ratios of times, on a logarithmic axis."""
WIDE = 4.0
"""If a bar is longer than this factor, or shorter than its inverse, bars are drawn on a logarithmic axis."""


def _rows_view(
    bars: bool, log: bool, title: str, signed: bool, rows: str, names: tuple[str, ...], p: Palette
) -> alt.LayerChart:
    """Return a view with rows of bars, or of points with their intervals.

    log: whether the axis of values is logarithmic.
    title, signed: title of the axis of values, and whether its numbers have a sign.
    rows: title of the axis of rows; may be empty.
    names: names of the marks in each row.
    """
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True, nice=True)
    axis = number_axis(6, signed=signed)
    x = alt.X("at:Q", title=title + (", log scale" if log else ""), scale=scale, axis=axis)
    y, offset = names_y("row", p, rows), alt.YOffset("name:N", sort=None)
    colour, shape = colour_and_shape("name", names)
    ends = data("ends").mark_rule(strokeWidth=1.5 if bars else 3)
    ends = ends.encode(x=x, x2="high", y=y, yOffset=offset, color=alt.value(p.ink) if bars else colour)
    if bars:
        marks = data("rows").mark_bar(opacity=0.85, aria=True).encode(color=colour)
        marks = marks.encode(x2=alt.datum(1)) if log else marks
    else:
        marks = data("rows").mark_point(filled=True, size=45, opacity=1, aria=True)
        marks = marks.encode(color=colour, shape=shape)
    marks = marks.encode(x=x, y=y, yOffset=offset, description=tips())
    return layered(*((marks, ends) if bars else (ends, marks)), dashed("none", p, x=x))


def _chart(
    kind: str,
    title: str,
    caption: str,
    cells: Sequence[Cell],
    rows: Sequence[Row],
    view: tuple[bool, bool, str, bool, str],
    none: float,
) -> Chart:
    """Return a chart of rows.

    cells: the cells that are drawn; if any of them was emulated, the caption says so.
    view: the arguments bars, log, title, signed and rows of _rows_view().
    none: position on the axis of values that stands for no overhead.
    """
    names = tuple(dict.fromkeys(str(r["name"]) for r in rows))
    chart = Chart(
        kind=kind,
        title=title,
        caption=caption,
        height=max(120, len({str(r["row"]) for r in rows}) * (14 * len(names) + 10)),
        width=300,
        view=partial(_rows_view, *view, names),
        data={
            "rows": rows,
            "ends": [{**r, "at": r["low"]} for r in rows if "low" in r],
            "none": [{"at": none}],
        },
    )
    return with_emulation(chart, cells)


def _row(row: str, name: str, ends: tuple[float, float, float] | None, at: float, unit: str, n: int) -> Row:
    text = f"{at:.4g}" if ends is None else ends_text(*ends)
    known: Row = {} if ends is None else {"low": short(ends[0]), "high": short(ends[2])}
    return {"row": row, "name": name, "at": short(at), **known, "tip": f"{row}, {name}: {text}{unit}, n {n}"}


def _overheads(
    kind: str, title: str, caption: str, cells: Sequence[tuple[str, str, Cell]], rows: str = ""
) -> Chart:
    """Return a chart of overheads with their intervals.

    cells: (row, name of the mark, cell) of each overhead.
    rows: title of the axis of rows; may be empty.
    """
    factor = max(c.high for _, _, c in cells) > FACTOR_BEYOND

    def of(share: float) -> float:
        return 1 + share if factor else 100 * share

    drawn = [
        _row(row, name, (of(c.low), of(c.overhead), of(c.high)), of(c.overhead), "" if factor else " %", c.n)
        for row, name, c in cells
    ]
    axis = ("times as long", False) if factor else ("overhead, %", True)
    own = [c for _, _, c in cells]
    return _chart(kind, title, caption, own, drawn, (False, factor, *axis, rows), of(0.0))


def packing(
    cells: Sequence[Cell], packed: Mapping[str, str], figures: Sequence[PublishedFigure]
) -> Chart | None:
    """Return a chart of the overhead by the number of containers on a node, with a mark for each workload.
    None if there is no interval yet.

    packed: the name of the place of each arm that is shown: '<n> per node'.
    figures: the paper's figures. If one of them is a range of overheads, the caption names it.
    """
    shown = [(int(packed[c.arm].removesuffix(PER_NODE)), c) for c in cells if c.arm in packed and bounded(c)]
    if not shown:
        return None
    caption = "Overhead against bare nodes with one rank each: the estimate and its interval, n rounds. "
    claim = next((f for f in figures if f.quantity is Quantity.OVERHEAD and f.low < f.high), None)
    if claim is not None:
        caption += f"The paper, {claim.what}: {100 * claim.low:.0f} to {100 * claim.high:.0f} %"
        reached = f"8{PER_NODE}" in packed.values()
        caption += "." if reached else ", more containers on a node than this machine has CPUs for."
    title = "Packing: the same ranks on fewer nodes"
    rows = [(str(n), one_line(c.workload), c) for n, c in sorted(shown, key=lambda pair: pair[0])]
    return _overheads("packing", title, caption, rows, "containers on each node")


def overheads(cells: Sequence[Cell], name: Callable[[str], str]) -> Chart | None:
    """Return a chart of all overheads of a part: a row for each metric, and a mark for each arm. None if
    there is no interval yet.

    Every arm is compared with its first baseline arm.
    name: returns the label of an arm.
    """
    rows = [(metric_label(c), one_line(name(c.arm)), c) for c in _first(cells, bounded)]
    caption = "Each environment against its baseline: the estimate and its interval. Dashed: no overhead."
    return _overheads("overheads", "Overheads", caption, rows) if rows else None


def _first(cells: Iterable[Cell], known: Callable[[Cell], bool]) -> tuple[Cell, ...]:
    """Return, for every metric of every arm, the first comparison for which known() is true."""
    first: dict[tuple[str, str, str], Cell] = {}
    for c in cells:
        if known(c):
            first.setdefault((c.arm, c.workload, c.metric), c)
    return tuple(first.values())


def relative(cells: Sequence[Cell], name: Callable[[str], str]) -> Chart | None:
    """Return a chart of bars for all metrics of a part, as multiples of the baseline's values. None if
    nothing was measured.

    Every arm is compared with its first baseline arm, whose bars have the length 1. On a logarithmic axis all
    bars begin at 1. An interval with an infinite end is not drawn.
    name: returns the label of an arm.
    """
    first = _first(cells, lambda c: c.n > 0 and math.isfinite(c.overhead) and c.overhead > -1)
    if not first:
        return None
    rows: dict[tuple[str, str], Row] = {}  # the bar of the baseline before the first one of each metric
    for c in first:
        metric = f"{metric_label(c)} {'↓' if c.better is Better.LOWER else '↑'}"
        base, at = name(c.baseline), _ratio(c, c.overhead)
        low, high = sorted((_ratio(c, c.low), _ratio(c, c.high))) if bounded(c) else (at, at)
        if not any(metric == known for known, _ in rows):
            rows[metric, ""] = _row(metric, one_line(base), None, 1.0, "", c.n)
        ends = (low, at, high) if bounded(c) else None
        rows[metric, c.arm] = _row(metric, one_line(name(c.arm)), ends, at, "", c.n)
    ratios = [_ratio(c, c.overhead) for c in first]
    log = max(ratios) > WIDE or min(ratios) < 1 / WIDE
    caption = (
        "Values divided by those of the baseline, which is 1: the estimate and its interval, n rounds. "
        "Less is better where the name ends with ↓, more where it ends with ↑."
    )
    view = (True, log, "relative to the baseline", False, "")
    return _chart("relative", "Relative to the baseline", caption, first, tuple(rows.values()), view, 1.0)


def _ratio(cell: Cell, overhead: float) -> float:
    """Return a time-equivalent overhead as the ratio of values of the cell's metric."""
    return 1 + overhead if cell.better is Better.LOWER else 1 / (1 + overhead)
