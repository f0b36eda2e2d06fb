"""The verdict table as data, with the same wording in every format of the report. No I/O; independent of the
format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...model.design import Estimand
from ...model.node_results import NodeEstimate
from ...model.result import Analysis, Attribution, Cell, Interval, Verdict
from ...model.study import Pinning, Placement, Study
from ...records.disk import TRY_SECONDS, resume_line, try_line
from ...study_file.environments.backends import capabilities_of
from ...study_file.environments.backends import is_bare as is_bare
from ...units import show, show_effect
from ...workloads.kernels.registry import workload_title
from ..text import enumerated, more_time, one_line, plural, show_length
from .emulation import emulation_warnings

SYMBOLS: Mapping[Verdict, str] = {
    Verdict.SLOWER: "▲",
    Verdict.FASTER: "▼",
    Verdict.EQUIVALENT: "=",
    Verdict.NONE: "?",
    Verdict.INCONSISTENT: "!",
}
WORDS: Mapping[Verdict, str] = {
    Verdict.SLOWER: "material",
    Verdict.FASTER: "faster",
    Verdict.EQUIVALENT: "equivalent",
    Verdict.NONE: "no verdict yet",
    Verdict.INCONSISTENT: "inconsistent",
}

ESTIMANDS: Mapping[Estimand, str] = {
    Estimand.THESE: "these nodes",
    Estimand.ALIKE: "nodes like these",
}


def verdict_text(verdict: Verdict) -> str:
    """Return the symbol and the word of a verdict, which are always shown together: '▲ material'."""
    return f"{SYMBOLS[verdict]} {WORDS[verdict]}"


def margin_text(margin: float) -> str:
    """Return the margin as text: '±3 %'."""
    return f"±{margin * 100:.3g} %"


@dataclass(frozen=True, kw_only=True)
class ArmLabel:
    """The description of an arm: 'podman', '2 containers × 1 task', 'veth-bridge'.

    If the study does not contain the arm, only its name is given, and shape and network are ''.
    """

    arm: str
    environment: str
    shape: str
    network: str

    @property
    def title(self) -> str:
        return f"{self.environment}, {self.shape}" if self.shape else self.environment

    @property
    def full(self) -> str:
        return f"{self.title}, network {self.network}" if self.network else self.title


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The texts of one cell.

    interval: such as '[−0.5 … +0.8]'.
    cause: the likely cause, or what is missing for a verdict.
    difference: the paired difference with its interval if the metric is a time, else ''.
    nodes: the results on several nodes (nodes_text()); '' for one node.
    number: index in Analysis.cells.
    """

    cell: Cell
    number: int
    overhead: str
    interval: str
    n: str
    verdict: str
    cause: str
    difference: str
    nodes: str = ""

    @property
    def note(self) -> str:
        """Return the cause, and the results on several nodes."""
        return "; ".join(text for text in (self.cause, self.nodes) if text)


@dataclass(frozen=True, kw_only=True)
class MetricLine:
    """A metric's row in the table of verdicts.

    entries: by arm.
    """

    label: str
    baseline: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True, kw_only=True)
class ComparisonGroup:
    """All comparisons with one baseline arm, whose absolute values are shown in front of them.

    columns: the arms that are compared with it.
    """

    baseline: ArmLabel
    columns: tuple[ArmLabel, ...]
    lines: tuple[MetricLine, ...]

    def entries(self, column: ArmLabel) -> list[tuple[MetricLine, Entry]]:
        """Return the rows that a column has an entry for, with the entry."""
        return [(line, line.entries[column.arm]) for line in self.lines if column.arm in line.entries]


def label_text(workload: str, metric: str) -> str:
    """Return the name of a metric on one line: 'CG.rate', or the workload's if the metric has the same
    name."""
    title = workload_title(workload, metric)
    return one_line(title if metric in ("", workload) else f"{title}.{metric}")


def metric_label(cell: Cell) -> str:
    """Return the name of a cell's metric on one line; see label_text()."""
    return label_text(cell.workload, cell.metric)


def compared_labels(study: Study, cells: Sequence[Cell]) -> list[str]:
    """Return metric and environment of each cell, with its baseline if the cells have several."""
    several = len({c.baseline for c in cells}) > 1
    return [
        f"{metric_label(c)}, {side(study, c.arm).title}"
        + (f", against {side(study, c.baseline).title}" if several else "")
        for c in cells
    ]


