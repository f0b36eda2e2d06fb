"""Workloads that differ only in memory, dirty rate or another number of a move: their metrics as curves, and
where pre-copy stops converging. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median

from ...lifecycle import CopyRound, Method, convergence
from ...model.change import replace
from ...model.record import JsonValue
from ...model.result import Cell, Interval
from ...model.study import Arm, EventSubject, Study
from ...units import show
from ..seen import RecordIndex
from ..text import one_line, plural

AXES: Mapping[str, tuple[str, str]] = {
    "memory": ("memory", "B"),
    "working_set": ("working set", "B"),
    "dirty_rate": ("dirty rate", "B/s"),
    "bandwidth": ("bandwidth", "B/s"),
    "downtime_limit": ("downtime limit", "s"),
}
"""Keys of an event whose values may be the axis of a curve, with their words and units."""
FULL_SPEED = "full speed"


def at_text(key: str, at: float) -> str:
    """Return a value of a swept key as text: '128 MiB', or 'full speed' for a dirty rate without a limit."""
    if math.isinf(at):
        return FULL_SPEED
    number, _, unit = show(at, AXES[key][1], binary=AXES[key][1] != "s").partition(" ")
    return f"{float(number):g} {unit}"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Workloads that differ only in some numbers.

    name: the beginning that their names share.
    keys: the keys in which they differ.
    at: values of the keys, in their order, by workload. A dirty rate without a limit is infinite.
    """

    name: str
    events: tuple[EventSubject, ...]
    keys: tuple[str, ...]
    at: Mapping[str, tuple[float, ...]]

    def held(self, workload: str, but: str) -> str:
        """Return the values of all keys but one, as text."""
        pairs = zip(self.keys, self.at[workload], strict=True)
        return ", ".join(f"{AXES[k][0]} {at_text(k, v)}" for k, v in pairs if k != but)


def sweeps(study: Study) -> tuple[Sweep, ...]:
    """Return the sweeps of a study, in its order."""
    families: dict[EventSubject, list[EventSubject]] = {}
    for w in study.workloads:
        if isinstance(w, EventSubject):
            rest = replace(w, name="", **dict.fromkeys(AXES))
            families.setdefault(rest, []).append(w)
    found = []
    for events in families.values():
        values = {w.name: {key: _value(w, key) for key in AXES} for w in events}
        keys = tuple(k for k in AXES if len({v[k] for v in values.values()}) > 1)
        at = {name: tuple(v for k in keys if (v := own[k]) is not None) for name, own in values.items()}
        if keys and all(len(own) == len(keys) for own in at.values()):
            parts = zip(*(w.name.split("-") for w in events), strict=False)
            shared = [own[0] for own in takewhile(lambda own: len(set(own)) == 1, parts)]
            name = "-".join(shared) or events[0].facts.name
            found.append(Sweep(name=name, events=tuple(events), keys=keys, at=at))
    return tuple(found)


def _value(event: EventSubject, key: str) -> float | None:
    value = getattr(event, key)
    if value is None:
        return None
    return math.inf if key == "dirty_rate" and value == 0 else float(value)


@dataclass(frozen=True, kw_only=True)
class SweptMetric:
    """The values of a metric along one key, with all others held.

    held: the values of the others, as text; empty if there are none.
    points: by environment on its placement, the value of the key and the metric's value with its interval.
    """

    sweep: Sweep
    metric: str
    unit: str
    key: str
    held: str
    points: Mapping[str, Sequence[tuple[float, Interval]]]
    n: int
    emulated: bool


def swept_metrics(study: Study, cells: Sequence[Cell]) -> tuple[SweptMetric, ...]:
    """Return every metric of which quantiles are shown, along each swept key."""
    return tuple(line for sweep in sweeps(study) for line in _lines(sweep, cells))


def _lines(sweep: Sweep, cells: Sequence[Cell]) -> Iterator[SweptMetric]:
    facts = sweep.events[0].facts
    for metric in (m for m in facts.metrics if m in facts.quantiles):
        own = [c for c in cells if c.workload in sweep.at and c.metric == metric and c.n]
        for number, key in enumerate(sweep.keys):
            held: dict[str, list[Cell]] = {}
            for cell in own:
                held.setdefault(sweep.held(cell.workload, key), []).append(cell)
            for words, along in held.items():
                points: dict[str, dict[float, Interval]] = {}
                for c in along:
                    at = sweep.at[c.workload][number]
                    for side, value in ((c.baseline, c.baseline_value), (c.arm, c.value)):
                        if math.isfinite(value.centre):
                            points.setdefault(side, {})[at] = value
                ordered = {side: sorted(by_at.items()) for side, by_at in points.items()}
                if len({at for by_at in points.values() for at in by_at}) > 1:
                    yield SweptMetric(
                        sweep=sweep,
                        metric=metric,
                        unit=along[0].unit,
                        key=key,
                        held=words,
                        points=ordered,
                        n=min(c.n for c in along),
                        emulated=any(c.emulated for c in along),
                    )


