"""The subjects by the workloads that they measure."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.study import ApplicationWorkload, CommandWorkload, Event, EventSubject, KernelWorkload, Workload
from .contract import Subject
from .density import Density
from .exec import Exec
from .kernel import Kernels
from .program import Programs
from .start_stop import StartStop

_OF_EVENT: dict[Event, type[Subject]] = {
    Event.START: StartStop,
    Event.STOP: StartStop,
    Event.EXEC: Exec,
    Event.DENSITY: Density,
}


def subject_of(workload: Workload) -> type[Subject]:
    """The subject that measures a workload."""
    match workload:
        case KernelWorkload():
            return Kernels
        case CommandWorkload() | ApplicationWorkload():
            return Programs
        case EventSubject():
            return _OF_EVENT[workload.event]


def subjects_of(workloads: Sequence[Workload]) -> list[tuple[type[Subject], list[Workload]]]:
    """The subjects of these workloads in the order in which they have their turn, each with its workloads in
    the study's order."""
    found: dict[type[Subject], list[Workload]] = {}
    for w in workloads:
        found.setdefault(subject_of(w), []).append(w)
    return sorted(found.items(), key=lambda pair: pair[0].order)