def side(study: Study, arm_name: str) -> ArmLabel:
    """Return the description of an arm; only its name if the study does not contain it."""
    for arm in study.arms():
        if arm.name == arm_name:
            p, emulation = arm.placement, one_line(arm.environment.emulation).partition(":")[0]
            return ArmLabel(
                arm=arm_name,
                environment=one_line(arm.environment.name) + (f" ({emulation})" if emulation else ""),
                shape=shape_text(p, arm.environment.backend),
                network=arm.environment.attachment.value,
            )
    return ArmLabel(arm=arm_name, environment=one_line(arm_name), shape="", network="")


def bare_metal_text(study: Study) -> str:
    """Return which environments are bare metal: 'native and native-tcp are bare metal'.

    Environments whose names say so already are left out; the text is empty if none remain.
    """
    found = [one_line(e.name) for e in study.environments if is_bare(e.backend) and "bare" not in e.name]
    if not found:
        return ""
    return f"{enumerated(found)} {'is' if len(found) == 1 else 'are'} bare metal"


def _instances_text(count: int, backend: str) -> str:
    """Return '2 containers' or '2 VMs'; '2 instances' on bare metal, and of an unknown backend."""
    can = capabilities_of(backend)
    if can is None or can.bare:
        return plural(count, "instance")
    return plural(count, "VM" if can.virtual else "container")


def shape_text(p: Placement, backend: str) -> str:
    """Return the shape of an arm, '2 containers × 1 task', and anything unusual about it.

    Emulated nodes are always named as such. Bare metal has no instances to count if there is only one.
    """
    pinned = {
        Pinning.RANK: "",
        Pinning.INSTANCE: ", pinned by instance",
        Pinning.NONE: ", not pinned",
    }[p.pinning]
    shared = ", oversubscribed" if p.oversubscribe else ""
    tasks = plural(p.tasks, "task")
    whole = p.instances == 1 and is_bare(backend)
    shape = (tasks if whole else f"{_instances_text(p.instances, backend)} × {tasks}") + pinned + shared
    if p.node.remote:
        return f"{plural(p.nodes, 'node')} × {shape}"
    return f"{p.nodes} emulated nodes × {shape}" if p.node.emulated else shape


def failure_text(cell: Cell) -> str:
    """Return the numbers of failed rounds as text, empty if none failed.

    Example: 'fails in 3 of 12 rounds; its baseline fails in 1 of 12 rounds'.
    """
    sides = (("fails", cell.failed_blocks), ("its baseline fails", cell.baseline_failed_blocks))
    return "; ".join(f"{who} in {len(blocks)} of {cell.tried} rounds" for who, blocks in sides if blocks)


def cause_text(cell: Cell) -> str:
    """Return how often a side failed, and the likely cause. Without a verdict, return what is still needed
    for one."""
    if cell.verdict is Verdict.NONE and not math.isfinite(_seconds_needed(cell)):
        return one_line(cell.reason)
    return "; ".join(text for text in (failure_text(cell), _cause(cell)) if text)


def _seconds_needed(cell: Cell) -> float:
    """Return the estimated seconds until the cell has its verdict; infinite if unknown."""
    return math.inf if cell.seconds_needed is None else cell.seconds_needed


def _cause(cell: Cell) -> str:
    if cell.verdict is Verdict.NONE:
        return more_time(_seconds_needed(cell))
    if cell.verdict is Verdict.INCONSISTENT:
        return one_line(cell.reason) or "the machine changed during the run"
    if cell.verdict is Verdict.EQUIVALENT or cell.attribution is None:
        return ""
    return one_line(cause_sentence(cell.attribution))


def cause_sentence(found: Attribution) -> str:
    """Return the causes and a suggested change: 'TCP time-outs: 18 × 0.2 s = 3.6 s of 4 s; try: rto_min 2
    ms'.

    The change is omitted if none may help.
    """
    return f"{found.sentence}; try: {found.suggestion.words}" if found.suggestion else found.sentence


def bounded(cell: Cell) -> bool:
    """Return whether both ends of the interval are finite. -1 is exp(-inf) - 1, so it is not a finite end."""
    return cell.low > -1 and math.isfinite(cell.high)


def has_interval(cell: Cell) -> bool:
    """Return whether at least one end of the interval is known. Tables have no cells without it."""
    return cell.low > -1 or cell.high < math.inf


