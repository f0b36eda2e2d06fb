"""Finds and removes the leftovers of killed runs: processes, files and mounts (host/leftovers.py), and also
containers that a daemon keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..errors import UnavailableError
from ..host import Host
from ..host.leftovers import Leftover, LeftoverKind, find, remove, wanted_names
from .registry import backend_names, get_backend

__all__ = ["Keeps", "KeepsNotes", "find_all", "remove_any"]


@runtime_checkable
class Keeps(Protocol):
    """Extra interface of backends whose instances are kept by a daemon, such as dockerd or libvirtd, when
    nearmetal is killed."""

    name: str

    def kept(self, host: Host) -> tuple[str, ...]:
        """Return the names of all instances of the daemon, including those that nearmetal did not create.

        Must be fast, and must return an empty tuple if no daemon answers.
        """

    def remove_kept(self, host: Host, name: str) -> None:
        """Stop and remove one instance. Does nothing if it no longer exists.

        Raises RunError.
        """


@runtime_checkable
class KeepsNotes(Protocol):
    """Extra interface of backends that implement Keeps, and for which a query of the daemon may disturb the
    next measurement."""

    def kept_noted(self, host: Host) -> tuple[str, ...]:
        """Return the names as kept() does, but query only daemons of which a note exists: every start of an
        instance writes one."""


def find_all(
    host: Host, prefix: str | None = None, *, quietly: bool = False, spare: Sequence[str] = ()
) -> tuple[Leftover, ...]:
    """Return all leftovers: containers, then those of leftovers.find(). Containers come first because the
    removal of a container also removes its processes and mounts.

    prefix, spare: as in leftovers.find().
    quietly: do not query daemons that probably have no instances of nearmetal (KeepsNotes).
    """
    wanted = wanted_names(prefix, spare)
    containers = tuple(
        Leftover(kind=LeftoverKind.CONTAINER, name=name, detail=keeper.name)
        for keeper in _keepers()
        for name in _names(keeper, host, quietly)
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
    for keeper in _keepers():
        if keeper.name == leftover.detail:
            keeper.remove_kept(host, leftover.name)


def _names(keeper: Keeps, host: Host, quietly: bool) -> tuple[str, ...]:
    return keeper.kept_noted(host) if quietly and isinstance(keeper, KeepsNotes) else keeper.kept(host)


def _keepers() -> tuple[Keeps, ...]:
    """Return the backends that implement Keeps. Backends of other packages that cannot be loaded are
    skipped."""
    found = []
    for name in backend_names():
        try:
            backend = get_backend(name)
        except UnavailableError:
            continue
        if isinstance(backend, Keeps):
            found.append(backend)
    return tuple(found)
