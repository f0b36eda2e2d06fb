"""Where the extra time went: measured parts with a residual, and what is left once shared memory is left.

Shares are of the baseline's own seconds in the same block. Only phases that were measured on both sides are
named; the sentence says no more than the intervals carry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.plan import Schedule
from ..model.record import STEP
from ..model.result import Attribution, Cell, Interval, Part, Verdict
from ..model.study import Arm, Better, Study, Transport
from .fold import Paired, Series, row_medians
from .looks import look_and_carry

FloatArray = NDArray[np.float64]

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


def measured_parts(
    paired: Paired, env: Series, base: Series, *, schedule: Schedule, alpha: float
) -> tuple[tuple[Part, ...], Interval] | None:
    """Parts of the extra time and the residual, in shares of the baseline's time; None where a side lacks
    seconds or MPI times.

    Per block and slice (env part - base part) / base seconds, all per unit of work (a slice may hold less
    over a slower transport), median over slices, then look-and-carry over blocks. Computation is the time
    outside MPI unless a kernel or a profile measured it. The residual is what the parts leave of the total in
    each block: of a profiled command the start and the end of its processes; where computation is the rest it
    shows only how far medians do not add up. An event has its steps for parts, each side its own; a process
    without MPI its user code, its system calls, and the rest of its time: waiting for disks or a CPU, asleep,
    throttled."""
    steps = sorted({k for side in (env, base) for k in side.parts if k.startswith(STEP)})
    kinds = steps or [k for k in env.parts if k in base.parts and k in NAMES]
    if env.seconds is None or base.seconds is None or not (steps or {"comm", "user"} & {*kinds}):
        return None
    env_work, base_work = _work(env, env.seconds), _work(base, base.seconds)
    env_whole, whole = env.seconds / env_work, base.seconds / base_work

    def share(env_time: FloatArray, base_time: FloatArray) -> FloatArray:
        return _by_block(paired, env, base, env_time, base_time, whole)

    total = share(env_whole, whole)
    none = np.zeros_like(env.seconds), np.zeros_like(base.seconds)
    per_work = {
        k: (env.parts.get(k, none[0]) / env_work, base.parts.get(k, none[1]) / base_work) for k in kinds
    }
    shares = {NAMES.get(k, k.removeprefix(STEP)): share(*both) for k, both in per_work.items()}
    if "comm" in kinds and "computation" not in shares:
        env_comm, base_comm = per_work["comm"]
        rest = share(env_whole - env_comm, whole - base_comm)
        shares = {"computation": rest, **shares}
    residual = total - np.sum(list(shares.values()), axis=0)

    def carried(x: FloatArray) -> Interval:
        return look_and_carry(x, schedule=schedule, alpha=alpha, numbers=paired.blocks.tolist()).interval

    parts = tuple(Part(name=name, overhead=carried(x)) for name, x in shares.items())
    return parts, carried(residual)


def _work(side: Series, seconds: FloatArray) -> FloatArray:
    """Work of each slice, in a unit that both sides of a comparison share: a rate is work per second, a
    latency seconds per piece of work."""
    return seconds * side.values if side.better is Better.HIGHER else seconds / side.values


def _by_block(
    paired: Paired, env: Series, base: Series, env_time: FloatArray, base_time: FloatArray, whole: FloatArray
) -> FloatArray:
    """(env_time - base_time) / whole (the baseline's seconds) by block: slice by slice where slices are
    paired, else by medians."""
    ie, ib = paired.env_rows, paired.base_rows
    le, lb = env.lengths[ie], base.lengths[ib]
    out = (row_medians(env_time[ie], le) - row_medians(base_time[ib], lb)) / row_medians(whole[ib], lb)
    together = paired.together
    if bool(np.any(together)):
        width = min(env_time.shape[1], base_time.shape[1])
        e, b = ie[together], ib[together]
        slices = (env_time[e, :width] - base_time[b, :width]) / whole[b, :width]
        out[together] = row_medians(slices, le[together])
    return out


def attribute(
    study: Study, cells: Sequence[Cell], parts: Mapping[str, tuple[tuple[Part, ...], Interval]]
) -> dict[str, Attribution]:
    """The attribution of each cell that has one, by Cell.key. parts: measured parts by Cell.key."""
    arms = {arm.name: arm for arm in study.arms()}
    index = {(c.arm, c.baseline, c.workload, c.metric): c for c in cells}
    out: dict[str, Attribution] = {}
    for cell in cells:
        measured = parts.get(cell.key)
        material = cell.verdict in (Verdict.SLOWER, Verdict.FASTER)
        if measured is None and not material:
            continue
        sentence = _sentence(study, arms, index, cell, measured) if material else ""
        out[cell.key] = Attribution(
            parts=measured[0] if measured else (),
            residual=measured[1] if measured else None,
            sentence=sentence,
        )
    return out


def _sentence(
    study: Study,
    arms: Mapping[str, Arm],
    index: Mapping[tuple[str, str, str, str], Cell],
    cell: Cell,
    measured: tuple[tuple[Part, ...], Interval] | None,
) -> str:
    main = _main_part(cell, *measured) if measured else None
    clauses = [main] if main else []
    companion = _companion(study, arms, index, cell)
    if companion is not None:
        further, own = companion
        # Said only where most of the overhead, as a ratio, goes with it; else the two figures speak alone.
        if main is None and math.log1p(further.low) > 0.5 * math.log1p(cell.overhead):
            clauses.append("leaves shared memory")
        name = arms[further.arm].environment.backend
        clauses.append(f"{name} over TCP: {amount(further.overhead)}")
        own_words = _own_cost(own) if own is not None else None
        if own_words is not None:
            clauses.append(own_words)
    return "; ".join(clauses) if clauses else NOT_EXPLAINED


def _main_part(cell: Cell, parts: Sequence[Part], residual: Interval) -> str | None:
    """The part whose whole interval holds more than two thirds of the total extra (or saved) time; of an
    event the steps that cost most, since a start has several causes side by side."""
    total = sum(p.overhead.centre for p in parts) + residual.centre
    sign = 1 if cell.verdict is Verdict.SLOWER else -1
    nearer = {p.name: min(sign * p.overhead.low, sign * p.overhead.high) for p in parts}
    for name, least in nearer.items():
        if least > MAIN_SHARE * sign * total and least > 0:
            return name
    if {"computation", "user code"} & nearer.keys():  # not of an event
        return None
    proven = sorted((p for p in parts if nearer[p.name] > 0), key=lambda p: -sign * p.overhead.centre)
    named = [f"{p.name} {100 * p.overhead.centre / total:.0f} %" for p in proven[:MOST_STEPS]]
    return ", ".join(named) if sign * total > 0 and named else None


def _companion(
    study: Study, arms: Mapping[str, Arm], index: Mapping[tuple[str, str, str, str], Cell], cell: Cell
) -> tuple[Cell, Cell | None] | None:
    """The further baseline that leaves shared memory as the arm does, if it is itself materially slower than
    the first baseline; and the arm against it."""
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
    """What the container itself adds over TCP, where a verdict carries it."""
    if cell.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"the container itself: {amount(cell.overhead)}"
    if cell.verdict is Verdict.EQUIVALENT:
        return f"the container itself: within ±{100 * cell.margin:.3g} %"
    return None


def amount(overhead: float) -> str:
    """+12 %, −3.1 %, or a factor beyond +100 %: ×3.2."""
    if overhead > 1:
        return f"×{1 + overhead:.3g}" if overhead >= 99 else f"×{1 + overhead:.2g}"
    sign = "−" if overhead < 0 else "+"
    percent = 100 * abs(overhead)
    return f"{sign}{percent:.2g} %" if percent < 99.5 else f"{sign}{percent:.0f} %"
