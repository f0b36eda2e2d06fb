"""Charts of one cell as Vega-Lite specifications: one specification for the page, SVG, PNG and PDF. No
drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...model.record import JsonValue
from ...model.result import Cell, Interval, NoiseFloor, TimePart
from ..seen import RecordIndex
from ..tables.cells import bounded, margin_text, metric_label
from ..tables.roofs import roof_text
from ..text import one_line, thin
from .parts import (
    Chart,
    OverheadAxis,
    Palette,
    Spec,
    bands,
    count_axis,
    interval_tips,
    layer,
    margin_band,
    metric_axis,
    short,
    thinned,
    tip,
    value_axis,
    value_scale,
    value_unit,
    with_emulation,
)

MOST_POINTS = 2000
FAR_ROOF = 0.2
"""Share of a roof below which the roof is mentioned as text and not drawn."""


def charts_of(cell: Cell, records: RecordIndex, p: Palette) -> tuple[Chart, ...]:
    """Return every chart for which a cell has data, in the order of the page."""
    made = (
        points(cell, p),
        looks(cell, p),
        absolute(cell, records, p),
        attribution(cell, p),
        causes(cell, p),
        ecdf(cell, p),
    )
    return tuple(with_emulation(c, emulated=cell.emulated, guest=cell.guest) for c in made if c is not None)


def points(cell: Cell, p: Palette) -> Chart | None:
    """Return a chart of the overhead of every block, with the band of the margin, the interval, and the
    estimate.
    """
    pairs = list(zip(cell.blocks, cell.d, strict=True))
    if not pairs:
        return None
    ends = (cell.d.index(min(cell.d)), cell.d.index(max(cell.d)))
    shown = thin(pairs, MOST_POINTS, keep=ends)
    y = OverheadAxis(cell)
    rows: list[JsonValue] = [{"block": b, "y": y.of(d)} for b, d in shown]
    layers: list[JsonValue] = [
        *bands(cell, y, p),
        layer(
            rows,
            {"type": "point", "filled": False, "size": 26, "color": p.arm, "tooltip": True},
            {
                "x": count_axis("block", "round"),
                "y": y.encoding("y"),
                "tooltip": [tip("block", "round"), tip("y", y.title, ".3~f")],
            },
        ),
    ]
    caption = (
        f"A circle is one round, n {cell.n}; the line is the estimate, the coloured band its "
        f"{cell.confidence * 100:.3g} % interval. "
        + y.margin_sentence(cell)
        + thinned(len(shown), len(pairs), "rounds, the lowest and the highest among them")
    )
    return Chart(
        kind="points", title="Overhead by round", caption=caption, height=200, spec={"layer": layers}
    )


def looks(cell: Cell, p: Palette) -> Chart | None:
    """Return a chart of the running interval at each look."""
    finite = [k for k in cell.looks if math.isfinite(k.low) and math.isfinite(k.high)]
    if not finite:
        return None
    y = OverheadAxis(cell)
    shown = thin(finite, 400)
    rows: list[JsonValue] = [{"n": k.n, "low": y.of(k.low), "high": y.of(k.high)} for k in shown]
    tips: list[JsonValue] = [
        tip("n", "n (rounds)"),
        tip("low", "low", ".3~f"),
        tip("high", "high", ".3~f"),
    ]
    x = count_axis("n", "n (rounds)")
    bar = layer(
        rows,
        {"type": "rule", "color": p.arm, "strokeWidth": 3, "tooltip": True},
        {"x": x, "y": y.encoding("low"), "y2": {"field": "high"}, "tooltip": tips},
    )
    tick: Spec = {"type": "tick", "orient": "horizontal", "color": p.arm, "thickness": 2, "size": 14}
    ends = [layer(rows, tick, {"x": x, "y": y.encoding(end)}) for end in ("low", "high")]
    layers: list[JsonValue] = [*margin_band(cell, y, p), bar, *ends]
    caption = (
        f"One bar for each analysis, after n rounds; {cell.confidence * 100:.3g} % in all. "
        + y.margin_sentence(cell)
        + thinned(len(shown), len(finite), "analyses")
    )
    return Chart(
        kind="looks", title="The interval as it narrowed", caption=caption, height=160, spec={"layer": layers}
    )


def absolute(cell: Cell, records: RecordIndex, p: Palette) -> Chart | None:
    """Return a chart of the absolute values of both sides by block.

    Single slices are drawn small, and the value of each block is drawn large.
    """
    triples = list(zip(cell.blocks, cell.baseline_values, cell.values, strict=True))
    if not triples:
        return None
    factor, unit = value_unit(cell, [cell.baseline_value.centre, cell.value.centre])
    shown = thin(triples, MOST_POINTS // 8)
    most_raw = MOST_POINTS // (2 * len(shown)) - 1  # slices per side and block
    measured = drawn_raw = 0
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    folds: list[JsonValue] = []
    raws: list[JsonValue] = []
    drawn: list[float] = []
    for block, b, v in shown:
        for name, arm_name, value in ((base, cell.baseline, b), (arm, cell.arm, v)):
            folds.append({"block": block, "y": short(value * factor), "side": name})
            slices = records.raw(arm_name, block, cell)
            raw = [x * factor for x in thin(slices, most_raw - 1)]
            measured, drawn_raw = measured + len(slices), drawn_raw + len(raw)
            drawn += [value * factor, *raw]
            if len(raw) > 1:
                raws.append({"block": block, "y": [short(x) for x in raw], "side": name})
    domain: list[JsonValue] = [base, arm]
    colour: Spec = {"field": "side", "scale": {"domain": domain, "range": [p.base, p.arm]}}
    shape: Spec = {"field": "side", "scale": {"domain": domain, "range": ["circle", "triangle-up"]}}
    line = _roof_line(cell, factor, p)
    if line is not None and cell.roof is not None:
        drawn.append(cell.roof.value * factor)
    scale = value_scale(min(drawn), max(drawn))
    y: Spec = {"field": "y", "type": "quantitative", "scale": scale, "axis": value_axis(unit, scale)}
    x = count_axis("block", "round")
    tips: list[JsonValue] = [tip("side", "side", None), tip("block", "round"), tip("y", unit, ".4~g")]
    layers: list[JsonValue] = []
    if raws:
        layers.append(
            {
                "data": {"values": raws},
                "transform": [{"flatten": ["y"]}],
                "mark": {"type": "circle", "size": 5, "opacity": 0.45},
                "encoding": {"x": x, "y": y, "color": colour},
            }
        )
    layers.append(
        layer(
            folds,
            {"type": "point", "filled": False, "size": 34, "tooltip": True},
            {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tips},
        )
    )
    if line is not None:
        layers.append({**line, "encoding": {"y": y}})
    caption = (
        f"Absolute values in {unit}, n {cell.n}: the median of each round"
        + (" (large) and its single measurements (small)." if raws else ".")
        + (f" Dashed: the upper bound, {roof_text(cell.roof, cell.unit)}." if line and cell.roof else "")
        + (thinned(len(shown), len(triples), "rounds") or thinned(drawn_raw, measured, "measurements"))
    )
    return Chart(
        kind="absolute", title="Absolute values", caption=caption, height=200, spec={"layer": layers}
    )


def _roof_line(cell: Cell, factor: float, p: Palette) -> Spec | None:
    """Return a dashed line at the roof; None if it is so far away that it would flatten everything else."""
    if cell.roof is None or not min(cell.roof.share, 1 / cell.roof.share) > FAR_ROOF:
        return None
    return {
        "data": {"values": [{"y": short(cell.roof.value * factor)}]},
        "mark": {"type": "rule", "color": p.ink, "strokeDash": [5, 4]},
    }


def attribution(cell: Cell, p: Palette) -> Chart | None:
    """Return a chart of the extra time by part, as shares of the baseline's time, with the residual."""
    a = cell.attribution
    return _bars(
        cell,
        () if a is None else a.parts,
        ("residual (not explained)", None if a is None else a.residual),
        p,
        kind="attribution",
        title="Where the time went",
        ending="The residual is what the measured phases do not explain.",
    )


