"""The built-in series by name: how each is made for this machine, and how the time is divided among its
parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...environments.registry import named_backend
from ...host import Host
from ...host.facts.topology import topology
from ...model.series import Part, Scale, Series
from ...node.machine import Machine
from ...node.progress import Progress
from ...studies import containers_2015 as containers
from ...studies import two_vm_2009 as two_vm
from .containers_2015 import containers_here, containers_planned
from .two_vm_2009 import PROGRAM, two_vm_here, two_vm_planned


class Make(Protocol):
    """Makes a series for a machine that was examined before.

    only: keys of the parts to run; empty for all.
    """

    def __call__(self, *, scale: Scale, seed: int, max_time: float, only: Sequence[str] = ()) -> Series: ...


@dataclass(frozen=True, kw_only=True)
class SeriesKind:
    """A built-in study in parts.

    parts: keys of the parts.
    usual_time: default time in seconds.
    here: makes the series after testing which backends work on this machine. The last argument is the
        requested backend.
    planned: makes the series without starting anything. The last argument is the requested backend.
    """

    parts: tuple[str, ...]
    usual_time: Mapping[Scale, float]
    here: Callable[[Machine, Progress, str | None], Make]
    planned: Callable[[Host, str | None], Make]


def kind(name: str) -> SeriesKind:
    """Return the series with a name from studies.SERIES."""
    return _KINDS[name]


def make_here(name: str, machine: Machine, progress: Progress, backend: str | None) -> Make:
    """Prepare a series after testing which backends work on this machine.

    Raises UsageError if the backend does not exist.
    """
    if backend is not None:
        named_backend(backend)
    return kind(name).here(machine, progress, backend)


def make_planned(name: str, host: Host, backend: str | None) -> Make:
    """Prepare a series without starting anything.

    Raises UsageError if the backend does not exist.
    """
    if backend is not None:
        named_backend(backend)
    return kind(name).planned(host, backend)


_KINDS = {
    containers.NAME: SeriesKind(
        parts=containers.part_keys(),
        usual_time=containers.USUAL_TIME,
        here=lambda machine, progress, backend: partial(
            containers.containers_2015, containers_here(machine, progress, backend)
        ),
        planned=lambda host, backend: partial(
            containers.containers_2015, containers_planned(topology(host, host.cpus()).cores, backend)
        ),
    ),
    two_vm.NAME: SeriesKind(
        parts=two_vm.part_keys(),
        usual_time=two_vm.USUAL_TIME,
        here=lambda machine, progress, backend: partial(
            two_vm.two_vm_2009, two_vm_here(machine, progress, backend)
        ),
        planned=lambda host, backend: partial(
            two_vm.two_vm_2009,
            two_vm_planned(topology(host, host.cpus()).order, host.which(PROGRAM) is not None, backend),
        ),
    ),
}


def budget(part: Part, waiting: Iterable[Part], left: float) -> float:
    """Return the time for a part in seconds: its share of the time left for all waiting parts.

    waiting: the parts that have not run yet, including this one. Time that a part does not use is thus left
        to the others.
    """
    shares = sum(p.share for p in waiting)
    return max(left, 1.0) * part.share / shares