@dataclass(frozen=True, kw_only=True)
class ConvergencePoint:
    """How pre-copy went at one point of a sweep.

    moves: number of moves by pre-copy.
    alone: how many of them converged by themselves.
    evidence: what shows that the others did not; of one that did, if all did.
    """

    at: tuple[float, ...]
    moves: int
    alone: int
    evidence: str


@dataclass(frozen=True, kw_only=True)
class ConvergenceLine:
    """How pre-copy went in one environment along the key that was swept last, with the others held."""

    sweep: Sweep
    arm: str
    environment: str
    key: str
    held: str
    points: tuple[ConvergencePoint, ...]

    def sentence(self) -> str:
        """Return where pre-copy stops converging, with the evidence."""
        where = f"{self.environment}{', ' + self.held if self.held else ''}"
        number = self.sweep.keys.index(self.key)
        well = [p for p in self.points if p.alone == p.moves]
        badly = [p for p in self.points if p.alone < p.moves]
        what = AXES[self.key][0]

        def text(p: ConvergencePoint) -> str:
            return f"{what} {at_text(self.key, p.at[number])}"

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
    """Return how the moves by pre-copy went, in every environment that made some."""
    return tuple(
        line for sweep in sweeps(study) for arm in study.arms() for line in _converged(sweep, arm, records)
    )


def convergence_sentences(study: Study, records: RecordIndex) -> tuple[str, ...]:
    """Return where pre-copy stops converging, a sentence for each environment."""
    return tuple(f"{line.sentence()}." for line in convergence_lines(study, records))


def _converged(sweep: Sweep, arm: Arm, records: RecordIndex) -> Iterator[ConvergenceLine]:
    key = "dirty_rate" if "dirty_rate" in sweep.keys else sweep.keys[-1]
    points: dict[str, list[ConvergencePoint]] = {}
    for event in sweep.events:
        moves = list(_moves(records, arm, event))
        if moves:
            point = _point(sweep.at[event.name], moves)
            points.setdefault(sweep.held(event.name, key), []).append(point)
    number = sweep.keys.index(key)
    for held, own in points.items():
        yield ConvergenceLine(
            sweep=sweep,
            arm=arm.name,
            environment=arm.environment.name,
            key=key,
            held=held,
            points=tuple(sorted(own, key=lambda p: p.at[number])),
        )


def _moves(records: RecordIndex, arm: Arm, event: EventSubject) -> Iterator[tuple[Sequence[CopyRound], bool]]:
    """Yield the rounds of each move by pre-copy, and whether the move ended."""
    for trial in records.trials(arm.name):
        found = trial.facts.get(event.name, {})
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
    # The typical one: its last round is the median of all.
    middle = median(rounds[-1].left for _, rounds, _ in shown)
    found, _, ended = min(shown, key=lambda one: abs(one[1][-1].left - middle))
    unended = "" if ended else ", and it was given up"
    return ConvergencePoint(at=at, moves=len(judged), alone=alone, evidence=found.evidence + unended)


def sweeps_json(study: Study, cells: Sequence[Cell], records: RecordIndex) -> dict[str, JsonValue]:
    """Return curves and convergence as JSON, in base units. Full speed is null."""
    return {
        "curves": [_curve_json(line) for line in swept_metrics(study, cells)],
        "convergence": [_convergence_json(line) for line in convergence_lines(study, records)],
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _curve_json(line: SweptMetric) -> JsonValue:
    points: list[JsonValue] = [
        {
            "arm": arm,
            "at": _known(at),
            "value": value.centre,
            "low": _known(value.low),
            "high": _known(value.high),
        }
        for arm, along in line.points.items()
        for at, value in along
    ]
    return {
        "workload": line.sweep.name,
        "metric": line.metric,
        "unit": line.unit,
        "over": line.key,
        "over_unit": AXES[line.key][1],
        "held": line.held,
        "n": line.n,
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
                "at": dict(zip(line.sweep.keys, map(_known, p.at), strict=True)),
                "moves": p.moves,
                "converged_alone": p.alone,
                "evidence": p.evidence,
            }
            for p in line.points
        ],
    }