def left_out_text(analysis: Analysis) -> str:
    """Return a note on the figures that the table omits, with the reasons; empty if it omits none.

    Example: 'Left out: 6 figures (there is no interval yet; the first comes after 8 rounds)'.
    """
    counted = counted_by_reason("figure", (c.reason for c in analysis.cells if not has_interval(c)))
    return f"Left out: {counted}" if counted else ""


def counted_by_reason(noun: str, reasons: Iterable[str]) -> str:
    """Return the number of items for each reason: '6 figures (there is no interval yet), 1 figure (2 of at
    least 8 rounds)'."""
    found = Counter(map(one_line, reasons)).most_common()
    return ", ".join(f"{plural(count, noun)} ({why})" for why, count in found)


def effect(cell: Cell) -> tuple[str, str]:
    """Return the overhead and its interval in one form: ('+0.2 %', '[−0.5 … +0.8]').

    If a side failed so often that the whole interval is infinite, return ('fails', '[9 of 12]').
    """
    if cell.low == math.inf or cell.high <= -1:
        return "fails", f"[{len(cell.failed_blocks) or len(cell.baseline_failed_blocks)} of {cell.tried}]"
    overhead, _, interval = show_effect(cell.overhead, cell.low, cell.high).partition(" [")
    return overhead, f"[{interval}"


def value_text(value: Interval, unit: str, *, signed: bool = False) -> str:
    """Return a value with its interval, each with its unit: '74.9 GB/s [74.1 GB/s … 75.2 GB/s]'.

    The value is returned alone until both ends of the interval are finite.
    """
    if not math.isfinite(value.low) or not math.isfinite(value.high):
        return f"{one_line(show(value.centre, unit, signed=signed))}, no interval yet"
    ends = (value.centre, value.low, value.high)
    figures = value.half_width / 10  # one digit more than the half-width has
    centre, low, high = (one_line(show(v, unit, half_width=figures, signed=signed)) for v in ends)
    return f"{centre} [{low} … {high}]"


def difference_text(cell: Cell) -> str:
    """Return the paired difference with its interval if the metric is a time, else ''."""
    known = cell.unit == "s" and math.isfinite(cell.difference.centre)
    return value_text(cell.difference, cell.unit, signed=True) if known else ""


def entry(cell: Cell, number: int) -> Entry:
    overhead, interval = effect(cell)
    return Entry(
        cell=cell,
        number=number,
        overhead=overhead,
        interval=interval,
        n=_n_text(cell),
        verdict=verdict_text(cell.verdict),
        cause=cause_text(cell),
        difference=difference_text(cell),
        nodes=nodes_text(cell),
    )


def _n_text(cell: Cell) -> str:
    """Return the number of replicates: rounds, or nodes if the verdict is about nodes like these."""
    if cell.nodes is None or cell.nodes.estimand is Estimand.THESE or not cell.nodes.estimates:
        return f"n {cell.n}"
    return f"n {plural(cell.nodes.estimates[Estimand.ALIKE].nodes, 'node')}"


def nodes_text(cell: Cell) -> str:
    """Return the results on several nodes beside the verdict: 'nodes like these: +2.1 % [−1.0 … +5.3] ?'.

    They are the estimate of the other estimand, whether the nodes disagree, and the estimate without the
    nodes that behave unlike the others. '' for one node.
    """
    found = cell.nodes
    if found is None or not found.estimates:
        return ""
    parts = [f"{ESTIMANDS[found.other]}: {estimate_text(found.estimates[found.other])}"]
    if found.disagree and not found.withheld:  # else the reason says so
        parts.append("the nodes disagree")
    if found.without:
        parts.append(f"without the nodes left out: {estimate_text(found.without[found.estimand])}")
    return "; ".join(parts)


def estimate_text(e: NodeEstimate) -> str:
    """Return an estimate with its interval and symbol: '+2.1 % [−1.0 … +5.3] ?, approximate'."""
    shown = show_effect(e.overhead, e.low, e.high) if math.isfinite(e.overhead) else "fails"
    if e.low <= -1 and not math.isfinite(e.high):
        shown = "no interval"
    return f"{shown} {SYMBOLS[e.verdict]}" + (", approximate" if e.approximate else "")


