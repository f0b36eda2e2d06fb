"""The answer of a run on one terminal screen, at most LINES lines. Returns text, prints nothing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...model.result import Analysis, Cell, Verdict
from ...model.study import Study
from ...records.disk import analyze_line, resume_line, try_line
from ...units import show_clock
from ..tables.answer import (
    NOTHING,
    Answer,
    AnswerRow,
    ArmAnswer,
    RowFigures,
    absent_sentences,
    answer,
    figures,
)
from ..tables.cells import bare_metal_text, bounded, margin_text, question_text, try_step
from ..tables.emulation import emulation_warnings
from ..tables.nodes import short_sentence
from ..tables.trust import trust_in
from ..text import MUCH_TIME, one_line, plural, show_length
from .columns import STYLES, append_wrapped, columns, cut, pad, wrap

if TYPE_CHECKING:
    from rich.text import Text

LINES = 30
WIDTH = 100
"""Maximum number of columns, also on a wider terminal."""
MOST_ROWS, MOST_ARMS = 14, 8
MOST_MOVES = 3
MOST_REASONS = 3
"""Maximum number of reasons of failures that are shown if there is nothing to compare."""
_GAP = "  "
_WORD_STYLES = {"slower": "bold red", "faster": "bold cyan", "equal": "green", "unsure": "bold magenta"}


def summary_text(
    study: Study,
    analysis: Analysis,
    *,
    machine: str,
    when: str,
    results_dir: str,
    report: str | None,
    width: int,
    absent: Mapping[str, str] = MappingProxyType({}),
    moves: Sequence[str] = (),
) -> Text:
    """Return the first screen of a result as rich Text; its `.plain` is for a pipe.

    machine, when: on which machine and at what time the run was made.
    results_dir: results directory, for the command that continues the run.
    report: path of the HTML page; None if there is none.
    width: columns of the terminal. Intervals are beside the figures, if necessary without spaces in them. If
        the terminal is too narrow for that, they are below the figures, or left out if the text would then
        exceed LINES.
    absent: environments that were not measured, with the reason.
    moves: sentences on where pre-copy stops converging, and on how long the ranks of jobs paused.
    """
    from rich.text import Text

    width = min(width, WIDTH)
    out, below = Text(), Text()
    for line in wrap(question_text(study, analysis), width):
        out.append(f"{line}\n", style="bold")
    rounds = f"{plural(analysis.blocks, 'round')} in {show_clock(analysis.elapsed)}"
    append_wrapped(out, f"{machine} · {when} · {rounds}", width, "dim")
    for warning in emulation_warnings(analysis):
        append_wrapped(out, warning, width, "bold red")
    out.append("\n")
    found = answer(study, analysis)
    if found is None:
        out.append(f"{NOTHING}\n")
        for why in list(dict.fromkeys(u.reason for u in analysis.unused if u.failed))[:MOST_REASONS]:
            append_wrapped(out, f"Failed: {one_line(why)}", width, "bold red")
    else:
        _sentences(out, found, width)
        for sentence in absent_sentences(absent):
            append_wrapped(out, sentence, width, "dim")
        out.append("\n")
    for words in moves[:MOST_MOVES]:
        _labelled(below, "Moves", words, width)
    trust = trust_in(study, analysis.noise_floor)
    _labelled(below, "Noise", trust.sentence, width, alert=trust.alert)
    nodes, unlike = short_sentence(analysis)
    if nodes:
        _labelled(below, "Nodes", nodes, width, alert=unlike)
    step, command = _next(analysis, found, results_dir)
    if step:
        _labelled(below, "Next", step, width, command=command)
    if report is not None:
        step = f"{report}; every figure"
        _labelled(below, "Report", step, width, command=analyze_line(results_dir))
    if found is not None and found.table:
        room = LINES - sum(len(text.plain.splitlines()) for text in (out, below))
        out.append_text(_table_and_legend(study, analysis, found, width, room))
    return out.append_text(below)


class _Ranges(Enum):
    """The position of the intervals in the table."""

    BESIDE = "beside the figures"
    TIGHT = "beside the figures, without spaces in them"
    BELOW = "below the figures"
    ABSENT = "nowhere"


def _table_and_legend(study: Study, analysis: Analysis, found: Answer, width: int, room: int) -> Text:
    """Return the table and its legend.

    room: number of lines that are left for them. If they need more with the intervals below the figures, the
        intervals are left out.
    """
    from rich.text import Text

    margin = margin_text(max(c.margin for c in analysis.cells)).removeprefix("±")
    confidence = f"{max(c.confidence for c in analysis.cells) * 100:.3g} %"
    unsure = any(c.verdict is Verdict.INCONSISTENT for c in analysis.cells)
    changed = ", ! changed while it was measured" if unsure else ""
    bare = f" {text}." if (text := bare_metal_text(study)) else ""
    for ranges in _Ranges:
        out = Text()
        fits = _table(out, found, width, ranges)
        shown = f", with {confidence} intervals"
        if ranges is _Ranges.ABSENT:
            shown = f". {confidence} intervals: see the report, or --all"
        legend = (
            f"▲ slower by more than {margin}, ▼ faster, = within {margin}, ? undecided{changed}. "
            f"Figures compare times, for rates too: ×2 is twice as long{shown}.{bare}"
        )
        append_wrapped(out, legend, width, "dim")
        if fits and (ranges is not _Ranges.BELOW or len(out.plain.splitlines()) <= room):
            break
    return out


def _sentences(out: Text, found: Answer, width: int) -> None:
    shown = found.arms[:MOST_ARMS]
    names = max(columns(a.name) for a in shown)
    words = max(len(a.word) for a in shown)
    indent = names + words + 2 * len(_GAP)
    most = 2 if len(shown) <= MOST_ARMS // 2 else 1
    for a in shown:
        out.append(pad(a.name, names), style="bold")
        out.append(_GAP)
        out.append(pad(a.word, words), style=_WORD_STYLES.get(a.word, "dim"))
        lines = _fitting(a, width - indent, most)
        out.append(_GAP + f"\n{' ' * indent}".join(lines) + "\n")
    if len(found.arms) > len(shown):
        out.append(f"… and {len(found.arms) - len(shown)} more: --all\n", style="dim")


def _fitting(a: ArmAnswer, width: int, most: int) -> list[str]:
    """Return the lines of a sentence, with as many of its parts as fit. The end gives the number of the
    others.

    width: maximum number of columns of a line.
    most: maximum number of lines, apart from one that only gives that number.
    """
    lines = [""]
    for i, part in enumerate(a.parts):
        left = len(a.parts) - i
        room = width - len(f"; and {left - 1} more") if left > 1 else width
        joined = f"{lines[-1]}; {part}" if lines[-1] else cut(part, room if most == 1 else width - 1)
        if columns(joined) <= (room if len(lines) == most else width - 1):
            lines[-1] = joined
        elif len(lines) < most and columns(part) <= room:
            lines[-1] += ";"
            lines.append(part)
        else:
            more = f"; and {left} more"
            if columns(lines[-1] + more) <= width:
                lines[-1] += more
            else:
                lines[-1] += ";"
                lines.append(more.removeprefix("; "))
            break
    return lines


def _table(out: Text, found: Answer, width: int, ranges: _Ranges) -> bool:
    """Append the table to `out`, and return whether it fits with these intervals."""
    arms = found.arms[:MOST_ARMS]
    rows = found.table[:MOST_ROWS]
    if len(arms) > 3 and len(rows) <= 2:
        _ranking(out, rows, arms, found.baseline.environment)
    elif _width(lines := _grid(found, rows, arms, ranges)) <= width:
        _print(out, lines)
    elif ranges is _Ranges.ABSENT:
        for arm in arms:
            out.append(f"{arm.name}\n", style="bold")
            _print(out, _grid(found, rows, [arm], ranges)[1 + bool(arm.where) :])
    else:
        return False
    if len(found.table) > len(rows):
        out.append(f"… and {plural(len(found.table) - len(rows), 'row')} more: --all\n", style="dim")
    return True


_Line = list[tuple[str, str]]


def _width(lines: Sequence[_Line]) -> int:
    return max(sum(columns(text) for text, _ in line) for line in lines)


def _grid(
    found: Answer, rows: Sequence[AnswerRow], arms: Sequence[ArmAnswer], ranges: _Ranges
) -> list[_Line]:
    """Return the lines of the table as lists of (text, style): one or two head lines, then one line for each
    row, and a second one for its intervals if they are below the figures."""
    labels = max(columns(r.label) for r in rows)
    base = max(columns(found.baseline.environment), *(columns(r.baseline) for r in rows))
    shown = [_column(rows, arm, ranges) for arm in arms]
    wide = [
        max(columns(arm.environment), columns(arm.where), columns(cells[0][0]))
        for arm, cells in zip(arms, shown, strict=True)
    ]
    head: _Line = [(" " * labels + _GAP + pad(found.baseline.environment, base, right=True), "bold")]
    head += [(_GAP + pad(arm.environment, w), "bold") for arm, w in zip(arms, wide, strict=True)]
    lines = [head]
    if any(arm.where for arm in arms):
        below: _Line = [(" " * (labels + len(_GAP) + base), "bold")]
        lines.append(
            [*below, *((_GAP + pad(arm.where, w), "bold") for arm, w in zip(arms, wide, strict=True))]
        )
    for i, row in enumerate(rows):
        line: _Line = [(pad(row.label, labels) + _GAP + pad(row.baseline, base, right=True), "")]
        line += [(_GAP + pad(cells[i][0], w), cells[i][1]) for cells, w in zip(shown, wide, strict=True)]
        lines.append(line)
        if ranges is _Ranges.BELOW:
            below = [(" " * (labels + len(_GAP) + base), "")]
            below += [(_GAP + pad(cells[i][2], w), "dim") for cells, w in zip(shown, wide, strict=True)]
            lines.append(below)
    return lines


def _column(rows: Sequence[AnswerRow], arm: ArmAnswer, ranges: _Ranges) -> list[tuple[str, str, str]]:
    """Return, for each row, the figures of one arm as text, their style, and the interval if it is below the
    figures, else ''."""
    found = [figures(row.cells[arm.arm]) if arm.arm in row.cells else None for row in rows]
    overheads = max((columns(f.overhead) for f in found if f is not None), default=0)
    if ranges is _Ranges.TIGHT:
        found = [f and replace(f, interval=f.interval.replace(" … ", "…")) for f in found]
    wide = max((columns(f.interval) for f in found if f is not None), default=0)
    if ranges is not _Ranges.BELOW:
        beside = None if ranges is _Ranges.ABSENT else wide
        return [(*_figures_text(f, overheads, beside), "") for f in found]
    return [
        (pad(text, wide), style, f.interval if f is not None else "")
        for f in found
        for text, style in [_figures_text(f, overheads, None)]
    ]


def _figures_text(f: RowFigures | None, overheads: int, ranges: int | None) -> tuple[str, str]:
    if f is None:
        return " " * (overheads + (0 if ranges is None else ranges + 2) + 2), "dim"
    text = pad(f.overhead, overheads, right=True)
    if ranges is not None:
        text += _GAP + pad(f.interval, ranges)
    return f"{text} {f.symbol}", STYLES[f.verdict]


def _ranking(out: Text, rows: Sequence[AnswerRow], arms: Sequence[ArmAnswer], base: str) -> None:
    """Append a list of the arms for each row, smallest overhead first."""
    for row in rows:
        out.append(f"{row.label}   {base} {row.baseline}".rstrip() + "\n", style="bold")
        own = sorted((a for a in arms if a.arm in row.cells), key=lambda a: _order(row.cells[a.arm]))
        names = max(columns(a.name) for a in own)
        found = [figures(row.cells[a.arm]) for a in own]
        overheads, ranges = (
            max(map(columns, texts)) for texts in zip(*((f.overhead, f.interval) for f in found), strict=True)
        )
        for a, f in zip(own, found, strict=True):
            text, style = _figures_text(f, overheads, ranges)
            out.append(f"  {pad(a.name, names)}  ")
            out.append(f"{text}\n", style=style)


def _order(cells: Sequence[Cell]) -> float:
    return max((c.overhead if math.isfinite(c.overhead) else math.inf) for c in cells)


def _print(out: Text, lines: Sequence[_Line]) -> None:
    for line in lines:
        for text, style in line:
            out.append(text, style=style or None)
        out.rstrip()
        out.append("\n")


def _next(analysis: Analysis, found: Answer | None, results_dir: str) -> tuple[str, str]:
    """Return the next step and its command line; each is '' if there is none."""
    open_cells = analysis.undecided
    if not analysis.cells:
        failed = any(u.failed for u in analysis.unused)
        return (f"read {shlex.quote(results_dir)}/logs" if failed else ""), ""
    if not open_cells:
        if step := try_step(analysis):
            return step, try_line(results_dir)
        if any(c.verdict is Verdict.NONE for c in analysis.cells):
            return "nothing: the nodes disagree, and more rounds do not change that", ""
        return "nothing: every figure is decided", ""
    rows = found.rows if found is not None else ()
    deciding = {c.key for row in rows if not row.beside for cells in row.cells.values() for c in cells}
    wanted = [c for c in open_cells if c.key in deciding]
    settled = bool(deciding) and not wanted
    known = [
        c for c in wanted or open_cells if c.seconds_needed is not None and math.isfinite(c.seconds_needed)
    ]
    command = resume_line(results_dir)
    if not known:
        step = f"{plural(len(open_cells), 'figure')} of {len(analysis.cells)} undecided"
        first = (wanted or open_cells)[0]
        if bounded(first):
            return f"{step}; a longer run alone will not help: quieten the machine, then go on by", command
        return f"{step}: {one_line(first.reason)}" if first.reason else step, command
    soonest = min(c.seconds_needed or 0.0 for c in known)
    count = sum((c.seconds_needed or 0.0) <= 2 * soonest for c in known)
    undecided = plural(len(open_cells), "undecided figure")
    if count == len(open_cells):
        undecided = "the undecided figure" if count == 1 else f"all {undecided}"
    else:
        undecided = f"{count} of {undecided}"
    step = f"{undecided} {'needs' if count == 1 else 'need'} about {show_length(2 * soonest)} more"
    if settled:
        step = f"the sentences above are settled; {step}"
    return step + ("; quieten the machine first" if soonest > MUCH_TIME else ""), command


def _labelled(
    out: Text, label: str, text: str, width: int, *, command: str = "", alert: bool = False
) -> None:
    indent = " " * 8
    whole = f"{text}:  {command}" if command else text
    lines = [whole] if columns(whole) + 8 <= width else wrap(f"{text}:" if command else text, width - 8)
    for i, line in enumerate(lines):
        out.append(pad(label, 8) if i == 0 else indent, style="bold")
        out.append(f"{line}\n", style="bold red" if alert else None)
    if command and lines != [whole]:
        out.append(f"{indent}{command}\n")
