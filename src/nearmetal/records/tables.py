"""The raw values as columns, one entry per value, for the CSV and Parquet exports. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from ..model.record import TrialRecord


@dataclass(frozen=True, kw_only=True)
class ValueColumns:
    """Columns with one entry per value. A row or trial without values (a failed one) has one entry with index
    and value None, so that no failure is lost.

    value: in base unit `unit`.
    begin, end: Unix seconds of the trial.
    seconds: wall seconds of the slice; None if the value itself is the time.
    flags: joined by '; '.
    """

    run: list[str]
    trial: list[str]
    block: list[int]
    attempt: list[int]
    position: list[int]
    arm: list[str]
    environment: list[str]
    placement: list[str]
    aa: list[bool]
    begin: list[float]
    end: list[float]
    fold: list[str]
    workload: list[str | None]
    metric: list[str | None]
    unit: list[str | None]
    better: list[str | None]
    index: list[int | None]
    value: list[float | None]
    seconds: list[float | None]
    status: list[str]
    reason: list[str]
    flags: list[str]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))


def value_columns(records: Iterable[TrialRecord]) -> ValueColumns:
    """Return the columns of all values of all records, in the order of the records."""
    names = ValueColumns.names()
    rows = [row for record in records for row in _rows(record)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return ValueColumns(**{name: list(column) for name, column in zip(names, columns, strict=True)})


def _rows(r: TrialRecord) -> Iterable[tuple[object, ...]]:
    environment, _, placement = r.arm.partition("/")
    flags = "; ".join(r.flags)
    head = (
        *(r.run, r.trial, r.block, r.attempt, r.position, r.arm, environment, placement),
        *(r.aa, r.begin, r.end, r.fold.value),
    )
    if not r.rows:
        yield (*head, None, None, None, None, None, None, None, r.status.value, r.reason, flags)
    for row in r.rows:
        what = (row.workload, row.metric, row.unit, row.better.value)
        tail = (row.status.value, row.reason, flags)
        if not row.values:
            yield (*head, *what, None, None, None, *tail)
        for index, value in enumerate(row.values):
            yield (*head, *what, index, value, row.seconds[index] if row.seconds else None, *tail)
