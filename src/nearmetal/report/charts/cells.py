"""Charts of one cell: overhead by round, absolute values, extra time by phase and cause, and the distribution
of the times of events. Also the chart of the noise floor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...model.result import Cell, Interval, NoiseFloor, TimePart
from ..record_index import RecordIndex
from ..tables.cells import bounded, margin_text, metric_label
from ..tables.roofs import roof_text
from ..text import one_line, thin
from .altair_here import alt
from .chart import Chart, Palette, Row, with_emulation, word
from .parts import (
    OverheadAxis,
    dashed,
    data,
    ends_text,
    layered,
    names_y,
    needs_log,
    overhead_y,
    rounds_x,
    short,
    thinned,
    tips,
    value_axis,
    value_unit,
)

Channel = TypeVar("Channel")

MOST_POINTS = 400
FAR_ROOF = 0.2
"""The upper bound (roof) of a cell is drawn only if the result is above this share of it, and below the
inverse of this share."""
APART = 0.15
"""Distance of the marks of baseline and arm from the position of their round on the axis, in rounds."""


def charts_of(cell: Cell, records: RecordIndex) -> tuple[Chart, ...]:
    """Return every chart for which a cell has data, in the order of the page."""
    made = (points(cell), absolute(cell, records), attribution(cell), ecdf(cell))
    return tuple(with_emulation(c, [cell]) for c in made if c is not None)


def _points_view(as_factor: bool, p: Palette) -> alt.LayerChart:
    x, y = rounds_x(), overhead_y(as_factor=as_factor)
    return layered(
        data("margin").mark_rect(color=p.margin).encode(y=y, y2="high"),
        dashed("zero", p, y=y),
        data("interval").mark_rect(color=p.interval).encode(y=y, y2="high"),
        data("looks").mark_rule(color=p.quiet, strokeWidth=1.5).encode(x=x, y=y, y2="high"),
        data("estimate").mark_rule(color=p.arm, strokeWidth=1.5).encode(y=y),
        data("points")
        .mark_point(filled=False, size=26, color=p.arm, opacity=1, aria=True)
        .encode(x=x, y=y, description=tips()),
    )


def points(cell: Cell) -> Chart | None:
    """Return a chart of the overhead of every round, with the margin, the estimate, and the intervals of all
    analyses so far; None if there are no rounds."""
    pairs = list(zip(cell.blocks, cell.d, strict=True))
    if not pairs:
        return None
    ends = (cell.d.index(min(cell.d)), cell.d.index(max(cell.d)))
    shown = thin(pairs, MOST_POINTS, keep=ends)
    y = OverheadAxis(cell)
    looks = _looks(cell, y)
    caption = (
        f"A circle is one round, n {cell.n}; the line is the estimate, the coloured band its "
        f"{cell.confidence * 100:.3g} % interval. "
        + ("Grey bars: the interval at each analysis; the widest are left out. " if looks else "")
        + y.margin_sentence(cell)
        + thinned(len(shown), len(pairs), "rounds, the lowest and the highest among them")
    )
    return Chart(
        kind="points",
        title="Overhead by round",
        caption=caption,
        height=200,
        view=partial(_points_view, y.as_factor),
        data={
            **y.bands(cell),
            "looks": looks,
            "points": [{"x": b, "y": y.of(d), "tip": f"round {b}: {y.text(y.of(d))}"} for b, d in shown],
        },
    )


def _looks(cell: Cell, y: OverheadAxis) -> list[Row]:
    """Return the interval of each look, placed at the last round that the look includes. Intervals so wide
    that the points would be flattened are left out."""
    low, high = min(cell.d), max(cell.d)
    room = high - low
    near = [
        k for k in cell.looks if low - room <= k.low and k.high <= high + room and k.n <= len(cell.blocks)
    ]
    return [{"x": cell.blocks[k.n - 1], "y": y.of(k.low), "high": y.of(k.high)} for k in thin(near, 100)]


def _by_side(
    channel: Callable[..., Channel], p: Palette, base: str | list[float], arm: str | list[float]
) -> Channel:
    """Return an encoding that distinguishes baseline and arm.

    channel: class of the encoding, such as alt.Color.
    base, arm: the colour, shape or dash pattern of each side.
    """
    scale = alt.Scale(domain=[word("base"), word("arm")], range=[base, arm])
    return channel("side:N", legend=alt.Legend() if p.legends else None, scale=scale)


def _absolute_view(log: bool, p: Palette) -> alt.LayerChart:
    x, y = rounds_x(), value_axis(alt.Y, "y", word("unit"), log=log)
    colour, shape = _by_side(alt.Color, p, p.base, p.arm), _by_side(alt.Shape, p, "circle", "triangle-up")
    return layered(
        data("ranges").mark_rule(strokeWidth=2, opacity=0.4).encode(x=x, y=y, y2="high", color=colour),
        data("values")
        .mark_point(filled=False, size=34, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description=tips()),
        data("roof").mark_rule(color=p.ink, strokeDash=[5, 4]).encode(y=y),
    )


def absolute(cell: Cell, records: RecordIndex) -> Chart | None:
    """Return a chart of the absolute values of both sides by round: the median, and the range of the single
    measurements. None if there are no rounds.
    """
    triples = list(zip(cell.blocks, cell.baseline_values, cell.values, strict=True))
    if not triples:
        return None
    factor, unit = value_unit(cell, [cell.baseline_value.centre, cell.value.centre])
    shown = thin(triples, MOST_POINTS // 2)
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    values: list[Row] = []
    ranges: list[Row] = []
    drawn: list[float] = []
    for block, b, v in shown:
        for name, side, value, apart in ((base, cell.baseline, b, -APART), (arm, cell.arm, v, APART)):
            at = short(value * factor)
            tip = f"round {block}, {name}: {at:.4g} {unit}"
            values.append({"x": block + apart, "y": at, "side": name, "tip": tip})
            raw = records.raw(side, block, cell)
            drawn += [at]
            if len(raw) > 1:
                low, high = short(min(raw) * factor), short(max(raw) * factor)
                drawn += [low, high]
                ranges.append({"x": block + apart, "y": low, "high": high, "side": name})
    roof = cell.roof
    if roof is not None and not min(roof.share, 1 / roof.share) > FAR_ROOF:
        roof = None
    if roof is not None:
        drawn.append(roof.value * factor)
    caption = (
        f"Absolute values in {unit}, n {cell.n}: the median of each round"
        + (" and a line over its single measurements." if ranges else ".")
        + f" Circles: {base}; triangles: {arm}."
        + (f" Dashed: the upper bound, {roof_text(roof, cell.unit)}." if roof is not None else "")
        + thinned(len(shown), len(triples), "rounds")
    )
    return Chart(
        kind="absolute",
        title="Absolute values",
        caption=caption,
        height=200,
        view=partial(_absolute_view, needs_log(min(drawn), max(drawn))),
        data={
            "ranges": ranges,
            "values": values,
            "roof": [] if roof is None else [{"y": short(roof.value * factor)}],
        },
        words={"unit": unit, "base": base, "arm": arm},
    )


def _parts_view(multiples: bool, p: Palette) -> alt.LayerChart:
    y = names_y("part", p)
    along = f"of the baseline's time, {'multiples' if multiples else '%'}"
    x = alt.X("x:Q", title=along, stack=None, axis=alt.Axis(tickCount=5))
    kinds = alt.Scale(domain=["phase", "cause"], range=[p.arm, p.base])
    return layered(
        data("parts")
        .mark_bar(fillOpacity=0.25, strokeWidth=1, aria=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("of:N", scale=kinds, legend=None),
            stroke=alt.Stroke("of:N", scale=kinds, legend=None),
            description=tips(),
        ),
        data("intervals").mark_rule(color=p.ink, strokeWidth=1.5).encode(x=x, y=y, x2="high"),
    )


def attribution(cell: Cell) -> Chart | None:
    """Return a chart of the extra time, as shares of the baseline's time: bars for the phases and the
    residual, and below them bars for the causes and the time that no cause explains.

    None if nothing was attributed, or if the interval of the overhead contains zero, because there may then
    be no extra time.
    """
    a = cell.attribution
    if a is None or not a.parts + a.causes or cell.low <= 0 <= cell.high:
        return None
    rows = _rest("phase", a.parts, "residual (not explained)", a.residual)
    causes = _rest("cause", a.causes, "not explained by these", a.unexplained)
    both = rows + causes
    multiples = max(abs(i.centre) for _, _, i in both) > 1
    scale, unit = (1.0, "multiples") if multiples else (100.0, "%")
    ending = " The residual is what the measured phases do not explain." if a.parts else ""
    if a.causes:
        ending += (
            " The causes below cut across the phases: a rank is throttled while it computes, or waits for "
            "one that is."
        )
    return Chart(
        kind="attribution",
        title="Where the time went" + (", and why" if a.causes else ""),
        caption=f"Bars: additional time in {unit} of the baseline's, n {cell.n}; "
        f"lines: {cell.confidence * 100:.3g} % intervals.{ending}",
        height=24 * len(both) + 10,
        width=240,
        view=partial(_parts_view, multiples),
        data={
            "parts": [
                {
                    "of": of,
                    "part": name,
                    "x": short(i.centre * scale),
                    "tip": f"{name}: {ends_text(i.low * scale, i.centre * scale, i.high * scale)} {unit}",
                }
                for of, name, i in both
            ],
            "intervals": [
                {"part": name, "x": short(i.low * scale), "high": short(i.high * scale)}
                for _, name, i in both
                if math.isfinite(i.low) and math.isfinite(i.high)
            ],
        },
    )


def _rest(
    of: str, measured: Sequence[TimePart], name: str, rest: Interval | None
) -> list[tuple[str, str, Interval]]:
    """Return (of, name, extra time) of each measured part, and of the rest; empty if no part was measured.

    of: 'phase' or 'cause'.
    name, rest: name of the time that the parts do not explain, and that time; None if it is unknown.
    """
    if not measured:
        return []
    found = [(of, one_line(part.name), part.overhead) for part in measured]
    return found if rest is None else [*found, (of, name, rest)]


def _ecdf_view(what: str, log: bool, p: Palette) -> alt.LayerChart:
    x = value_axis(alt.X, "x", word("unit"), log=log)
    y = alt.Y("share:Q", title=f"share of {what}", axis=alt.Axis(format=".0%", tickCount=5))
    colour, dash = _by_side(alt.Color, p, p.base, p.arm), _by_side(alt.StrokeDash, p, [5, 3], [1, 0])
    return layered(
        data("steps")
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(x=x, y=y, color=colour, strokeDash=dash, order="share:Q"),
        data("intervals").mark_rule(color=p.ink, strokeWidth=1.5).encode(x=x, x2="high", y=y),
        data("quantiles")
        .mark_point(shape="diamond", filled=True, size=60, color=p.ink, opacity=1, aria=True)
        .encode(x=x, y=y, description=tips()),
    )


def ecdf(cell: Cell) -> Chart | None:
    """Return a chart of the distribution functions of both sides, with order-statistic intervals of the arm's
    quantiles. None if the metric has no quantiles.
    """
    q = cell.quantiles
    if q is None or not q.values or not q.baseline_values:
        return None
    factor, unit = value_unit(cell, [cell.baseline_value.centre, cell.value.centre])
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    what = one_line(cell.events)
    most = max(*q.baseline_values, *q.values) * factor
    rows: list[Row] = []
    # Failures of the environment count as longer than all others, so its steps end below 1.
    for name, values, n in ((base, q.baseline_values, len(q.baseline_values)), (arm, q.values, q.n)):
        ranked = [(v * factor, (i + 1) / n) for i, v in enumerate(sorted(values))]
        ends = ((ranked[0][0], 0.0), *thin(ranked, MOST_POINTS), (most, len(values) / n))
        rows.extend({"side": name, "x": short(v), "share": short(f)} for v, f in ends)
    named = ((50, q.p50), (90, q.p90), (95, q.p95), (99, q.p99))
    known = [(s, *(short(v * factor) for v in (i.low, i.centre, i.high))) for s, i in named if i is not None]
    missing = [f"p{s}" for s, i in named if i is None]
    caption = f"Share of {what} that took at most this long, in {unit}; one of each round, drawn beforehand"
    caption += f", n {q.n}. Dashed: {base}; solid: {arm}."
    caption += " Diamonds: quantiles of the environment with order-statistic intervals." if known else ""
    caption += f" Not estimable at this n: {', '.join(missing)}." if missing else ""
    return Chart(
        kind="ecdf",
        title="Distribution",
        caption=caption,
        height=200,
        view=partial(_ecdf_view, what, needs_log(min(*q.baseline_values, *q.values) * factor, most)),
        data={
            "steps": rows,
            "intervals": [{"share": s / 100, "x": low, "high": high} for s, low, _, high in known],
            "quantiles": [
                {"share": s / 100, "x": x, "tip": f"p{s:.0f}: {ends_text(low, x, high)} {unit}"}
                for s, low, x, high in known
            ],
        },
        words={"unit": unit, "base": base, "arm": arm},
    )


def _floor_view(p: Palette) -> alt.LayerChart:
    y = names_y("metric", p)
    x = alt.X("x:Q", title="baseline against itself, %", axis=alt.Axis(tickCount=6))
    return layered(
        data("margin").mark_rect(color=p.margin).encode(x=x, x2="high"),
        data("intervals").mark_rule(color=p.base, strokeWidth=3).encode(x=x, x2="high", y=y),
        data("estimates")
        .mark_point(filled=True, size=40, color=p.base, opacity=1, aria=True)
        .encode(x=x, y=y, description=tips()),
    )


def floor(noise: NoiseFloor) -> Chart | None:
    """Return a chart of the baseline against itself: one interval per metric, with the margin as a band. None
    if no interval is bounded."""
    cells = [c for c in noise.cells if bounded(c)]
    if not cells:
        return None
    margin = min(c.margin for c in cells)
    found = [(metric_label(c), c.n, [short(v * 100) for v in (c.low, c.overhead, c.high)]) for c in cells]
    return Chart(
        kind="floor",
        title="Noise floor",
        caption=f"The baseline against itself: {cells[0].confidence * 100:.3g} % interval of each metric, "
        f"n up to {max(c.n for c in cells)} rounds. Grey band: margin {margin_text(margin)}.",
        height=24 * len(found) + 10,
        width=300,
        view=partial(_floor_view),
        data={
            "margin": [{"x": -margin / (1 + margin) * 100, "high": margin * 100}],
            "intervals": [{"metric": name, "x": e[0], "high": e[2]} for name, _, e in found],
            "estimates": [
                {"metric": name, "x": e[1], "tip": f"{name}: {ends_text(*e)} %, n {n}"}
                for name, n, e in found
            ],
        },
    )
