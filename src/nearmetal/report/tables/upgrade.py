"""The answer to 'Did the upgrade hurt?' from a comparison over boots, as data. No I/O; independent of the
format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ...model.record import JsonValue
from ...model.result import Verdict
from ...records.json_files import to_json
from ...units import show, show_effect, show_overhead
from ..text import first_of, one_line, plural
from .answer import ANSWER_WORDS
from .cells import SYMBOLS, counted_by_reason, label_text
from .emulation import emulation_sentences
from .roofs import share_figure

if TYPE_CHECKING:
    from ...analysis.two_level import LeastBoots, StateCell

FORMAT = 1
MEANING = (
    "overhead, low, high and margin are shares of the time before (0.03 = +3 %). before and after are values "
    "in `unit`; of a cost they are shares of the baseline's time in the same run. null as an end of an "
    "interval: not bounded. boots counts boots before and after; runs of one boot count as one. verdict "
    "holds among all comparisons of the family, alone by itself."
)
UPGRADED = ("kernel", "distribution", "libc", "kernel command line", "firmware", "microcode")
"""Properties that an upgrade of the system may change.

If any other property differs, the sides cannot be compared directly.
"""
MOST_EFFECTS = 3
"""Maximum number of metrics of one arm in a sentence."""
_ORDER = (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT, Verdict.NONE, Verdict.EQUIVALENT)


class UpgradeAnswer(StrEnum):
    """Whether the upgrade hurt."""

    YES = "yes"
    NO = "no"
    OPEN = "undecided"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, kw_only=True)
class SystemChange:
    """A property that differs between the two sides.

    before, after: its values in the runs of each side; empty if no run recorded it.
    upgrade: whether an upgrade may change it.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    upgrade: bool


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """A comparison of the runs before and after an upgrade.

    boots, runs: numbers of boots and of runs (before, after).
    shared_boots: number of boots with runs on both sides.
    least: the least numbers of boots on each side.
    margin_exploratory: whether the margin was chosen after the data were measured.
    primary: whether the studies name primary metrics. Only these decide then.
    machine: the machine of the runs, in one line.
    not_compared: workloads and arms that could not be compared, with reasons.
    lost: those of them that were measured before but not after. It is unknown whether the upgrade hurt them.
    failed_trials: number of failed trials on both sides.
    """

    cells: tuple[StateCell, ...]
    boots: tuple[int, int]
    runs: tuple[int, int]
    shared_boots: int
    least: LeastBoots
    margin: float
    margin_exploratory: bool
    confidence: float
    primary: bool
    machine: str
    changes: tuple[SystemChange, ...]
    not_compared: tuple[str, ...]
    lost: tuple[str, ...]
    failed_trials: int

    @property
    def deciding(self) -> tuple[StateCell, ...]:
        """Return the comparisons that decide the answer; all of them if none is marked."""
        return tuple(c for c in self.cells if c.deciding) or self.cells

    @property
    def answer(self) -> UpgradeAnswer:
        verdicts = {c.verdict for c in self.deciding}
        if Verdict.SLOWER in verdicts:
            return UpgradeAnswer.YES
        if Verdict.NONE not in verdicts:
            return UpgradeAnswer.OPEN if self.lost else UpgradeAnswer.NO
        return UpgradeAnswer.OPEN if any(bounded(c) for c in self.deciding) else UpgradeAnswer.IMPOSSIBLE


@dataclass(frozen=True, kw_only=True)
class UpgradeRow:
    """One comparison as texts.

    subject: the compared arm, or its cost: 'cost of podman/1x2'.
    metric: 'cg.rate'.
    before, after: values of both sides, or overheads for a cost: '+1.0 %', '+6.2 %'.
    change, interval: change in time and its interval: '+5.1 %', '[+4 … +6]'.
    """

    cell: StateCell
    subject: str
    metric: str
    before: str
    after: str
    change: str
    interval: str

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.cell.verdict]


def bounded(c: StateCell) -> bool:
    """Return whether the interval has two ends."""
    return c.low > -1


def rows(u: Upgrade) -> tuple[UpgradeRow, ...]:
    """Return the comparisons that have an interval. Those that decide come first, then slower, faster,
    inconsistent, undecided and equivalent ones in this order, then larger changes.
    """
    known = [c for c in u.cells if bounded(c)]
    ordered = sorted(known, key=lambda c: (not c.deciding, _ORDER.index(c.verdict), -abs(c.overhead)))
    return tuple(_row(c) for c in ordered)


