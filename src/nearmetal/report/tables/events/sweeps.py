"""The metrics of sweeps (workloads that differ only in numbers) as curves, and the points at which pre-copy
stops converging. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ....lifecycle import CopyRound, Method, convergence
from ....model.record import JsonValue
from ....model.result import Cell, Interval
from ....model.study import Arm, Study
from ....model.sweep import Axis, Sweep, sweeps
from ....records.json_files import finite
from ....units import show
from ...record_index import RecordIndex
from ...text import one_line, plural


def title(key: str) -> str:
    """Return the name of a swept key for people, such as 'dirty rate'."""
    return key.replace("_", " ")


def at_text(axis: Axis, at: float) -> str:
    """Return a value of a swept key as text: '128 MiB', or 'full speed' for a dirty rate without a limit."""
    if axis.unlimited is not None and math.isinf(at):
        return axis.unlimited[1]
    if not axis.unit:
        return f"{at:,.0f}" if at.is_integer() else f"{at:g}"
    number, _, scaled = show(at, axis.unit, binary=axis.unit != "s").partition(" ")
    return f"{float(number):g} {scaled}"


def held(sweep: Sweep, workload: str, but: str) -> str:
    """Return the values that a workload of a sweep has for all keys except `but`, as text."""
    pairs = zip(sweep.keys, sweep.at[workload], strict=True)
    return ", ".join(f"{title(k)} {at_text(sweep.axes[k], v)}" for k, v in pairs if k != but)


@dataclass(frozen=True, kw_only=True)
class SweptMetric:
    """A metric as a function of one swept key, while all other keys are constant.

    unit: base unit of the metric.
    held: the values of the other keys, as text; empty if there are none.
    points: by arm, pairs of the value of the key and the metric's value with its interval, in ascending order
        of the key.
    cells: the cells with these points.
    """

    sweep: Sweep
    metric: str
    unit: str
    key: str
    held: str
    points: Mapping[str, Sequence[tuple[float, Interval]]]
    cells: tuple[Cell, ...]


def swept_metrics(study: Study, cells: Sequence[Cell]) -> tuple[SweptMetric, ...]:
    """Return every metric of every sweep as a function of each swept key. Of events, only metrics whose
    quantiles are shown are returned."""
    return tuple(line for sweep in sweeps(study) for line in _lines(sweep, cells))


def _lines(sweep: Sweep, cells: Sequence[Cell]) -> Iterator[SweptMetric]:
    first = sweep.workloads[0]
    known = dict.fromkeys(c.metric for c in cells if c.workload in sweep.at)
    for metric in (m for m in known if not first.event or m in first.quantiles):
        for number, key in enumerate(sweep.keys):
            for names in sweep.lines(key):
                along = [c for c in cells if c.workload in names and c.metric == metric and c.n]
                points: dict[str, dict[float, Interval]] = {}
                for c in along:
                    at = sweep.at[c.workload][number]
                    for side, value in ((c.baseline, c.baseline_value), (c.arm, c.value)):
                        if math.isfinite(value.centre):
                            points.setdefault(side, {})[at] = value
                ordered = {side: sorted(by_at.items()) for side, by_at in points.items()}
                if len({at for by_at in points.values() for at in by_at}) >= sweep.least:
                    yield SweptMetric(
                        sweep=sweep,
                        metric=metric,
                        unit=along[0].unit,
                        key=key,
                        held=held(sweep, names[0], key),
                        points=ordered,
                        cells=tuple(along),
                    )


@dataclass(frozen=True, kw_only=True)
class ConvergencePoint:
    """Whether pre-copy converged at one point of a sweep.

    at: values of all swept keys, in their order.
    moves: number of moves by pre-copy.
    alone: number of these moves that converged by themselves and were not given up.
    evidence: text on the rounds of a typical move: of one that did not converge by itself, if there was any.
    """

    at: tuple[float, ...]
    moves: int
    alone: int
    evidence: str


@dataclass(frozen=True, kw_only=True)
class ConvergenceLine:
    """Whether pre-copy converged in one environment, as a function of one key, while all other keys are
    constant.

    key: the dirty rate if it is swept, else the last swept key.
    held: the values of the other keys, as text; empty if there are none.
    points: in ascending order of the key.
    """

    sweep: Sweep
    arm: str
    environment: str
    key: str
    held: str
    points: tuple[ConvergencePoint, ...]

    def sentence(self) -> str:
        """Return the value of the key from which pre-copy does not converge, with the evidence."""
        where = f"{self.environment}{', ' + self.held if self.held else ''}"
        number = self.sweep.keys.index(self.key)
        well = [p for p in self.points if p.alone == p.moves]
        badly = [p for p in self.points if p.alone < p.moves]
        what, axis = title(self.key), self.sweep.axes[self.key]

        def text(p: ConvergencePoint) -> str:
            return f"{what} {at_text(axis, p.at[number])}"

        if not badly:
            last = self.points[-1]
            return one_line(
                f"{where}: pre-copy converges by itself at every {what} that was measured; at "
                f"{text(last)}: {last.evidence}"
            )
        first = badly[0]
        before = [p for p in well if p.at[number] < first.at[number]]
        limit = f"converges by itself up to {text(before[-1])}, and " if before else ""
        return one_line(
            f"{where}: pre-copy {limit}does not at {text(first)} ({first.moves - first.alone} of "
            f"{plural(first.moves, 'move')}): {first.evidence}"
        )


def convergence_lines(study: Study, records: RecordIndex) -> tuple[ConvergenceLine, ...]:
    """Return whether pre-copy converged, for every environment with moves by pre-copy."""
    return tuple(
        line for sweep in sweeps(study) for arm in study.arms() for line in _converged(sweep, arm, records)
    )


def convergence_sentences(study: Study, records: RecordIndex) -> tuple[str, ...]:
    """Return where pre-copy stops converging, a sentence for each environment."""
    return tuple(f"{line.sentence()}." for line in convergence_lines(study, records))


def _converged(sweep: Sweep, arm: Arm, records: RecordIndex) -> Iterator[ConvergenceLine]:
    if not sweep.workloads[0].event:
        return
    key = "dirty_rate" if "dirty_rate" in sweep.keys else sweep.keys[-1]
    points: dict[str, list[ConvergencePoint]] = {}
    for event in (w.name for w in sweep.workloads):
        moves = list(_moves(records, arm, event))
        if moves:
            points.setdefault(held(sweep, event, key), []).append(_point(sweep.at[event], moves))
    number = sweep.keys.index(key)
    for words, own in points.items():
        yield ConvergenceLine(
            sweep=sweep,
            arm=arm.name,
            environment=arm.environment.name,
            key=key,
            held=words,
            points=tuple(sorted(own, key=lambda p: p.at[number])),
        )


def _moves(records: RecordIndex, arm: Arm, event: str) -> Iterator[tuple[Sequence[CopyRound], bool]]:
    for trial in records.trials(arm.name):
        found = trial.facts.get(event, {})
        moves = found.get("moves", found.get("events", []))
        for move in moves if isinstance(moves, list) else []:
            if not isinstance(move, dict):
                continue
            method, copied = move.get("method", found.get("method")), move.get("copied")
            if isinstance(method, str) and Method(method).copies_first and isinstance(copied, list):
                rounds = [CopyRound.from_record(one) for one in copied]
                if rounds:
                    yield rounds, move.get("ended", True) is not False


def _point(at: tuple[float, ...], moves: Sequence[tuple[Sequence[CopyRound], bool]]) -> ConvergencePoint:
    judged = [(convergence(rounds), rounds, ended) for rounds, ended in moves]
    alone = sum(found.alone and ended for found, _, ended in judged)
    shown = [one for one in judged if not (one[0].alone and one[2])] or judged
    # A typical move: the memory that its last round left over is nearest to the median of all.
    middle = median(rounds[-1].left for _, rounds, _ in shown)
    found, _, ended = min(shown, key=lambda one: abs(one[1][-1].left - middle))
    unended = "" if ended else ", and it was given up"
    return ConvergencePoint(at=at, moves=len(judged), alone=alone, evidence=found.evidence + unended)


def sweeps_json(study: Study, cells: Sequence[Cell], records: RecordIndex) -> dict[str, JsonValue]:
    """Return curves and convergence as JSON, in base units. A dirty rate without a limit is null."""
    return {
        "curves": [_curve_json(line) for line in swept_metrics(study, cells)],
        "convergence": [_convergence_json(line) for line in convergence_lines(study, records)],
    }


def _curve_json(line: SweptMetric) -> JsonValue:
    points: list[JsonValue] = [
        {
            "arm": arm,
            "at": finite(at),
            "value": value.centre,
            "low": finite(value.low),
            "high": finite(value.high),
        }
        for arm, along in line.points.items()
        for at, value in along
    ]
    return {
        "workload": line.sweep.name,
        "metric": line.metric,
        "unit": line.unit,
        "over": line.key,
        "over_unit": line.sweep.axes[line.key].unit,
        "held": line.held,
        "n": min(c.n for c in line.cells),
        "points": points,
    }


def _convergence_json(line: ConvergenceLine) -> JsonValue:
    return {
        "workload": line.sweep.name,
        "arm": line.arm,
        "over": line.key,
        "held": line.held,
        "sentence": line.sentence(),
        "points": [
            {
                "at": dict(zip(line.sweep.keys, map(finite, p.at), strict=True)),
                "moves": p.moves,
                "converged_alone": p.alone,
                "evidence": p.evidence,
            }
            for p in line.points
        ],
    }
