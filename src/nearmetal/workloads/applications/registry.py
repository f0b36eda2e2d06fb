"""Finds applications by name, and makes rows from their results. Applications are entry points of the group
nearmetal.workloads, including those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ... import plugins
from ...errors import UsageError
from ...model.change import replace
from ...model.record import Row
from ...model.study import ApplicationWorkload
from ...model.workloads.programs import RESOURCES
from ..command import ResourceUse, used_rows, value_row, verified_rows
from ..parameter import Choices, Parameter
from .contract import Application, Parsed

GROUP = "nearmetal.workloads"


def application_names() -> tuple[str, ...]:
    """Return the names of all applications in alphabetical order, without loading them."""
    return tuple(plugins.points(GROUP))


@lru_cache
def application(name: str) -> Application:
    """Return the application of this name. Raises UsageError if there is none, or if it cannot be loaded."""
    found: Application = plugins.load(GROUP, name, "application", UsageError)
    return found


def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of an application by name. Raises UsageError for an unknown application."""
    return {p.name: p for p in application(name).parameters}


def choices(workload: ApplicationWorkload) -> Choices:
    """Return the workload's own values, with defaults for the others."""
    defaults = {p.name: p.default for p in application(workload.application).parameters}
    return Choices(values={**defaults, **workload.params})


def needs_storage(workload: ApplicationWorkload) -> bool:
    return application(workload.application).needs(choices(workload)).storage


def metric_names(workload: ApplicationWorkload) -> tuple[str, ...]:
    """Return the name of every metric that rows() can return."""
    own = (name for name, _, _ in application(workload.application).metrics(choices(workload)))
    return tuple(dict.fromkeys((*RESOURCES, *own)))


def rows(
    workload: ApplicationWorkload,
    found: Parsed,
    used: ResourceUse,
    *,
    accounts: Mapping[str, float] | None = None,
) -> tuple[Row, ...]:
    """Return the rows of a run: the resources that it used, and the results that it reported.

    If the verification of the results failed, every row is FAILED.
    used: resources of the run. Its `parts`, if there are any, replace those that the application reports.
    accounts: seconds of the wall time by kind as Linux accounts them, used if there are no other parts.
    """
    own = {
        m.name: value_row(workload.name, m.name, m.unit, m.better, m.value, m.reason) for m in found.metrics
    }
    parts = used.parts or found.parts or accounts
    every = used_rows(workload.name, replace(used, parts=parts), own=own) + tuple(own.values())
    if found.ok is None:
        return every
    return verified_rows(every, ok=found.ok, expected=found.expected, found=found.found)
