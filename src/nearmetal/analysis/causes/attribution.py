"""Attributes the extra time of a cell to measured parts and a residual, and to MPI without shared memory.

All shares are fractions of the baseline's seconds in the same block. Only phases that were measured on both
sides are named. The explaining sentence claims no more than the intervals show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...model.plan import Schedule
from ...model.record import STEP
from ...model.result import Attribution, Cell, Interval, TimePart, Verdict
from ...model.study import Arm, Study, Transport
from ..fold.comparisons import Paired
from ..fold.counts import FloatArray
from ..fold.pieces import REST, TOTAL
from ..intervals.looks import carried_interval

NAMES: Mapping[str, str] = {
    "comm": "communication",
    "compute": "computation",
    "cpu": "computation",
    "init": "start of MPI",
    "io": "input and output",
    "user": "user code",
    "system": "system calls",
    "wait": "waiting",
    "step.cgroups": "control groups",
    "step.spawn": "start of the process",
    "step.namespaces": "namespaces",
    "step.root": "root file system",
    "step.exec": "first program",
    "step.prepare": "preparation",
    "step.program": "container program",
}
MOST_STEPS = 3
NOT_EXPLAINED = "not explained"
MAIN_SHARE = 2 / 3
"""A part explains an overhead if its whole interval exceeds this share of the total."""


def clauses_of(cell: Cell) -> list[str]:
    """Return the explanation of a cell so far, as a list of clauses; empty if there is none."""
    sentence = "" if cell.attribution is None else cell.attribution.sentence
    return [] if sentence in ("", NOT_EXPLAINED) else [sentence]


def measured_parts(paired: Paired, *, schedule: Schedule, alpha: float) -> Attribution | None:
    """Return the parts of the extra time and the residual, as fractions of the baseline's time, without a
    sentence.

    Returns None if a side has no seconds, or if there are neither steps of an event nor MPI times or CPU
    times of both sides.

    The parts depend on the workload:

    - an MPI program: communication and computation. Unless a kernel or a profile measured the computation, it
      is the time outside MPI.
    - a program without MPI: user code, system calls, and the rest of its time: waiting for disks or a CPU,
      asleep, throttled.
    - an event: its steps. A step that only one side has counts as 0 s on the other.

    The residual of a block is the total minus the parts. For a profiled command it is the start and the end
    of its processes. If computation is the time outside MPI, the residual only shows by how much the medians
    of the parts do not add up.

    The values of each block are pieces.Compared.shares. Each interval over the blocks is carried over the
    looks.
    """
    known = paired.both.shares
    steps = [k for k in known if k.startswith(STEP)]
    kinds = steps or [k for k in known if k in NAMES]
    if not (steps or {"comm", "user"} & {*kinds}):
        return None
    shares = {NAMES.get(k, k.removeprefix(STEP)): known[k] for k in kinds}
    if REST in known and "computation" not in shares:
        shares = {"computation": known[REST], **shares}
    residual = known[TOTAL] - np.sum(list(shares.values()), axis=0)

    def carried(x: FloatArray) -> Interval:
        return carried_interval(x, schedule=schedule, alpha=alpha, numbers=paired.blocks.tolist())

    parts = tuple(TimePart(name=name, overhead=carried(x)) for name, x in shares.items())
    return Attribution(parts=parts, residual=carried(residual))


def with_sentences(study: Study, cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells. The attribution of a slower or faster cell has the explaining sentence."""
    arms = {arm.name: arm for arm in study.arms()}
    index = {(c.arm, c.baseline, c.workload, c.metric): c for c in cells}

    def explained(cell: Cell) -> Cell:
        if cell.verdict not in (Verdict.SLOWER, Verdict.FASTER):
            return cell
        had = cell.attribution or Attribution()
        return replace(cell, attribution=replace(had, sentence=_sentence(study, arms, index, cell)))

    return tuple(explained(c) for c in cells)


