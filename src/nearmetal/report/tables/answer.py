"""The answer of a run on one screen, as data: a sentence for each environment, and a few rows of figures. No
I/O; independent of the output format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...host.facts.provenance import cpu_summary
from ...model.record import JsonValue, section
from ...model.result import USAGE, Analysis, Cell, Verdict, deciding_cells, theta_of
from ...model.study import Study
from ...units import show, show_interval, show_overhead
from ...workloads.kernels.contract import WorkKind
from ...workloads.kernels.registry import workload_title
from ..text import enumerated, first_of, one_line, plural
from .cells import SYMBOLS, ArmLabel, bounded, effect, has_interval, margin_text, metric_label, side
from .floors import half_width, kind_of_work

MOST_METRICS = 6
"""Maximum number of metrics of one workload that have rows of their own."""
ANSWER_WORDS: Mapping[Verdict, str] = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.EQUIVALENT: "equal",
    Verdict.NONE: "undecided",
    Verdict.INCONSISTENT: "unsure",
}

NOTHING = "Nothing could be compared yet."

_MOST_LISTED = 4
_MOST_NAMED = 2
"""Maximum number of metrics of a row that a sentence names."""
_ORDER = (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT, Verdict.EQUIVALENT, Verdict.NONE)
"""The word of an environment's sentence is the first of these verdicts that any of its rows has."""
_FOLDED = (Verdict.SLOWER, Verdict.INCONSISTENT, Verdict.NONE, Verdict.FASTER, Verdict.EQUIVALENT)
"""The verdict of a row of several metrics is the first of these that any of them has."""


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """One metric, or several similar metrics in one row.

    baseline: the value of the baseline; for several metrics, the range of their values if they have the same
        unit.
    cells: cells by arm, one or several.
    beside: whether the row is secondary (deciding_cells): it determines the word of an environment only if
        there are no other rows.
    """

    label: str
    baseline: str
    cells: Mapping[str, tuple[Cell, ...]]
    beside: bool = False


@dataclass(frozen=True, kw_only=True)
class RowFigures:
    """The figures of one arm in a row.

    overhead: '+0.2 %'; for several metrics, how many have the verdict: '2 of 9'.
    interval: '−0.5 … +0.8'; for several metrics, the range of their intervals: '−2.1 … +5.8 %'.
    """

    overhead: str
    interval: str
    verdict: Verdict

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict]