def _row(c: StateCell) -> UpgradeRow:
    change, _, interval = show_effect(c.overhead, c.low, c.high).partition(" [")
    before, after = (
        show_overhead(v) if c.baseline else one_line(show(v, c.unit)) for v in (c.before, c.after)
    )
    return UpgradeRow(
        cell=c,
        subject=subject(c),
        metric=metric(c),
        before=before,
        after=after,
        change=change,
        interval=f"[{interval}",
    )


def more_text(rows: Sequence[UpgradeRow]) -> str:
    """Return a summary of the rows that are not shown: '14 rows more (12 equal, 2 undecided)'."""
    counts = {words: sum(r.cell.verdict is v for r in rows) for v, words in ANSWER_WORDS.items()}
    each = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    return f"{plural(len(rows), 'row')} more ({each})"


def subject(c: StateCell) -> str:
    """Return the name of what is compared before and after: an arm ('native/1x2'), its overhead ('cost of
    podman/1x2'), or two arms ('bare/1x1 → pv/1x1')."""
    if c.baseline:
        return f"cost of {one_line(c.arm)}"
    return one_line(c.arm if c.other == c.arm else f"{c.arm} → {c.other}")


def metric(c: StateCell) -> str:
    """Return the name of the metric that is compared; see label_text()."""
    return label_text(c.workload, c.metric)


def sentence(u: Upgrade) -> str:
    """Return the answer as text: whether the upgrade hurt, in which comparisons and how much, what was not
    measured after it, and which other differences may be the reason."""
    other = ", ".join(one_line(c.name) for c in _other(u)[:MOST_EFFECTS])
    beside = f" The sides differ in more than the upgrade: {other}." if other else ""
    lost = first_of([one_line(name) for name in u.lost], MOST_EFFECTS)
    gone = f" Measured before, but not after: {lost}." if lost else ""
    return f"{_answer(u)}{gone}{beside}"


def _answer(u: Upgrade) -> str:
    cells, margin = u.deciding, share_figure(u.margin)
    by_verdict = {v: [c for c in cells if c.verdict is v] for v in Verdict}
    equal, faster, open_ = (by_verdict[v] for v in (Verdict.EQUIVALENT, Verdict.FASTER, Verdict.NONE))
    also = f" Faster: {_effects(faster)}." if faster else ""
    match u.answer:
        case UpgradeAnswer.IMPOSSIBLE:
            return f"No verdict possible: {_too_few(u)}. {least_sentence(u)}"
        case UpgradeAnswer.YES:
            return f"Yes, it hurt. Slower than before: {_effects(by_verdict[Verdict.SLOWER])}."
        case UpgradeAnswer.NO if not equal:
            return f"No, it helped.{also}"
        case UpgradeAnswer.NO:
            every = "" if faster else "all "
            return f"No: {every}{plural(len(equal), 'comparison')} within {margin} of before.{also}"
        case UpgradeAnswer.OPEN:
            alone = [c for c in open_ if c.alone is Verdict.SLOWER]
            chance = f" Slower if judged alone, which may be chance: {_effects(alone)}." if alone else ""
            within = f"{len(equal)} of {plural(len(cells), 'comparison')} within {margin}"
            counts = f"{within}, {len(open_)} undecided"
            return f"Not decided: no slowdown is proven, nor is it ruled out; {counts}.{chance}{also}"


def least_sentence(u: Upgrade) -> str:
    """Return a sentence that says how many boots a verdict needs."""
    family = len(u.deciding)
    least = f"A verdict needs at least {u.least.any_verdict} boots on each side"
    if u.least.material == u.least.any_verdict:
        return f"{least}."
    return f"{least}; to prove a slowdown in one of {family} comparisons, {u.least.material}."


def _too_few(u: Upgrade) -> str:
    if u.shared_boots:
        which = "both sides are of one boot" if set(u.boots) == {1} else "a boot is on both sides"
        return f"{which}, so nothing was booted in between"
    if set(u.boots) == {1}:
        return "one boot on each side"
    return f"{plural(u.boots[0], 'boot')} before and {u.boots[1]} after"


def _effects(cells: Iterable[StateCell]) -> str:
    """Return the effects as text, the largest first: 'native/1x2: cg +5.1 %, ep +4.0 %; cost of podman/1x2:
    cg +3.0 %'."""
    groups: dict[str, list[StateCell]] = {}
    for c in sorted(cells, key=lambda c: -abs(c.overhead)):
        groups.setdefault(subject(c), []).append(c)
    words = []
    for name, own in groups.items():
        effects = [f"{metric(c)} {show_overhead(c.overhead)}" for c in own]
        words.append(f"{name}: {first_of(effects, MOST_EFFECTS)}")
    return "; ".join(words)


