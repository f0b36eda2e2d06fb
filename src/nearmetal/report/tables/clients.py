"""Table of the interruptions that a client saw while the instance that serves it moved, and at rest. No
I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from ...model.record import JsonValue
from ...model.study import Study
from ...units import show
from ..record_index import RecordIndex
from ..sheet import Grid
from .cells import side

_HEADS = (
    "workload, environment",
    "silence known to",
    "unanswered",
    "longest gap",
    "longest gap, TCP",
    "at rest: unanswered",
    "at rest: longest gap",
    "moves",
)


def clients_grids(study: Study, records: RecordIndex) -> list[Grid]:
    """Return a table with the medians over all moves of each arm, beside those of the same probe at rest; an
    empty list if no client was measured.

    The metrics `unanswered` and `silence` of a study are the values of each move minus those at rest.
    """
    rows = [
        row
        for arm in study.arms()
        for w in study.events
        if (row := _row(f"{w.name}, {side(study, arm.name).title}", list(_seen(arm.name, w.name, records))))
    ]
    title = "What a client saw of the moves"
    return [Grid(title=title, heads=_HEADS, rows=tuple(rows), numbers=True)] if rows else []


def _seen(
    arm: str, workload: str, records: RecordIndex
) -> Iterator[tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]]]:
    """Yield, for each move, what the client saw of it, and what the client of the same trial saw at rest."""
    for trial in records.trials(arm):
        facts = trial.facts.get(workload)
        floor = facts.get("floor") if isinstance(facts, Mapping) else None
        moves = facts.get("moves") if isinstance(facts, Mapping) else None
        if isinstance(floor, Mapping) and isinstance(moves, list):
            yield from ((move, floor) for move in moves if isinstance(move, Mapping))


def _row(
    label: str, seen: list[tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]]]
) -> tuple[str, ...] | None:
    if not seen:
        return None
    columns = (
        [_number(f, "rest" if "rest" in f else "period") + _number(f, "period") for _, f in seen],
        [_number(m, "lost_times_period") for m, _ in seen],
        [_number(m, "gap") for m, _ in seen],
        [_number(m, "tcp_gap") for m, _ in seen],
        [_unanswered(f) for _, f in seen],
        [_number(f, "gap") for _, f in seen],
    )
    return (label, *(show(median(values), "s") for values in columns), str(len(seen)))


def _unanswered(floor: Mapping[str, JsonValue]) -> float:
    """Return the seconds at rest for which requests had no answer. Older records give the number of lost
    requests and the period of requests instead."""
    if "unanswered" in floor:
        return _number(floor, "unanswered")
    return _number(floor, "lost") * _number(floor, "period")


def _number(facts: Mapping[str, JsonValue], key: str) -> float:
    value = facts.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