@dataclass(frozen=True, kw_only=True)
class ArmAnswer:
    """The result of a run for one arm.

    where: what distinguishes the arm from the others of its environment, such as '2 containers'; '' if the
        environment has one placement.
    word: 'slower', 'faster', 'equal', 'undecided' or 'unsure'.
    parts: parts of the sentence, the most important first.
    """

    arm: str
    environment: str
    where: str
    word: str
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of the arm in a table: 'podman, 2 containers'."""
        return f"{self.environment}, {self.where}" if self.where else self.environment

    @property
    def sentence(self) -> str:
        """Return the result as a sentence: 'podman with 2 containers is slower: CG.S ×3.90; EP.S within 3
        %.'."""
        of = f" with {self.where}" if self.where else ""
        return f"{self.environment}{of} is {self.word}: {'; '.join(self.parts)}."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The first screen of a result: everything is compared with the first baseline."""

    baseline: ArmLabel
    arms: tuple[ArmAnswer, ...]
    rows: tuple[AnswerRow, ...]

    @property
    def table(self) -> tuple[AnswerRow, ...]:
        """Return the rows that have at least one interval, for figures and tables."""
        return tuple(r for r in self.rows if any(has_interval(c) for own in r.cells.values() for c in own))


def answer(study: Study, analysis: Analysis) -> Answer | None:
    """Return the answer to the question of a study; None if nothing could be compared yet."""
    first = study.design.baselines[0]
    bases = [a.name for a in study.arms() if a.environment.name == first]
    cells = [c for c in analysis.cells if c.baseline in bases]
    if not cells:
        return None
    arms = list(dict.fromkeys(c.arm for c in cells))
    rows = _rows(study, cells)
    return Answer(
        baseline=side(study, cells[0].baseline),
        arms=tuple(_arm_answer(study, arm, rows) for arm in arms),
        rows=rows,
    )


def answer_sentences(study: Study, analysis: Analysis) -> tuple[str, ...]:
    """Return a sentence for each environment, or that nothing is compared."""
    found = answer(study, analysis)
    return (no_answer(study),) if found is None else tuple(arm.sentence for arm in found.arms)


def no_answer(study: Study) -> str:
    """Return the sentence for a study without a measured comparison."""
    return NOTHING if study.comparisons() else "It compares no environments."


def _rows(study: Study, cells: Sequence[Cell]) -> tuple[AnswerRow, ...]:
    place = {w.name: i for i, w in enumerate(study.workloads)}
    ordered = sorted(cells, key=lambda c: place.get(c.workload, 0))
    groups: dict[tuple[str, ...], list[Cell]] = {}
    deciding = {c.key for c in deciding_cells(study, ordered)}
    own = {
        w: tuple(dict.fromkeys(c.metric for c in ordered if c.workload == w and c.metric not in USAGE))
        for w in place
    }
    for c in ordered:
        groups.setdefault(_row_key(study, c, own.get(c.workload, ())), []).append(c)
    return tuple(
        AnswerRow(
            label=_label(study, key, found, own),
            baseline=_baseline(found),
            cells=_by_arm(found),
            beside=not any(c.key in deciding for c in found),
        )
        for key, found in groups.items()
    )


def _row_key(study: Study, cell: Cell, own: Sequence[str]) -> tuple[str, ...]:
    """Return the key of a cell's row. Cells with the same key share a row."""
    if kind_of_work(study, cell.workload) == WorkKind.MEMORY:
        return (WorkKind.MEMORY,)
    if cell.metric in USAGE and own:
        return (cell.workload, "usage")
    if len(own) > MOST_METRICS and cell.metric != "wall":
        return (cell.workload, "metrics")
    return (cell.workload, cell.metric, "")


def _label(
    study: Study, key: tuple[str, ...], cells: Sequence[Cell], own: Mapping[str, Sequence[str]]
) -> str:
    several = len({(c.workload, c.metric) for c in cells})
    if len(key) == 1:
        return f"{key[0]} ({several})" if several > 1 else one_line(cells[0].workload)
    workload = one_line(workload_title(key[0], cells[0].metric))
    alone = len(study.workloads) == 1
    if len(key) == 2 and several > 1:
        kind = "CPU, memory, I/O" if key[1] == "usage" else key[1]
        return f"{kind} ({several})" if alone else f"{workload} {kind} ({several})"
    single = len(own.get(key[0], ())) == 1 and not any(w.name == key[0] for w in study.commands)
    metric = one_line(cells[0].metric)
    if single or metric in ("", key[0]):
        return workload
    return metric if alone else f"{workload} {metric}"


def _baseline(cells: Sequence[Cell]) -> str:
    values = [c.baseline_value.centre for c in cells if math.isfinite(c.baseline_value.centre)]
    units = {c.unit for c in cells}
    if not values or len(units) > 1:
        return ""
    least, most = min(values), max(values)
    shown = [one_line(show(v, cells[0].unit)) for v in (least, most)]
    if shown[0] == shown[1] or len({c.metric for c in cells}) == 1:
        return shown[0]
    half_width = (most - least) / 2 if most < 2 * least else None
    low, high = (one_line(show(v, cells[0].unit, half_width=half_width)) for v in (least, most))
    (number, _, unit), (_, _, other) = low.partition(" "), high.partition(" ")
    return f"{number} … {high}" if unit == other else f"{low} … {high}"


def _by_arm(cells: Sequence[Cell]) -> dict[str, tuple[Cell, ...]]:
    arms = dict.fromkeys(c.arm for c in cells)
    return {arm: tuple(c for c in cells if c.arm == arm) for arm in arms}