def verdict_table(
    study: Study, analysis: Analysis, *, with_open_ends: bool = False
) -> tuple[ComparisonGroup, ...]:
    """Return the table, with one group per baseline arm, and the metrics in the order of the study's
    workloads.

    with_open_ends: whether to include cells without an interval.
    """
    numbered = [(i, c) for i, c in enumerate(analysis.cells) if with_open_ends or has_interval(c)]
    place = {w.name: i for i, w in enumerate(study.workloads)}
    groups = []
    for base in dict.fromkeys(c.baseline for _, c in numbered):
        own = [(i, c) for i, c in numbered if c.baseline == base]
        baseline = side(study, base)
        columns = tuple(side(study, arm) for arm in dict.fromkeys(c.arm for _, c in own))
        by_metric: dict[tuple[str, str], list[tuple[int, Cell]]] = {}
        for i, c in own:
            by_metric.setdefault((c.workload, c.metric), []).append((i, c))
        lines = tuple(
            MetricLine(
                label=metric_label(cells[0][1]),
                baseline=one_line(show(cells[0][1].baseline_value.centre, cells[0][1].unit)),
                entries={c.arm: entry(c, i) for i, c in cells},
            )
            for cells in sorted(by_metric.values(), key=lambda found: place.get(found[0][1].workload, 0))
        )
        groups.append(ComparisonGroup(baseline=baseline, columns=columns, lines=lines))
    return tuple(groups)


def question_text(study: Study, analysis: Analysis) -> str:
    """Return the question of the study; without one, a question made from its environments' names."""
    question = one_line(analysis.question or study.question)
    if question:
        return question
    others = [e.name for e in study.environments if e.name not in study.design.baselines]
    if len(others) == 1:
        return one_line(f"What does {others[0]} cost compared with {study.design.baselines[0]}?")
    return one_line(f"What do {', '.join(others) or 'these environments'} cost?")


def legend(study: Study, analysis: Analysis) -> tuple[str, ...]:
    """Return the meaning of the names, symbols and numbers."""
    margin = ", ".join(dict.fromkeys(margin_text(c.margin) for c in analysis.cells)) or "the margin"
    confidence = ", ".join(dict.fromkeys(f"{c.confidence * 100:.3g} %" for c in analysis.cells)) or "95 %"
    return (
        *emulation_warnings(analysis),
        *([f"{bare}."] if (bare := bare_metal_text(study)) else []),
        f"▲ material: slower beyond {margin}   ▼ faster beyond {margin}   "
        f"= equivalent: within {margin}, proven",
        "? no verdict yet   ! inconsistent: the machine changed during the run",
        f"[low … high] {confidence} interval, valid at any time during the run; n counts rounds; "
        "± is a half-width; ×2 means twice the time.",
    )


def next_steps(analysis: Analysis, results_dir: str | None) -> tuple[str, ...]:
    """Return the next steps, each with its command line: to try a suggested change, or to measure undecided
    cells.

    results_dir: the results directory; None leaves out the command line that needs it.
    """
    return (*_to_try(analysis, results_dir), *_to_decide(analysis, results_dir))


def _to_try(analysis: Analysis, results_dir: str | None) -> tuple[str, ...]:
    """Return the step that tries a suggested change, with its command line; empty if no change is suggested,
    or without a results directory."""
    step = try_step(analysis)
    return (f"{step}:  {try_line(results_dir)}",) if step and results_dir is not None else ()


def try_step(analysis: Analysis) -> str:
    """Return how many changes may help, and how long it takes to try one; '' if none may help."""
    count = sum(c.attribution is not None and bool(c.attribution.change) for c in analysis.cells)
    tried = "it" if count == 1 else "the first"
    takes = f"trying {tried} takes about {show_length(TRY_SECONDS)}"
    return f"{plural(count, 'change')} may help; {takes}" if count else ""


def _to_decide(analysis: Analysis, results_dir: str | None) -> tuple[str, ...]:
    open_cells = analysis.undecided
    if not open_cells:
        return ()
    command = f":  {resume_line(results_dir)}" if results_dir is not None else ""
    one = len(open_cells) == 1
    undecided = f"? {plural(len(open_cells), 'figure')} {'is' if one else 'are'} undecided"
    known = [s for s in map(_seconds_needed, open_cells) if math.isfinite(s)]
    if not known:
        return (f"{undecided}{command}",)
    if one:
        which = " and needs"
    elif len(known) == len(open_cells):
        which = "; all need"
    else:
        which = f"; {len(known)} of them {'needs' if len(known) == 1 else 'need'}"
    return (f"{undecided}{which} {more_time(max(known))}{command}",)
