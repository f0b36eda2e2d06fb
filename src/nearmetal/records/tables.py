"""The raw values as a table, one row per value, for the CSV and Parquet exports. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model.record import TrialRecord

COLUMNS: dict[str, type] = {
    **dict.fromkeys(("run", "trial"), str),
    **dict.fromkeys(("block", "attempt", "position"), int),
    **dict.fromkeys(("arm", "environment", "placement"), str),
    "aa": bool,
    **dict.fromkeys(("begin", "end"), float),
    **dict.fromkeys(("fold", "workload", "metric", "unit", "better"), str),
    "index": int,
    **dict.fromkeys(("value", "seconds"), float),
    **dict.fromkeys(("status", "reason", "flags"), str),
}
"""The columns in order, with their types. begin, end: Unix seconds of the trial. value: in base unit `unit`.
seconds: wall seconds of the slice; None if the value itself is the time. flags: joined by '; '."""


def value_rows(records: Iterable[TrialRecord]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each value of all records, in the order of the records.

    A row or a trial without values, such as a failed one, gives one row whose index and value are None, so
    that no failure is lost.
    """
    for r in records:
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
