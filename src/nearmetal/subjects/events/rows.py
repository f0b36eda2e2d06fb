"""Rows of a record for subjects that measure events of instances, and the estimated time of a start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...lifecycle import PhaseTimes
from ...model.change import replace
from ...model.record import STEP, Row, Status
from ...model.study import Better, EventSubject
from ...workloads.command import value_row
from .pace import LEAST_BEHIND

START_SECONDS = 0.004
"""Estimated seconds of one start of an instance, on a machine of the early 2020s."""
_HALF_MS = 0.0005


def event_row(subject: EventSubject, metric: str, unit: str, values: Sequence[float]) -> Row:
    """Return a row of values that were measured successfully. Lower values are better.

    values: one for each event, in `unit`.
    """
    return Row(
        workload=subject.name,
        metric=metric,
        unit=unit,
        better=Better.LOWER,
        values=tuple(values),
        status=Status.OK,
    )


def reported(downtimes: Iterable[float | None]) -> list[float]:
    """Return the downtimes that the hypervisor has reported, in seconds; [] if none is above zero.

    downtimes: seconds of each move; None if the hypervisor reported none.

    A downtime below half a millisecond counts as half a millisecond: QEMU reports whole milliseconds, so 0
    means less than one. Without these moves, the mean would be too large.
    """
    known = [d for d in downtimes if d is not None]
    return [max(d, _HALF_MS) for d in known] if any(known) else []


def with_steps(row: Row, phases: Sequence[PhaseTimes]) -> Row:
    """Return the row with the seconds of each phase as parts. Phases that some event lacks are left out.

    phases: one entry for each value of the row.
    """
    steps = [one.record() for one in phases]
    names = [name for name in (steps[0] if steps else ()) if all(name in one for one in steps)]
    return replace(row, parts={STEP + name: tuple(one[name] for one in steps) for name in names})


def measured_row(
    subject: EventSubject, metric: str, unit: str, better: Better, value: float | None, why: str
) -> Row:
    """Return a row of one value. The row is marked as failed if the value is missing or not above zero, since
    no ratio can then be formed.

    why: reason to record in that case.
    """
    return value_row(subject.name, metric, unit, better, value if value and value > 0 else None, why)


def slowdown_rows(subject: EventSubject, behind: Sequence[float | None]) -> list[Row]:
    """Return the row `slowdown`: the seconds by which a program was behind its pace after each event.

    Return no row if its pace is not known for any event. Values below LEAST_BEHIND are replaced by it.

    behind: seconds for each event; None for an event without a known pace.
    """
    known = [max(value, LEAST_BEHIND) for value in behind if value is not None]
    return [event_row(subject, "slowdown", "s", known)] if known else []