def figures(cells: Sequence[Cell]) -> RowFigures:
    """Return the figures of a row for the cells of one arm.

    Several metrics have one verdict: the first of _FOLDED that any of them has. The figures give the number
    of metrics with this verdict, and the range of their intervals.
    """
    verdict = next(v for v in _FOLDED if any(c.verdict is v for c in cells))
    odd = [c for c in cells if c.verdict is verdict]
    failed = [c for c in odd if c.low == math.inf or c.high <= -1]
    if len(cells) == 1 or failed:
        (shown, *_) = failed or odd
        overhead, interval = effect(shown) if bounded(shown) or failed else ("", "[]")
        return RowFigures(overhead=overhead, interval=interval[1:-1], verdict=verdict)
    known = [c for c in odd if bounded(c)]
    if not known:
        return RowFigures(overhead="", interval="", verdict=verdict)
    number = "all" if len(odd) == len(cells) else f"{len(odd)} of {len(cells)}"
    low, high = min(c.low for c in known), max(c.high for c in known)
    factor = (1 + low) * (1 + high) >= 4
    ends = show_interval(low, high, factor=factor)[1:-1]
    return RowFigures(overhead=number, interval=f"×{ends}" if factor else f"{ends} %", verdict=verdict)


def _arm_answer(study: Study, arm: str, rows: Sequence[AnswerRow]) -> ArmAnswer:
    own = [row for row in rows if arm in row.cells]
    deciding = [row for row in own if not row.beside] or own
    verdicts = {figures(row.cells[arm]).verdict for row in deciding}
    word = next(v for v in _ORDER if v in verdicts)
    return ArmAnswer(
        arm=arm,
        environment=side(study, arm).environment,
        where=_where(study, arm),
        word=ANSWER_WORDS[word],
        parts=_parts(deciding, [row for row in own if row not in deciding], arm, word),
    )


def _where(study: Study, arm: str) -> str:
    """Return what distinguishes an arm from the others of its environment: the number of instances, such as
    '2 containers', or also the number of tasks if other arms have as many instances. '' if there are no
    others."""
    own = [a.name for a in study.arms() if a.environment.name == arm.partition("/")[0]]
    if len(own) < 2:
        return ""
    shape = side(study, arm).shape
    short = [side(study, name).shape.partition(" ×")[0] for name in own]
    return shape.partition(" ×")[0] if len(set(short)) == len(short) else shape


def _parts(
    deciding: Sequence[AnswerRow], beside: Sequence[AnswerRow], arm: str, word: Verdict
) -> tuple[str, ...]:
    """Return the parts of an arm's sentence, the most important first.

    Effects come before equal figures, and primary rows before secondary ones. Undecided figures come last, in
    one list.
    """
    effects = _effects(deciding, arm, word)
    equal = _equal(deciding, arm)
    main = (*effects, *_changed(deciding, arm), *(() if effects else equal))
    parts = (*main, *_effects(beside, arm, word), *_changed(beside, arm))
    parts += (*(equal if effects else ()), *_equal(beside, arm))
    return (*parts, *_open([*deciding, *beside], arm, alone=not parts))


def _with_verdict(
    rows: Sequence[AnswerRow], arm: str, verdict: Verdict
) -> list[tuple[str, tuple[Cell, ...]]]:
    """Return the label and the arm's cells of each row whose figures have this verdict."""
    return [(row.label, row.cells[arm]) for row in rows if figures(row.cells[arm]).verdict is verdict]


def _equal(rows: Sequence[AnswerRow], arm: str) -> tuple[str, ...]:
    found = _with_verdict(rows, arm, Verdict.EQUIVALENT)
    margin = max((c.margin for _, cells in found for c in cells), default=0.0)
    text = f"{_listed([label for label, _ in found])} within {margin_text(margin).removeprefix('±')}"
    return (text,) if found else ()


def _changed(rows: Sequence[AnswerRow], arm: str) -> tuple[str, ...]:
    found = _with_verdict(rows, arm, Verdict.INCONSISTENT)
    return (f"{_listed([label for label, _ in found])} changed while it was measured",) if found else ()


def _listed(labels: Sequence[str]) -> str:
    """Join as many labels as fit on a line. The table below contains all of them."""
    return first_of(labels, _MOST_LISTED if len(labels) <= _MOST_LISTED else _MOST_LISTED - 1)


