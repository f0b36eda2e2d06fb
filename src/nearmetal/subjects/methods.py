"""Methods of subjects that write instances to files or move them."""

from __future__ import annotations

from collections.abc import Sequence

from ..environments import Backend
from ..lifecycle import Method
from ..model.study import EventSubject


def lacks_method(workload: EventSubject, backend: Backend, able: Sequence[Method]) -> str | None:
    """Return why the instances of a backend do not have the method of a workload; None if they do, or if the
    workload names none.

    able: the methods that they do have.
    """
    if workload.method is None or workload.method in able:
        return None
    return f"{backend.name} has no method {workload.method}; use {', '.join(able)}"
