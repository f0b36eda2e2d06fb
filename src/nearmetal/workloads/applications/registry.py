"""The applications by name: entry points of the group nearmetal.workloads, ours and those of other packages;
rows out of what one found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ... import plugins
from ...errors import UsageError
from ...model.record import Row
from ...model.study import ApplicationWorkload
from ..command import used_rows, value_row, verified_rows
from ..parameter import Choices, Parameter
from .contract import Application, Parsed

GROUP = "nearmetal.workloads"


def application_names() -> tuple[str, ...]:
    """Names in order of the alphabet; loads none."""
    return tuple(plugins.points(GROUP))


@lru_cache
def application(name: str) -> Application:
    """Raises UsageError where there is none of that name, or it does not load."""
    found: Application = plugins.load(GROUP, name, "application", UsageError)
    return found


def parameters(name: str) -> dict[str, Parameter]:
    """The keys that an application takes. Raises UsageError for an unknown one."""
    return {p.name: p for p in application(name).parameters}


def choices(workload: ApplicationWorkload) -> Choices:
    """The workload's own values over the defaults."""
    defaults = {p.name: p.default for p in application(workload.application).parameters}
    return Choices(values={**defaults, **workload.params})


def needs_storage(workload: ApplicationWorkload) -> bool:
    """Whether its environments must have storage."""
    return application(workload.application).needs(choices(workload)).storage


def metric_names(workload: ApplicationWorkload) -> tuple[str, ...]:
    """Of every row that rows() can give."""
    own = (name for name, _, _ in application(workload.application).metrics(choices(workload)))
    return tuple(dict.fromkeys(("wall", "user", "system", "max_rss", "read", "written", *own)))


def rows(
    workload: ApplicationWorkload,
    found: Parsed,
    *,
    wall: float,
    user: float | None,
    system: float | None,
    max_rss: int | None,
    io: Mapping[str, int] | None = None,
    parts: Mapping[str, float] | None = None,
    accounts: Mapping[str, float] | None = None,
) -> tuple[Row, ...]:
    """What it took and what it found; where it is not verified, every row is FAILED. parts: of a profiled
    run, in place of what the application says itself; accounts: by the kernel, where it says nothing."""
    own = {
        m.name: value_row(workload.name, m.name, m.unit, m.better, m.value, m.reason) for m in found.metrics
    }
    used = used_rows(
        workload.name,
        wall=wall,
        user=user,
        system=system,
        max_rss=max_rss,
        io=io,
        own=own,
        parts=parts or found.parts or accounts,
    )
    every = used + tuple(own.values())
    if found.ok is None:
        return every
    return verified_rows(every, ok=found.ok, expected=found.expected, found=found.found)