def causes(cell: Cell, p: Palette) -> Chart | None:
    """Return a chart of the extra time by cause, as shares of the baseline's time; the unexplained rest is
    one bar."""
    a = cell.attribution
    return _bars(
        cell,
        () if a is None else a.causes,
        ("not explained by these", None if a is None else a.unexplained),
        p,
        kind="causes",
        title="Why it went there",
        ending="Causes cut across the phases: a rank is throttled while it computes, or while it waits for "
        "one that is.",
    )


def _bars(
    cell: Cell,
    measured: Sequence[TimePart],
    rest: tuple[str, Interval | None],
    p: Palette,
    *,
    kind: str,
    title: str,
    ending: str,
) -> Chart | None:
    if not measured:
        return None
    parts = [(one_line(part.name), part.overhead) for part in measured]
    if rest[1] is not None:
        parts.append((rest[0], rest[1]))
    multiples = max(abs(i.centre) for _, i in parts) > 1
    scale, unit = (1.0, "multiples") if multiples else (100.0, "%")
    rows: list[JsonValue] = [_part(name, i, scale) for name, i in parts]
    order: list[JsonValue] = [name for name, _ in parts]
    y: Spec = {
        "field": "part",
        "type": "nominal",
        "sort": order,
        "axis": {"title": None, "labelColor": p.ink},
    }
    along = f"of the baseline's time, {unit}"
    x: Spec = {"field": "x", "type": "quantitative", "axis": {"title": along, "tickCount": 6}}
    bars: Spec = {
        "mark": {"type": "bar", "color": p.interval, "stroke": p.arm, "strokeWidth": 1, "tooltip": True},
        "encoding": {
            "y": y,
            "x": x,
            "tooltip": [tip("part", "part", None), *(tip(k, k, ".3~f") for k in ("x", "low", "high"))],
        },
    }
    whiskers: Spec = {
        "mark": {"type": "rule", "color": p.ink, "strokeWidth": 1.5},
        "encoding": {"y": y, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
    }
    return Chart(
        kind=kind,
        title=title,
        caption=f"Bars: additional time in {unit} of the baseline's, n {cell.n}; "
        f"lines: {cell.confidence * 100:.3g} % intervals. {ending}",
        height=34 * len(rows) + 10,
        spec={"data": {"values": rows}, "layer": [bars, whiskers]},
    )


CHARTED = {
    "stop": "stops",
    "removed": "stops",
    "exec": "commands",
    "checkpoint": "checkpoints",
    "pause": "checkpoints",
    "stopped": "standstills",
    "total": "moves",
    "silence": "moves",
}
"""What a distribution is of, by metric; starts if it is not here."""


def ecdf(cell: Cell, p: Palette) -> Chart | None:
    """Return a chart of both sides' distribution functions, with order-statistic intervals of the arm's
    quantiles.
    """
    q = cell.quantiles
    if q is None or not q.values or not q.baseline_values:
        return None
    factor, unit = value_unit(cell, [cell.baseline_value.centre, cell.value.centre])
    base, arm = one_line(cell.baseline), one_line(cell.arm)
    what = CHARTED.get(cell.metric, "starts")
    most = max(*q.baseline_values, *q.values) * factor
    rows: list[JsonValue] = []
    for name, values in ((base, q.baseline_values), (arm, q.values)):
        ranked = [(v * factor, (i + 1) / len(values)) for i, v in enumerate(sorted(values))]
        rows.append({"side": name, "x": short(ranked[0][0]), "share": 0.0})
        rows.extend({"side": name, "x": short(v), "share": short(f)} for v, f in thin(ranked, 500))
        rows.append({"side": name, "x": short(most), "share": 1.0})
    known = [(s, i) for s, i in ((50, q.p50), (90, q.p90), (95, q.p95), (99, q.p99)) if i is not None]
    bars: list[JsonValue] = [
        {
            "q": f"p{s}",
            "share": s / 100,
            "low": i.low * factor,
            "x": i.centre * factor,
            "high": i.high * factor,
        }
        for s, i in known
    ]
    domain: list[JsonValue] = [base, arm]
    side: Spec = {"field": "side", "scale": {"domain": domain, "range": [p.base, p.arm]}}
    dash: Spec = {"field": "side", "scale": {"domain": domain, "range": [[5, 3], [1, 0]]}}
    y: Spec = {
        "field": "share",
        "type": "quantitative",
        "axis": {"title": f"share of {what}", "format": ".0%", "tickCount": 5},
    }
    scale = value_scale(min(*q.baseline_values, *q.values) * factor, most)
    x: Spec = {"field": "x", "type": "quantitative", "scale": scale, "axis": value_axis(unit, scale)}
    layers: list[JsonValue] = [
        layer(
            rows,
            {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8},
            {"x": x, "y": y, "color": side, "strokeDash": dash, "order": {"field": "share"}},
        ),
        layer(
            bars,
            {"type": "rule", "color": p.ink, "strokeWidth": 1.5},
            {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
        ),
        layer(
            bars,
            {"type": "point", "shape": "diamond", "filled": True, "size": 60, "color": p.ink, "opacity": 1},
            {
                "x": x,
                "y": y,
                "tooltip": [tip("q", "quantile", None), *(tip(k, k, ".4~g") for k in ("x", "low", "high"))],
            },
        ),
    ]
    missing = [f"p{s}" for s, i in ((50, q.p50), (90, q.p90), (95, q.p95), (99, q.p99)) if i is None]
    caption = f"Share of {what} that took at most this long, in {unit}; one of each round, drawn beforehand"
    caption += f", n {q.n}."
    caption += " Diamonds: quantiles of the environment with order-statistic intervals." if known else ""
    caption += f" Not estimable at this n: {', '.join(missing)}." if missing else ""
    return Chart(kind="ecdf", title="Distribution", caption=caption, height=200, spec={"layer": layers})


def floor(noise: NoiseFloor, p: Palette) -> Chart | None:
    """Return a chart of the baseline against itself: one interval per metric, with the margin as a band."""
    cells = [c for c in noise.cells if bounded(c)]
    if not cells:
        return None
    rows: list[JsonValue] = [
        {"metric": metric_label(c), "low": c.low * 100, "x": c.overhead * 100, "high": c.high * 100, "n": c.n}
        for c in cells
    ]
    margin = min(c.margin for c in cells)
    low: Spec = {"field": "low", "type": "quantitative"}
    high: Spec = {"field": "high"}
    band = layer(
        [{"low": -margin / (1 + margin) * 100, "high": margin * 100}],
        {"type": "rect", "color": p.margin},
        {"x": {**low, "axis": {"title": "baseline against itself, %", "tickCount": 8}}, "x2": high},
    )
    y = metric_axis(p)
    tips = interval_tips(tip("metric", "metric", None), centre="x")
    interval = layer(
        rows,
        {"type": "rule", "color": p.base, "strokeWidth": 3},
        {"y": y, "x": low, "x2": high, "tooltip": tips},
    )
    centre = layer(
        rows,
        {"type": "point", "filled": True, "size": 40, "color": p.base, "opacity": 1},
        {"y": y, "x": {"field": "x", "type": "quantitative"}, "tooltip": tips},
    )
    return Chart(
        kind="floor",
        title="Noise floor",
        caption=f"The baseline against itself: {cells[0].confidence * 100:.3g} % interval of each metric, "
        f"n up to {max(c.n for c in cells)} rounds. Grey band: margin {margin_text(margin)}.",
        height=24 * len(rows) + 10,
        spec={"layer": [band, interval, centre]},
    )


def _part(name: str, i: Interval, scale: float) -> Spec:
    ends = {k: v * scale if math.isfinite(v) else None for k, v in (("low", i.low), ("high", i.high))}
    return {"part": name, "x": i.centre * scale, **ends}