def _sentence(
    study: Study, arms: Mapping[str, Arm], index: Mapping[tuple[str, str, str, str], Cell], cell: Cell
) -> str:
    main = None if cell.attribution is None else _main_part(cell, cell.attribution)
    clauses = [main] if main else []
    companion = _companion(study, arms, index, cell)
    if companion is not None:
        further, own = companion
        # Added only if it explains most of the overhead, as a ratio; otherwise only both figures are given.
        if main is None and math.log1p(further.low) > 0.5 * math.log1p(cell.overhead):
            clauses.append("MPI without shared memory")
        name = arms[further.arm].environment.backend
        clauses.append(f"{name} over TCP: {amount(further.overhead)}")
        own_words = _own_cost(own) if own is not None else None
        if own_words is not None:
            clauses.append(own_words)
    return "; ".join(clauses) if clauses else NOT_EXPLAINED


def _main_part(cell: Cell, measured: Attribution) -> str | None:
    """Return the name of the part that causes most of the extra (or saved) time; None if no part does.

    This is the part whose whole interval lies above two thirds of the total. For an event without such a
    step, the largest steps whose interval excludes 0 are returned with their shares, at most MOST_STEPS.
    """
    assert measured.residual is not None
    parts = measured.parts
    total = sum(p.overhead.centre for p in parts) + measured.residual.centre
    sign = 1 if cell.verdict is Verdict.SLOWER else -1
    nearer = {p.name: min(sign * p.overhead.low, sign * p.overhead.high) for p in parts}
    for name, least in nearer.items():
        if least > MAIN_SHARE * sign * total and least > 0:
            return name
    if {"computation", "user code"} & nearer.keys():  # not for an event
        return None
    proven = sorted((p for p in parts if nearer[p.name] > 0), key=lambda p: -sign * p.overhead.centre)
    named = [f"{p.name} {100 * p.overhead.centre / total:.0f} %" for p in proven[:MOST_STEPS]]
    return ", ".join(named) if sign * total > 0 and named else None


def _companion(
    study: Study, arms: Mapping[str, Arm], index: Mapping[tuple[str, str, str, str], Cell], cell: Cell
) -> tuple[Cell, Cell | None] | None:
    """Return two cells that separate the overhead of TCP from that of the container.

    The first cell compares a further baseline, whose ranks use TCP like those of the arm, with the first
    baseline. The second compares the arm with the further baseline; None if it was not measured.

    Returns None unless the arm is slower, uses TCP while its baseline uses shared memory, and the further
    baseline is slower, too.
    """
    if cell.verdict is not Verdict.SLOWER:
        return None
    if (arms[cell.arm].transport, arms[cell.baseline].transport) != (Transport.TCP, Transport.SHM):
        return None
    for name in study.design.baselines[1:]:
        other = study.baseline_arm(name, arms[cell.arm])
        if other is None or other.transport is not Transport.TCP:
            continue
        further = index.get((other.name, cell.baseline, cell.workload, cell.metric))
        if further is not None and further.verdict is Verdict.SLOWER:
            return further, index.get((cell.arm, other.name, cell.workload, cell.metric))
    return None


def _own_cost(cell: Cell) -> str | None:
    """Return the overhead of the container itself, without that of TCP, as text; None without a verdict."""
    if cell.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"the container itself: {amount(cell.overhead)}"
    if cell.verdict is Verdict.EQUIVALENT:
        return f"the container itself: within ±{100 * cell.margin:.3g} %"
    return None


def amount(overhead: float) -> str:
    """Return an overhead as text: '+12 %', '−3.1 %', or as a factor above +100 %: '×3.2'."""
    if overhead > 1:
        return f"×{1 + overhead:.3g}" if overhead >= 99 else f"×{1 + overhead:.2g}"
    sign = "−" if overhead < 0 else "+"
    percent = 100 * abs(overhead)
    return f"{sign}{percent:.2g} %" if percent < 99.5 else f"{sign}{percent:.0f} %"
