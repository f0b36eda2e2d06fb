"""Finds and removes the leftovers of killed runs: processes, files and mounts (host/leftovers.py), and also
containers that a daemon keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..errors import UnavailableError
from ..host import Host
from ..host.leftovers import Leftover, LeftoverKind, find, remove, wanted_names
from .registry import backend_names, get_backend

__all__ = ["ManagedByDaemon", "RecordsInstances", "find_all", "remove_any"]


@runtime_checkable
class ManagedByDaemon(Protocol):
    """Extra interface of backends whose instances are kept by a daemon, such as dockerd or libvirtd, when
    nearmetal is killed."""

    name: str

    def instance_names(self, host: Host) -> tuple[str, ...]:
        """Return the names of all instances of the daemon, including those that nearmetal did not create.

        Must be fast, and must return an empty tuple if no daemon answers.
        """

    def remove_instance(self, host: Host, name: str) -> None:
        """Stop and remove one instance. Does nothing if it no longer exists.

        Raises RunError.
        """


@runtime_checkable
class RecordsInstances(Protocol):
    """Extra interface of backends that implement ManagedByDaemon, and for which a query of the daemon may
    disturb the next measurement."""

    def recorded_instances(self, host: Host) -> tuple[str, ...]:
        """Return the names as instance_names() does, but query only the daemons that are named in a note.
        Every start of an instance writes such a note."""


def find_all(
    host: Host, prefix: str | None = None, *, quietly: bool = False, spare: Sequence[str] = ()
) -> tuple[Leftover, ...]:
    """Return all leftovers: containers, then those of leftovers.find(). Containers come first because the
    removal of a container also removes its processes and mounts.

    prefix, spare: as in leftovers.find().
    quietly: do not query daemons that probably have no instances of nearmetal (RecordsInstances).
    """
    wanted = wanted_names(prefix, spare)
    containers = tuple(
        Leftover(kind=LeftoverKind.CONTAINER, name=name, detail=manager.name)
        for manager in _managers()
        for name in _names(manager, host, quietly)
        if wanted(name)
    )
    return (*containers, *find(prefix, spare))


def remove_any(host: Host, leftover: Leftover) -> None:
    """Remove a leftover. Harmless if it is gone already.

    Raises RunError if it cannot be removed.
    """
    if leftover.kind is not LeftoverKind.CONTAINER:
        remove(leftover)
        return
    for manager in _managers():
        if manager.name == leftover.detail:
            manager.remove_instance(host, leftover.name)


def _names(manager: ManagedByDaemon, host: Host, quietly: bool) -> tuple[str, ...]:
    if quietly and isinstance(manager, RecordsInstances):
        return manager.recorded_instances(host)
    return manager.instance_names(host)


def _managers() -> tuple[ManagedByDaemon, ...]:
    """Return the backends that implement ManagedByDaemon. Backends of other packages that cannot be loaded
    are skipped."""
    found = []
    for name in backend_names():
        try:
            backend = get_backend(name)
        except UnavailableError:
            continue
        if isinstance(backend, ManagedByDaemon):
            found.append(backend)
    return tuple(found)
