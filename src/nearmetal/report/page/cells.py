"""The detail view of one cell: its numbers in sentences, its charts, and its counters."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...analysis.published import published_column
from ...model.result import Cell, Interval, Quantiles
from ...model.study import Better
from ...plan import MOST_SLICES, kalibera_jones_plan
from ...units import show_clock, show_effect
from ..charts.cells import charts_of
from ..charts.chart import Chart
from ..record_index import ArmReports, CounterLine, RecordIndex, facts_texts, pages_text, share_text
from ..tables.cells import Entry, bounded, cause_sentence, difference_text, margin_text, value_text
from ..tables.roofs import roof_text, share_figure
from ..text import one_line, plural, tight
from .markup import Markup, join, table, tag
from .trouble import tcp_trouble

Draw = Callable[[Chart], Markup]
NOT_DRAWN = (
    "The charts of this figure are not on the page, which draws those of the most important figures only. "
    "nearmetal report --figures draws all of them as files."
)


def cell_details(e: Entry, records: RecordIndex, draw: Draw | None) -> Markup:
    """Return sentence, numbers, charts, transport and placement, and counters of a cell.

    draw: draws a chart. If it is None, the charts are left out, and a sentence says so.
    """
    drawn = tag("p", NOT_DRAWN, class_="quiet")
    if draw is not None:
        drawn = tag("div", *(draw(c) for c in charts_of(e.cell, records)), class_="charts")
    return join(
        tag("p", _sentence(e)),
        drawn,
        _facts(e.cell),
        tcp_trouble(e.cell, records),
        _seen(e.cell, records),
        _counters(records.counters(e.cell), records.seen(e.cell.arm)),
    )


def _sentence(e: Entry) -> str:
    c = e.cell
    text = f"{e.overhead} {e.interval} in time against {one_line(c.baseline)}: {e.verdict}, n {c.n}."
    if c.attribution is not None and c.attribution.sentence:
        text += f" Likely cause: {one_line(cause_sentence(c.attribution))}."
    if c.blocks_needed is not None:
        text += f" About {plural(c.blocks_needed, 'round')} more would decide it at the present spread."
    return text


def _facts(c: Cell) -> Markup:
    facts = [
        ("baseline", f"{value_text(c.baseline_value, c.unit)}, n {c.n}"),
        ("this environment", f"{value_text(c.value, c.unit)}, n {c.n}"),
        ("difference", f"{difference_text(c)}, n {c.n}" if difference_text(c) else ""),
        ("upper bound", _roof(c)),
        ("better", f"{c.better.value} is better; overheads are of time in both cases"),
        ("margin", f"{margin_text(c.margin)}, {c.confidence * 100:.3g} % confidence"),
        ("smallest material", _smallest(c)),
        ("sign interval", f"{_theta(c.sign)} (median; robust to one-sided jitter)"),
        ("mean", f"{_theta(c.mean)} (approximate, carries no verdict)"),
        ("total", _total(c)),
        ("loss of rate", _published(c)),
        ("spread", _spread(c)),
        ("Holm's p", "" if c.p_holm is None else f"{c.p_holm:.2g} (extra; overturns no verdict)"),
        ("e-BH", _discovery(c)),
        ("kind", "exploratory" if c.exploratory else "confirmatory"),
        ("decided", _decided(c)),
        ("failed", _failed(c)),
        ("note", one_line(c.reason)),
        *_quantiles(c.quantiles, c.unit),
    ]
    parts = [part for name, value in facts if value for part in (tag("dt", name), tag("dd", tight(value)))]
    return join(tag("h4", "Numbers"), tag("dl", *parts, class_="facts"))


def _decided(c: Cell) -> str:
    if c.decided_block is None:
        return ""
    when = f", {show_clock(c.decided_seconds)} into the run" if c.decided_seconds is not None else ""
    return f"after round {c.decided_block}{when}"


def _failed(c: Cell) -> str:
    """Describe the failed blocks. A block in which one side failed counts in n as infinitely slow."""
    sides = (("this environment", c.failed_blocks), ("the baseline", c.baseline_failed_blocks))
    parts = [f"{who} in {plural(len(blocks), 'round')}" for who, blocks in sides if blocks]
    return "; ".join(parts) or (f"{plural(c.failed, 'round')} cannot be compared" if c.failed else "")


def _total(c: Cell) -> str:
    if c.total is None or c.total.low <= -1 or not math.isfinite(c.total.high):
        return ""
    share = f"{show_effect(c.total.centre, c.total.low, c.total.high)}"
    return f"{share} for all rounds together (arithmetic means, Fieller; carries no verdict)"


def _published(c: Cell) -> str:
    """Return the loss of a rate as text, (base - env) / base, as some papers define overhead; '' for a metric
    of which less is better, and without a bounded interval."""
    if c.better is Better.LOWER or not bounded(c):
        return ""
    f = published_column(c)
    return f"{100 * f.centre:.3g} % [{100 * f.low:.3g} … {100 * f.high:.3g}] of the baseline"


def _spread(c: Cell) -> str:
    s = c.spread
    if s is None:
        return ""
    one, beyond = (100 * math.sqrt(max(v, 0.0)) for v in (s.slice_variance, s.block_variance))
    shown = f"one measurement {one:.2g} %, rounds beyond that {beyond:.2g} %; {s.slices} measurements a round"
    if s.slice_seconds <= 0 or s.other_seconds <= 0:
        return shown
    best, *_ = kalibera_jones_plan(
        costs=(s.slice_seconds, s.other_seconds),
        t2=(s.slice_variance, s.block_variance),
        r_max=MOST_SLICES,
    )
    return f"{shown}, {best} would use the time best (Kalibera and Jones; a guide)"


def _discovery(c: Cell) -> str:
    if c.discovered is None or c.e is None:
        return ""
    shown = "differs from 0" if c.discovered else "no difference claimed"
    return f"{shown} at a false discovery rate of 5 % over all comparisons (e {c.e:.2g})"


def _roof(c: Cell) -> str:
    sides = ((c.roof, ""), (c.baseline_roof, "baseline: "))
    shown = [(who, roof) for roof, who in sides if roof is not None and roof.share <= 1]
    return "; ".join(f"{who}{share_figure(roof.share)} of {roof_text(roof, c.unit)}" for who, roof in shown)


def _smallest(c: Cell) -> str:
    if not bounded(c) or not math.isfinite(c.smallest_material):
        return "not bounded yet"
    return f"+{c.smallest_material * 100:.1f} %: the least that could have been called material at n {c.n}"


def _theta(i: Interval) -> str:
    """Return an interval of the logarithm of the time ratio as text, converted to overheads."""
    centre, low = math.expm1(i.centre), math.expm1(i.low)
    high = math.expm1(i.high) if i.high < 700 else math.inf
    return show_effect(centre, low, high)


def _quantiles(q: Quantiles | None, unit: str) -> list[tuple[str, str]]:
    if q is None:
        return []
    named = (("p50", q.p50), ("p90", q.p90), ("p95", q.p95), ("p99", q.p99))
    return [
        (name, f"{value_text(i, unit)}, n {q.n}" if i is not None else f"not estimable at n {q.n}")
        for name, i in named
    ]


def _seen(c: Cell, records: RecordIndex) -> Markup:
    rows = []
    for arm in (c.baseline, c.arm):
        seen = records.seen(arm)
        for title, found in (("transport", seen.transports), ("placement", seen.places)):
            parts = [f"{text} ({share_text(count, seen)})" for text, count in found[:3]]
            more = f"; and {len(found) - 3:,} more" if len(found) > 3 else ""
            rows += [
                tag("dt", f"{one_line(arm)}: {title}"),
                tag("dd", ("; ".join(parts) or "no records") + more),
            ]
        pages = pages_text(records.trials(arm), c.workload)
        if pages != "not reported":
            rows += [tag("dt", f"{one_line(arm)}: memory"), tag("dd", pages)]
        for text in facts_texts(records.trials(arm), c.workload):
            rows += [tag("dt", f"{one_line(arm)}: {one_line(c.workload)}"), tag("dd", one_line(text))]
    own = records.own_namespaces(c.arm, c.baseline)
    if own is not None:
        text = ", ".join(own) if own else "none: the same as the baseline's"
        rows += [tag("dt", "namespaces of its own"), tag("dd", text)]
    return join(tag("h4", "Transport, placement and pages seen"), tag("dl", *rows, class_="facts"))


def _counters(lines: tuple[CounterLine, ...], seen: ArmReports) -> Markup:
    if not lines:
        return Markup("")
    heads = (
        "counter",
        "baseline, median",
        "this environment, median",
        "its median round",
        "its slowest round",
    )
    rows = [
        [
            line.name,
            *(_count(v) for v in (line.baseline, line.arm, line.median_block, line.slowest_block)),
        ]
        for line in lines
    ]
    title = "Counters over a trial"
    looked_at = f"Medians over {seen.trials:,} of {seen.of:,} trials, evenly spaced."
    thinned = looked_at if seen.trials < seen.of else ""
    return join(
        tag("h4", title),
        tag("p", thinned, class_="sub") if thinned else "",
        table(heads, rows, label=title, numbers=True),
    )


def _count(value: float | None) -> str:
    return "unavailable" if value is None else f"{value:,.6g}".replace("-", "−")
