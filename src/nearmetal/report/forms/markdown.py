"""The verdict table as Markdown (GitHub's tables): for a pull request, an issue or a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...model.result import Analysis
from ...model.study import Study
from ...units import show_clock
from ..charts.curves import sentences
from ..page.trouble import trouble_lines
from ..tables.answer import answer_sentences
from ..tables.cells import ComparisonGroup, Entry, left_out_text, legend, question_text, verdict_table
from ..tables.floors import floors
from ..tables.inside import NOTHING, InsideRecord
from ..tables.nodes import HEADS, alert_sentences, node_rows, scope_sentence, state_sentence
from ..tables.roofs import roof_lines
from ..tables.trust import trust_in
from ..text import one_line, plural

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def escape(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", one_line(text).replace("&", "&amp;"))


def pipe_table(heads: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "") -> str:
    """Return a Markdown table.

    heads: text of each column's head.
    rows: texts of the cells. All texts are escaped.
    rule: the line between head and rows, which sets the alignment; '---' in every column if empty.
    """
    head, *lines = (f"| {' | '.join(map(escape, row))} |" for row in (heads, *rows))
    return "\n".join((head, rule or f"| {' | '.join('---' for _ in heads)} |", *lines))


def markdown_text(study: Study, analysis: Analysis, inside: InsideRecord = NOTHING) -> str:
    """Return the report: question, answer, noise, one table per comparison with its legend, and what was not
    used."""
    noise, left_out = analysis.noise_floor, left_out_text(analysis)
    wider = "".join(f" {escape(f'{f.group}: {f.wider}')}." for f in floors(study, noise) if f.wider)
    parts = [
        f"# {escape(question_text(study, analysis))}",
        "\n".join(f"- {escape(sentence)}" for sentence in answer_sentences(study, analysis)),
        f"Noise: {escape(trust_in(study, noise).sentence)}.{wider} "
        f"{plural(analysis.blocks, 'round')} in {show_clock(analysis.elapsed)}, seed {analysis.seed}.",
        *(table for group in verdict_table(study, analysis) for table in _tables(group)),
        *([f"{escape(left_out)}."] if left_out else []),
        "\n".join(f"- {escape(s)}" for line in legend(study, analysis) for s in line.split("   ")),
    ]
    parts += [escape(sentence) + "." for sentence in sentences(analysis.cells)]
    parts += _nodes(study, analysis)
    unused = [(f"{u.what} ({u.count})", u.reason) for u in analysis.unused]
    for title, lines in (
        ("TCP trouble", [": ".join(line) for line in trouble_lines(analysis)]),
        ("Upper bounds", [line.text for line in roof_lines(analysis)]),
        ("Counted inside the run", [": ".join(line) for line in inside.lines()]),
        ("Not used", [": ".join(line) for line in unused]),
    ):
        if lines:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {escape(line)}" for line in lines))
    return "\n\n".join(parts) + "\n"


def _nodes(study: Study, analysis: Analysis) -> list[str]:
    """Return the section on several nodes, or on machines that were drawn; an empty list for one node."""
    said = [scope_sentence(analysis), *alert_sentences(study, analysis), state_sentence(analysis)]
    if not any(said):
        return []
    listed = "\n".join(f"- {escape(s)}." for s in said if s)
    rows = node_rows(study, analysis)
    return [f"## Nodes\n\n{listed}" + (f"\n\n{pipe_table(HEADS, rows)}" if rows else "")]


def _tables(group: ComparisonGroup) -> list[str]:
    heads = ("metric", "baseline", "overhead", "interval", "n", "verdict", "likely cause")
    return [
        f"## {escape(column.full)}\n\nagainst {escape(group.baseline.full)}\n\n"
        + pipe_table(
            heads,
            [(line.label, line.baseline, *_cells(entry)) for line, entry in group.entries(column)],
            rule="|---|--:|--:|---|--:|---|---|",
        )
        for column in group.columns
    ]


def _cells(e: Entry) -> tuple[str, ...]:
    extra = f" ({e.difference.split(' [')[0]})" if e.difference else ""
    return e.overhead + extra, e.interval, e.n.removeprefix("n "), e.verdict, e.note