def basis(u: Upgrade) -> str:
    """Return the number of boots and runs, the margin, and the kind of the intervals."""
    boots = f"{plural(u.boots[0], 'boot')} before ({plural(u.runs[0], 'run')})"
    boots += f", {u.boots[1]} after ({plural(u.runs[1], 'run')})"
    of = "chosen after the data: exploratory" if u.margin_exploratory else "as the studies planned"
    primary = "; primary metrics decide" if u.primary else ""
    return (
        f"{boots} · margin {share_figure(u.margin)}, {of} · {share_figure(u.confidence)} intervals{primary}"
    )


def changes_text(changes: Sequence[SystemChange]) -> str:
    """Return the changes of the system as text: 'kernel 6.1.0 → 6.18.0; MPI unknown → Open MPI 4.1.4'."""
    return "; ".join(f"{one_line(c.name)} {_values(c.before)} → {_values(c.after)}" for c in changes)


def _values(values: Sequence[str]) -> str:
    return first_of([one_line(_short(v)) for v in values], MOST_EFFECTS) or "unknown"


def _short(value: str) -> str:
    """Shorten a digest to twelve characters; return any other text unchanged."""
    digits = value.removeprefix("sha256:")
    return digits[:12] if len(digits) == 64 and set(digits) <= set("0123456789abcdef") else value or "none"


def notes(u: Upgrade) -> tuple[tuple[str, str], ...]:
    """Return (label, text) of each line below the table: properties that were upgraded, other differences,
    what was not compared, comparisons without an interval, and failed trials.

    If no comparison has an interval, the line about these is left out, because sentence() gives the reason.
    """
    without = [c.reason for c in u.cells if not bounded(c)]
    failed = f"{plural(u.failed_trials, 'trial')}, which are not compared" if u.failed_trials else ""
    found = (
        ("Upgraded", changes_text([c for c in u.changes if c.upgrade])),
        ("Also differs", changes_text(_other(u))),
        ("Not compared", "; ".join(one_line(n) for n in u.not_compared)),
        ("No interval", counted_by_reason("comparison", without) if len(without) < len(u.cells) else ""),
        ("Failed", failed),
    )
    return tuple((label, text) for label, text in found if text)


def _other(u: Upgrade) -> list[SystemChange]:
    """Return the differences that an upgrade does not explain."""
    return [c for c in u.changes if not c.upgrade]


def next_step(u: Upgrade) -> str:
    """Return the measurement that would decide the open comparisons; empty if there are none."""
    open_ = [c for c in u.deciding if c.verdict is Verdict.NONE]
    if not open_:
        return ""
    if not u.shared_boots and min(u.boots) >= u.least.material:
        return "more boots on each side narrow the intervals; longer runs do not"
    if u.answer is UpgradeAnswer.IMPOSSIBLE:
        return "boot several times on each side, run the same study after each boot, and compare all runs"
    return f"{least_sentence(u)[:-1]}; there are {u.boots[0]} and {u.boots[1]}"


def warnings(u: Upgrade) -> tuple[str, ...]:
    """Return warnings about the arms that were emulated."""
    return emulation_sentences((subject(c), c.guest) for c in u.cells)


def upgrade_json(u: Upgrade, *, page: str | None) -> dict[str, JsonValue]:
    """Return the answer and all comparisons as JSON values.

    page: path of the HTML page; None if there is none.
    """
    return {
        "format": FORMAT,
        "meaning": MEANING,
        "answer": u.answer.value,
        "sentence": sentence(u),
        "boots": list(u.boots),
        "runs": list(u.runs),
        "shared_boots": u.shared_boots,
        "least_boots": to_json(u.least),
        "margin": u.margin,
        "margin_exploratory": u.margin_exploratory,
        "confidence": u.confidence,
        "machine": u.machine,
        "changes": to_json(u.changes),
        "not_compared": list(u.not_compared),
        "lost": list(u.lost),
        "failed_trials": u.failed_trials,
        "warnings": list(warnings(u)),
        "page": page,
        "cells": [_cell_json(c) for c in u.cells],
    }


def _cell_json(c: StateCell) -> JsonValue:
    form = to_json(c)
    assert isinstance(form, dict), "a dataclass"
    return {**form, "low": form["low"] if bounded(c) else None, "symbol": SYMBOLS[c.verdict]}