def _effects(rows: Sequence[AnswerRow], arm: str, word: Verdict) -> tuple[str, ...]:
    """Return a text for each slower row, then for each faster row, largest effects first.

    word: the verdict of the sentence. Unless it is FASTER, faster rows are marked '(faster)', or '(less)' if
        their unit is bytes.
    """
    slower, faster = (
        sorted(
            (
                (_largest(cells, verdict), _label_of(label, cells, verdict))
                for label, cells in _with_verdict(rows, arm, verdict)
            ),
            key=lambda pair: -abs(pair[0].overhead),
        )
        for verdict in (Verdict.SLOWER, Verdict.FASTER)
    )
    but = "but " if word is Verdict.EQUIVALENT else ""
    texts = [but + _effect(c, label) for c, label in slower]
    for c, label in faster:
        better = "less" if c.unit == "B" else "faster"
        texts.append(_effect(c, label) + (f" ({better})" if word is not Verdict.FASTER else ""))
    return tuple(texts)


def _effect(cell: Cell, label: str) -> str:
    return f"{label} {show_overhead(cell.overhead, half_width=half_width(cell))}"


def _open(rows: Sequence[AnswerRow], arm: str, *, alone: bool) -> tuple[str, ...]:
    """Return the parts of an arm's sentence about rows without a verdict.

    alone: whether the sentence has no other part.
    """
    found = _with_verdict(rows, arm, Verdict.NONE)
    if not found:
        return ()
    if not any(bounded(c) for _, cells in found for c in cells):
        return ("no interval yet" if alone else f"{plural(len(found), 'row')} without an interval yet",)
    if alone:
        margin = margin_text(max(c.margin for _, cells in found for c in cells)).removeprefix("±")
        return (f"a difference above {margin} is neither proven nor ruled out",)
    return (f"{_listed([_label_of(label, cells, Verdict.NONE) for label, cells in found])} undecided",)


def _label_of(label: str, cells: Sequence[Cell], verdict: Verdict) -> str:
    """Return the label of a row, limited to its metrics that have the verdict: 'memory (copy, triad)',
    'memory (5 of 9)', or 'memory (9)' if all have it."""
    odd = [c for c in cells if c.verdict is verdict]
    if len(odd) == len(cells):
        return label
    alone = len({c.workload for c in cells}) == 1
    names = ", ".join(one_line(c.metric) if alone else metric_label(c) for c in odd)
    inside = names if len(odd) <= _MOST_NAMED else f"{len(odd)} of {len(cells)}"
    return label.replace(f"({len(cells)})", f"({inside})")


def _largest(cells: Sequence[Cell], verdict: Verdict) -> Cell:
    """Return the cell with the largest effect among those with the verdict."""
    return max((c for c in cells if c.verdict is verdict), key=lambda c: abs(theta_of(c.overhead)))


def machine_line(provenance: Mapping[str, JsonValue]) -> str:
    """Return the machine, and what each environment had of it: 'AMD EPYC, 2 cores, 24 GiB · 2 CPUs for each
    environment, limited to 0.5 CPUs'."""
    words: dict[str, str] = {}
    for arm in (cpus := section(provenance, "cpus")):
        counts = sorted({n for n in section(cpus, arm).values() if isinstance(n, int)})
        if counts:
            words[one_line(arm)] = " or ".join(plural(n, "CPU") for n in counts)
    each = list(dict.fromkeys(words.values()))
    parts = [f"{text} for each environment" for text in each]
    if len(each) > 1:
        parts = [f"{arm} {text}" for arm, text in words.items()]
    if limits := section(provenance, "caller_limits").get("words"):
        parts.append(f"limited to {one_line(str(limits))}")
    return " · ".join(part for part in (cpu_summary(provenance), ", ".join(parts)) if part)


def absent_environments(provenance: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return the requested environments that were not measured, each once, with the reason.

    provenance: as in provenance.json.
    """
    reasons: dict[str, str] = {}
    for name, why in section(provenance, "not_here").items():
        reasons.setdefault(name.partition("/")[0], str(why))
    return reasons


def absent_sentences(absent: Mapping[str, str]) -> list[str]:
    """Return one sentence for each reason for which environments were not measured.

    absent: as returned by absent_environments().
    """
    names: dict[str, list[str]] = {}
    for name, why in absent.items():
        names.setdefault(why, []).append(name)
    return [
        f"{enumerated(arms)} {'were' if arms[1:] else 'was'} not measured: {why}"
        for why, arms in names.items()
    ]
