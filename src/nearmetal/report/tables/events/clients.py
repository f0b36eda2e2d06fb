"""Table of the interruptions that a client saw while the instance that serves it moved, and at rest. No
I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ....model.record import JsonValue
from ....model.study import Study
from ....units import show
from ...record_index import RecordIndex
from ...sheet import Grid
from ..cells import side

_HEADS = (
    "workload, environment",
    "silence known to",
    "unanswered",
    "longest gap",
    "longest gap, TCP",
    "longest delay",
    "moves",
)


def clients_grids(study: Study, records: RecordIndex) -> list[Grid]:
    """Return a table with the medians over all moves of each arm, and those of the same probe at rest in
    brackets; an empty list if no client was measured.

    The metrics of a study are the values of each move without those at rest (lifecycle.without_floor).
    """
    rows = [
        row
        for arm in study.arms()
        for w in study.events
        if (row := _row(f"{w.name}, {side(study, arm.name).title}", list(_moves(arm.name, w.name, records))))
    ]
    title = "What a client saw of the moves (in brackets: at rest)"
    return [Grid(title=title, heads=_HEADS, rows=tuple(rows), numbers=True)] if rows else []


_Facts = Mapping[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class _SeenMove:
    """The records of one move.

    move: what the client saw of it.
    floor, tcp_floor: what the client of the same trial saw at rest by UDP, and by TCP; the latter is empty in
        older records.
    """

    move: _Facts
    floor: _Facts
    tcp_floor: _Facts


def _moves(arm: str, workload: str, records: RecordIndex) -> Iterator[_SeenMove]:
    for trial in records.trials(arm):
        facts = trial.facts.get(workload, {})
        floor, stream, moves = facts.get("floor"), facts.get("tcp_floor"), facts.get("moves")
        if isinstance(floor, Mapping) and isinstance(moves, list):
            tcp = stream if isinstance(stream, Mapping) else {}
            for move in moves:
                if isinstance(move, Mapping) and "gap" in move:  # not one that was given up
                    yield _SeenMove(move=move, floor=floor, tcp_floor=tcp)


def _row(label: str, seen: Sequence[_SeenMove]) -> tuple[str, ...] | None:
    if not seen:
        return None

    def cell(key: str, rest: Iterable[float | None]) -> str:
        moved, usual = _median(_number(one.move, key) for one in seen), _median(rest)
        return f"{moved} ({usual})" if usual else moved

    return (
        label,
        _median(_known_to(one.floor) for one in seen),
        cell("lost_times_period", (_unanswered(one.floor) for one in seen)),
        cell("gap", (_number(one.floor, "gap") for one in seen)),
        cell("tcp_gap", (_number(one.tcp_floor, "gap") for one in seen)),
        cell("longest_delay", (_number(one.floor, "longest_delay") for one in seen)),
        str(len(seen)),
    )


def _median(values: Iterable[float | None]) -> str:
    """Return the median of the known values as text; empty if none is known."""
    known = [value for value in values if value is not None]
    return show(median(known), "s") if known else ""


def _known_to(floor: _Facts) -> float:
    """Return the seconds to which a silence is known. Older records have one period, also at rest."""
    period = _number(floor, "period") or 0.0
    return (_number(floor, "rest") or period) + period


def _unanswered(floor: _Facts) -> float:
    """Return the seconds at rest for which requests had no answer. Older records give the number of lost
    requests and the period of requests instead."""
    given = _number(floor, "unanswered")
    return (_number(floor, "lost") or 0.0) * (_number(floor, "period") or 0.0) if given is None else given


def _number(facts: _Facts, key: str) -> float | None:
    value = facts.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
