"""The sections of the page. Each is a pure function from the analysis to markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...model.record import JsonValue
from ...model.result import Analysis, Cell, Verdict
from ...model.study import Study
from ...units import show_clock
from ..charts.cells import floor
from ..record_index import ArmReports, RecordIndex, share_text
from ..tables.cells import (
    ArmLabel,
    ComparisonGroup,
    Entry,
    left_out_text,
    legend,
    next_steps,
    side,
    verdict_table,
)
from ..tables.floors import floors
from ..tables.nodes import HEADS as NODE_HEADS
from ..tables.nodes import alert_sentences, node_rows, scope_sentence, state_sentence
from ..tables.profile import HEADS, profile_lines
from ..tables.trust import trust_in
from ..text import one_line, plural, tight
from .cells import Draw, cell_details
from .markup import Markup, cards, column_head, escape, folded, join, row_head, table, tag

CHIP: Mapping[Verdict, str] = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.EQUIVALENT: "equal",
    Verdict.NONE: "undecided",
    Verdict.INCONSISTENT: "odd",
}

MOST_DRAWN = 100
"""Maximum number of cells whose charts are drawn. The charts of one cell take about 20 ms."""


def verdicts(study: Study, analysis: Analysis) -> Markup:
    """Return a table of figures for each baseline and placement, and the legend."""
    tables = [_verdict_table(g, i) for i, g in enumerate(verdict_table(study, analysis))]
    left_out = left_out_text(analysis)
    items = [tag("li", part) for line in legend(study, analysis) for part in line.split("   ")]
    return folded(
        "verdicts",
        f"Every figure ({len(analysis.cells)})",
        *tables,
        tag("p", tight(left_out), class_="quiet") if left_out else "",
        tag("ul", *items, class_="legend"),
        *(tag("p", step, class_="quiet") for step in next_steps(analysis, None)),
    )


def _verdict_table(group: ComparisonGroup, number: int) -> Markup:
    rows = []
    for line in group.lines:
        cells = [
            row_head(line.label),
            tag("td", line.baseline, class_="number", role="cell", data_label=group.baseline.title),
        ]
        for c in group.columns:
            e = line.entries.get(c.arm)
            cells.append(tag("td", _entry(e) if e else "no figure", role="cell", data_label=c.full))
        rows.append(cells)
    explanation = (
        f"Overhead in time, with interval, against {group.baseline.full} (its median in the first column)."
    )
    heads = (column_head("metric"), _arm_head(group.baseline, "number"), *map(_arm_head, group.columns))
    return cards(heads, rows, explanation, kind="verdicts", caption=True, key=f"verdicts-{number}")


def _arm_head(of: ArmLabel, kind: str | None = None) -> Markup:
    below = (tag("small", text) for text in (of.shape, of.network) if text)
    return column_head(of.environment, *below, kind=kind)


def _entry(e: Entry) -> Markup:
    effect = tag("a", tag("b", e.overhead), f" {e.interval}", class_="effect", href=f"#cell-{e.number}")
    notes = [tag("span", tight(text), class_="sub") for text in _notes(e)]
    return join(effect, tag("span", chip(e), " ", e.n, class_="sub"), *notes)


def _notes(e: Entry) -> list[str]:
    material = e.cell.verdict in (Verdict.SLOWER, Verdict.FASTER)
    return [s for s in (e.difference if material else "", e.cause, e.nodes) if s]


def chip(e: Entry) -> Markup:
    """Return the symbol and word of a verdict on a coloured background."""
    return tag("span", e.verdict, class_=f"chip {CHIP[e.cell.verdict]}")


def nodes(study: Study, analysis: Analysis) -> Markup:
    """Return the section on several nodes: each figure for these nodes, for nodes like these, and for each
    node alone; empty for one node."""
    if analysis.nodes is None:
        return Markup("")
    said = (scope_sentence(analysis), *alert_sentences(study, analysis), state_sentence(analysis))
    explanation = (
        "These nodes: the ranks of each node, added with equal weights. Nodes like these: the centres of the "
        "nodes are the sample, so more nodes narrow the interval, and more rounds hardly do. A node alone is "
        "shown without correction for the number of nodes."
    )
    return folded(
        "nodes",
        f"Nodes ({len(analysis.nodes.rounds)})",
        *(tag("p", f"{text}.") for text in said if text),
        table(NODE_HEADS, node_rows(study, analysis), label="Nodes"),
        tag("p", explanation, class_="quiet"),
    )


def noise_floor(study: Study, analysis: Analysis, draw: Draw) -> Markup:
    """Return the comparisons of the baseline with itself: figures by kind of work, and a chart by metric."""
    noise = analysis.noise_floor
    figures = []
    for f in floors(study, noise):
        n = max(c.n for c in f.cells)
        beside = f"n {n}" + (f"; {f.wider}" if f.wider else "")
        figures.append(tag("li", tag("b", f.figure), f"{f.group}, ", tag("span", beside, class_="quiet")))
    chart = floor(noise)
    count = f"{plural(analysis.blocks, 'round')} in {show_clock(analysis.elapsed)}"
    return folded(
        "noise-floor",
        "Noise",
        tag("p", f"Trust in this run: {trust_in(study, noise).sentence}. {count}."),
        tag("ul", *figures, class_="floors"),
        draw(chart) if chart else tag("p", "No interval is bounded yet.", class_="quiet"),
    )


def cells(
    study: Study, analysis: Analysis, records: RecordIndex, draw: Draw, later: Callable[[Markup], Markup]
) -> Markup:
    """Return the details of every figure.

    later: stores content that the page unpacks when a reader opens it, and returns an empty box for it.
    """
    drawn = _most_important(analysis.cells)
    groups = []
    for group in verdict_table(study, analysis, with_open_ends=True):
        for column in group.columns:
            groups.append(tag("h3", column.full))
            groups.append(tag("p", f"against {group.baseline.full}", class_="quiet"))
            groups.extend(
                _cell(line.label, e, later(cell_details(e, records, draw if e.number in drawn else None)))
                for line, e in group.entries(column)
            )
    button = tag("button", "Open all", type="button", id="open-all", hidden=True, aria_pressed="false")
    without = "These details need JavaScript; report.md beside this page holds the figures."
    return folded(
        "cells",
        "Details of every figure",
        button,
        tag("noscript", tag("p", without, class_="note")),
        *groups,
    )


def _most_important(cells: Sequence[Cell]) -> set[int]:
    """Return the indices of the cells whose charts are drawn, at most MOST_DRAWN. Inconsistent cells come
    first, then slower, faster, undecided and equivalent ones."""
    order = [Verdict.INCONSISTENT, Verdict.SLOWER, Verdict.FASTER, Verdict.NONE, Verdict.EQUIVALENT]
    return set(sorted(range(len(cells)), key=lambda i: order.index(cells[i].verdict))[:MOST_DRAWN])


def _cell(label: str, e: Entry, inside: Markup) -> Markup:
    summary = tag(
        "summary",
        tag("span", label, class_="name"),
        tag("span", tag("b", e.overhead), f" {e.interval}", class_="effect"),
        tag("span", e.n, class_="n"),
        tag("span", chip(e)),
    )
    return tag("details", summary, inside, class_="cell", id=f"cell-{e.number}")


def what_ran(study: Study, analysis: Analysis, records: RecordIndex) -> Markup:
    """Return transport, placement and disturbance of every arm, as its trials reported them."""
    names = dict.fromkeys(a for c in analysis.cells for a in (c.baseline, c.arm))
    rows = [[side(study, arm).full, *_seen_cells(records.seen(arm))] for arm in names]
    heads = ("environment", "MPI transport seen", "placement seen", "disturbance")
    overall = ", ".join(f"{one_line(k)} {_share(v)}" for k, v in analysis.disturbance.items())
    return folded(
        "seen",
        "What was really run",
        tag("p", "As the ranks themselves reported it. What could not be read is unavailable, never zero."),
        table(heads, rows, label="What was really run"),
        tag("p", f"Over all trials: {overall}.", class_="quiet") if overall else "",
    )


def time_spent(study: Study, analysis: Analysis, records: RecordIndex) -> Markup:
    """Return seconds, calls and messages by workload and arm, if the study requested a profile."""
    names = {a: side(study, a).full for c in analysis.cells for a in (c.baseline, c.arm)}
    lines = profile_lines(tuple(names), records)
    if not lines:
        return Markup("")
    rows = [[one_line(text) for text in replace(line, arm=names[line.arm]).cells()] for line in lines]
    explanation = (
        "One full run of each workload, as the MPI profile of its ranks counted it: medians over trials, "
        "seconds as means over ranks, calls and messages of all ranks. Messages are those between two ranks; "
        "what a collective call sends inside is counted as the call alone."
    )
    return folded(
        "time-spent",
        "Where the time went",
        tag("p", explanation),
        table(HEADS, rows, label="Where the time went", numbers=True),
    )


def _seen_cells(seen: ArmReports) -> list[Markup]:
    """Return the cells of transport, placement and disturbance."""
    if not seen.trials:
        return [escape("no records")] * 3
    disturbance = [
        f"{one_line(kind)}: " + (f"median {_share(v[0])}, at most {_share(v[1])}" if v else "unavailable")
        for kind, v in seen.disturbance
    ]
    flagged = [f"{flag} {share_text(count, seen)}" for flag, count in seen.flagged]
    return [
        _first([f"{text} ({share_text(count, seen)})" for text, count in seen.transports]),
        _first([f"{text} ({share_text(count, seen)})" for text, count in seen.places]),
        _first(disturbance + flagged),
    ]


def _first(lines: Sequence[str], at_most: int = 4) -> Markup:
    shown = [tag("div", line) for line in lines[:at_most]]
    more = len(lines) - at_most
    return join(*shown, tag("div", f"and {more:,} more", class_="quiet") if more > 0 else "")


def parity(differences: Sequence[Mapping[str, JsonValue]]) -> Markup:
    """Return the differences between the arms that the parity audit found."""
    if not differences:
        inner = tag("p", "The audit found none.")
    else:
        heads = list(dict.fromkeys(k for d in differences for k in d))
        inner = table(
            heads, [[one_line(_as_text(d.get(k))) for k in heads] for d in differences], label="Differences"
        )
    return folded("parity", "Differences between the sides", inner)


def unused(analysis: Analysis, provenance: Mapping[str, JsonValue]) -> Markup:
    """Return what could not run, failed, was incomplete or was not used, with reasons."""
    rows = [[u.what, str(u.count), u.reason] for u in analysis.unused]
    absent = provenance.get("not_here")
    if isinstance(absent, dict):
        rows += [[arm, "all", _as_text(why)] for arm, why in absent.items()]
    counts = (
        f"{plural(analysis.torn_blocks, 'torn round')} run again or left out, "
        f"{plural(analysis.failed_trials, 'failed trial')}."
    )
    listed = [[one_line(text) for text in row] for row in rows]
    what = (
        table(("what", "count", "why"), listed, label="Not used")
        if listed
        else tag("p", "Everything that ran was used.")
    )
    return folded("unused", "Not used, or could not run", tag("p", counts), what)


def reproduce(study: Study, analysis: Analysis, commands: Sequence[str]) -> Markup:
    """Return the command lines that repeat the measurement."""
    explanation = (
        f"The order of all trials follows from the study and the seed {analysis.seed}; the results directory "
        "holds both."
    )
    design = study.design
    facts = [
        ("margin", f"±{design.margin * 100:.3g} %, fixed before the data"),
        ("confidence", f"{design.confidence * 100:.3g} %"),
        ("design", design.mode.value),
        *([("least rounds", f"{design.min_blocks} before a verdict")] if design.min_blocks else []),
        ("kind of study", "confirmatory: " + ", ".join(design.primary) if design.primary else "exploratory"),
    ]
    return folded(
        "reproduce",
        "How to measure this again",
        tag("pre", tag("code", "\n".join(one_line(c) for c in commands)), tabindex="0") if commands else "",
        tag("p", explanation),
        definition_list(facts),
    )


def provenance(found: Mapping[str, JsonValue]) -> Markup:
    """Return the contents of provenance.json, with one fold per part: hardware, kernel, versions, digests."""
    plain = [(k, _as_text(v)) for k, v in found.items() if not isinstance(v, (dict, list))]
    deep = [(k, v) for k, v in found.items() if isinstance(v, (dict, list)) and v and k != "not_here"]
    folds = [
        tag("details", tag("summary", one_line(k)), definition_list(_flat(v)), class_="plain")
        for k, v in deep
    ]
    return folded(
        "provenance",
        "Provenance",
        definition_list(plain) if plain else "",
        *folds,
        tag("p", "Nothing was recorded.") if not found else "",
    )


def glossary(analysis: Analysis) -> Markup:
    """Return explanations of the numbers."""
    confidence = ", ".join(dict.fromkeys(f"{c.confidence * 100:.3g} %" for c in analysis.cells)) or "95 %"
    terms = (
        ("±", "Half the width of an interval, never a standard deviation."),
        (
            "n",
            "Number of rounds. In a round every environment runs once and the first baseline twice, in fresh "
            "instances and in an order drawn from the seed; all runs of one instance give one value.",
        ),
        (
            "overhead",
            "Time-equivalent: +10 % means as if it took 10 % longer; a rate that falls by a third is +50 %. "
            "Beyond +100 % a factor is printed: ×3 is three times the time.",
        ),
        (
            "[low … high]",
            f"A {confidence} interval from the exact signed-rank test at times fixed beforehand, intersected "
            "over these times: valid at every time at which a run may end.",
        ),
        (
            "= equivalent",
            "The whole interval lies within the margin. Without that there is no verdict: "
            "not being significant never means that there is no overhead.",
        ),
        (
            "noise floor",
            "The baseline against itself (A/A), measured in the same rounds. Low: it is equivalent in all "
            "figures that decide. High: it may differ by more than the margin, and costs below that cannot "
            "be seen. Not trustworthy: it differs from itself, so no number of the study is to be trusted.",
        ),
        ("! inconsistent", "Intervals of different times do not meet: the machine changed during the run."),
    )
    items = [part for term, text in terms for part in (tag("dt", term), tag("dd", text))]
    return folded("glossary", "How to read this", tag("dl", *items, class_="glossary"))


def definition_list(facts: Sequence[tuple[str, str]]) -> Markup:
    """Return names and values side by side."""
    return tag(
        "dl",
        *(
            part
            for name, value in facts
            for part in (tag("dt", one_line(name)), tag("dd", tight(one_line(value))))
        ),
        class_="facts",
    )


def _share(value: float | None) -> str:
    return "unavailable" if value is None else f"{value * 100:.2g} %"


def _as_text(value: JsonValue) -> str:
    if value is None:
        return "unavailable"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_as_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_as_text(v) for v in value)
    return json.dumps(value)


def _flat(value: JsonValue, prefix: str = "") -> list[tuple[str, str]]:
    """Return the leaves of nested JSON with dotted names. Lists of plain values stay on one line."""
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in _flat(v, f"{prefix}.{k}" if prefix else k)]
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return [pair for i, v in enumerate(value) for pair in _flat(v, f"{prefix}[{i}]")]
    return [(prefix, _as_text(value))]
