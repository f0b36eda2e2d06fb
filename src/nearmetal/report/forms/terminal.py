"""The verdict table for a terminal: trust, table, next steps. Prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model.result import Analysis, Verdict
from ...model.study import Study
from ...plain_text import keep_in_line
from ...units import show_clock
from ..charts.curves import sentences
from ..tables.cells import (
    ArmLabel,
    ComparisonGroup,
    Entry,
    left_out_text,
    legend,
    next_steps,
    verdict_table,
)
from ..tables.floors import floors
from ..tables.inside import NOTHING, InsideRecord
from ..tables.nodes import alert_sentences, scope_sentence, state_sentence
from ..tables.roofs import roof_lines, share_figure
from ..tables.trust import trust_in
from ..text import one_line, plural
from .columns import STYLES, append_wrapped, columns, pad, wrap

if TYPE_CHECKING:
    from rich.text import Text

GAP = "  "
MOST_FAILED = 5
_DIM, _HEAD, _ALERT = "dim", "bold", "bold red"


def terminal_text(
    study: Study,
    analysis: Analysis,
    *,
    results_dir: str,
    report: str | None,
    width: int,
    inside: InsideRecord = NOTHING,
) -> Text:
    """Return the final output of `quick`, `run` and `analyze` as rich Text; its `.plain` is for a pipe.

    If a table is too wide, each comparison becomes a table of its own; if that is too wide as well, each
    metric takes two lines.
    results_dir: results directory, for command lines and the path of the logs.
    report: path of the HTML page; None if there is none.
    inside: counters that were read during the run.
    width: columns of the terminal.
    """
    from rich.text import Text

    out = Text()
    out.append_text(_noise_lines(study, analysis, width))
    groups = verdict_table(study, analysis)
    tables = [_wide(group) for group in groups]
    if any(_width(table) > width for table in tables):
        tables = [_narrow(group, width) for group in groups]
    for table in tables:
        out.append("\n")
        out.append_text(table)
    for words in filter(None, (left_out_text(analysis), *sentences(analysis.cells))):
        out.append("\n")
        append_wrapped(out, words, width)
    for words in _failed(analysis, results_dir):
        append_wrapped(out, words, width, _ALERT)
    out.append("\n")
    for line in legend(study, analysis):
        whole = columns(line) <= width
        for part in [line] if whole else [p for item in line.split("   ") for p in wrap(item, width)]:
            out.append(part + "\n", style=_DIM)
    for words in _beside(analysis, inside):
        append_wrapped(out, words, width, _DIM)
    for step in (*next_steps(analysis, results_dir), *([f"Report: {report}"] if report else [])):
        out.append("\n".join(_command_wrapped(keep_in_line(step), width)) + "\n")
    return out


def _failed(analysis: Analysis, results_dir: str) -> list[str]:
    """Return lines on the results that have no value because of failures: one for each reason, then the
    directory of the logs."""
    by_reason: dict[str, list[str]] = {}
    for u in analysis.unused:
        if u.failed:
            by_reason.setdefault(u.reason, []).append(f"{u.what} ({u.count} ×)")
    if not by_reason:
        return []
    words = [one_line(f"Failed: {', '.join(what)}: {why}") for why, what in by_reason.items()]
    more = plural(len(words) - MOST_FAILED, "further reason")
    left = [f"{more} in the report"] if len(words) > MOST_FAILED else []
    return ["", *words[:MOST_FAILED], *left, f"Logs: {results_dir}/logs"]


def _beside(analysis: Analysis, inside: InsideRecord) -> list[str]:
    """Return lines on results as shares of their upper bounds, on the cost of sampling, and on perf events.

    Energy is in the report only.
    """
    by_roof: dict[str, dict[str, list[str]]] = {}
    for line in roof_lines(analysis):
        shares = by_roof.setdefault(line.roof, {}).setdefault(line.metric, [])
        shares.append(f"{line.arm} {share_figure(line.share)}")
    roofs = [
        f"Upper bound: {roof}: "
        + "; ".join(f"{metric} {', '.join(shares)}" for metric, shares in metrics.items())
        for roof, metrics in by_roof.items()
    ]
    counted = [f"{what.capitalize()}: {words}" for what, words in inside.lines() if what != "energy"]
    return [*roofs, *counted]


def _noise_lines(study: Study, analysis: Analysis, width: int) -> Text:
    from rich.text import Text

    found = trust_in(study, analysis.noise_floor)
    out = Text(f"{plural(analysis.blocks, 'round')} in {show_clock(analysis.elapsed)}\n")
    words = [f"Noise: {found.sentence}"]
    words += [f"{f.group}: {f.wider}" for f in floors(study, analysis.noise_floor) if f.wider]
    for line in words:
        append_wrapped(out, line, width, _ALERT if found.alert else None)
    if scope := scope_sentence(analysis):
        append_wrapped(out, f"Nodes: {scope}.", width)
    for line in filter(None, (*alert_sentences(study, analysis), state_sentence(analysis))):
        append_wrapped(out, f"{line}.", width, _ALERT)
    return out


def _wide(group: ComparisonGroup) -> Text:
    """Return a table with one row per metric and one column per comparison."""
    from rich.text import Text

    out = Text()
    parts = {c.arm: _part_widths([e for _, e in group.entries(c)]) for c in group.columns}
    head = {c.arm: max(_head_columns(c), _total(parts[c.arm])) for c in group.columns}
    labels = max(columns(line.label) for line in group.lines)
    base = max(_head_columns(group.baseline), *(columns(line.baseline) for line in group.lines))
    sides = [group.baseline, *group.columns]
    rooms = [base, *(head[c.arm] for c in group.columns)]
    for words in zip(*((s.environment, s.shape, s.network) for s in sides), strict=True):
        line = GAP.join([" " * labels, *(pad(w, room) for w, room in zip(words, rooms, strict=True))])
        out.append(line.rstrip() + "\n", style=_HEAD)
    for row_line in group.lines:
        out.append(pad(row_line.label, labels) + GAP + pad(row_line.baseline, base, right=True))
        causes: list[list[str]] = []
        for c in group.columns:
            room = head[c.arm]
            e = row_line.entries.get(c.arm)
            out.append(GAP)
            if e is None:
                out.append(pad("…", room))
                causes.append([])
                continue
            _append_entry(out, e, parts[c.arm], room)
            causes.append(wrap(_note(e), room - 2) if _note(e) else [])
        out.rstrip()
        out.append("\n")
        indent = " " * (labels + len(GAP) + base)
        rooms = [head[c.arm] for c in group.columns]
        _append_notes(out, causes, rooms, indent)
    return out


def _append_notes(out: Text, causes: Sequence[Sequence[str]], rooms: Sequence[int], indent: str) -> None:
    for i in range(max((len(c) for c in causes), default=0)):
        cells = [pad(f"  {c[i]}" if i < len(c) else "", room) for c, room in zip(causes, rooms, strict=True)]
        out.append((indent + GAP + GAP.join(cells)).rstrip() + "\n", style=_DIM)


def _narrow(group: ComparisonGroup, width: int) -> Text:
    """Return one table per comparison. A metric that does not fit on one line takes two."""
    from rich.text import Text

    out = Text()
    for i, column in enumerate(group.columns):
        lines = group.entries(column)
        parts = _part_widths([e for _, e in lines])
        labels = max(columns(x.label) for x, _ in lines)
        base = max(columns(x.baseline) for x, _ in lines)
        stacked = 2 + labels + base + _total(parts) + 2 * len(GAP) > width
        if i:
            out.append("\n")
        for text in wrap(column.full, width):
            out.append(text + "\n", style=_HEAD)
        for text in wrap(f"against {group.baseline.full}", width):
            out.append(text + "\n", style=_DIM)
        for line, e in lines:
            if stacked:
                out.append(f"  {line.label}: {line.baseline}\n    ")
            else:
                out.append(f"  {pad(line.label, labels)}{GAP}{pad(line.baseline, base, right=True)}{GAP}")
            _append_entry(out, e, parts, 0)
            out.rstrip()
            out.append("\n")
            for text in wrap(_note(e), width - 6) if _note(e) else ():
                out.append(f"      {text}\n", style=_DIM)
    return out


def _note(e: Entry) -> str:
    """Return the note below a cell: the absolute difference if it is material, the likely cause, and the
    results on several nodes."""
    shown = e.difference if e.cell.verdict in (Verdict.SLOWER, Verdict.FASTER) else ""
    return "; ".join(s for s in (shown, e.note) if s)


def _part_widths(entries: Sequence[Entry]) -> tuple[int, int, int, int]:
    """Return the widths of overhead, interval, n and verdict, in columns."""
    return (
        max(columns(e.overhead) for e in entries),
        max(columns(e.interval) for e in entries),
        max(columns(e.n) for e in entries),
        max(columns(e.verdict) for e in entries),
    )


def _total(parts: tuple[int, int, int, int]) -> int:
    return sum(parts) + 1 + 2 * len(GAP)


def _append_entry(out: Text, e: Entry, parts: tuple[int, int, int, int], room: int) -> None:
    numbers = f"{pad(e.overhead, parts[0], right=True)} {pad(e.interval, parts[1])}"
    out.append(f"{numbers}{GAP}{pad(e.n, parts[2])}{GAP}")
    out.append(pad(e.verdict, parts[3]), style=STYLES[e.cell.verdict])
    out.append(" " * max(0, room - _total(parts)))


def _head_columns(of: ArmLabel) -> int:
    return max(columns(of.environment), columns(of.shape), columns(of.network))


def _width(text: Text) -> int:
    return max(columns(line) for line in text.plain.splitlines())


def _command_wrapped(text: str, width: int) -> list[str]:
    """Return a step on one line. If it is too wide, its command is on a separate line, unbroken, so that it
    can be copied."""
    words, gap, command = text.partition(":  ")
    if columns(text) <= width or not gap:
        return [text]
    return [*wrap(f"{words}:", width), f"  {command}"]
