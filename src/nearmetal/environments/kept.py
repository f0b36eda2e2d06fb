"""Leftovers of killed runs, including those kept by daemons: the machine's own leftovers (host/leftovers.py),
and the containers of backends that implement Keeps."""

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
    """Extra interface of backends whose instances are kept by a daemon, in addition to processes and
    files."""

    name: str

    def kept(self, host: Host) -> tuple[str, ...]:
        """Return the names of all instances that the daemon keeps, including those of its other users.

        Must be fast, and return nothing if no daemon answers.
        """

    def remove_kept(self, host: Host, name: str) -> None:
        """Stop and remove one instance. Does nothing if it no longer exists.

        Raises RunError.
        """


@runtime_checkable
class KeepsNotes(Protocol):
    """Extra interface of backends that implement Keeps. Asking their daemons may disturb the next
    measurement."""

    def kept_noted(self, host: Host) -> tuple[str, ...]:
        """Return the same as kept(), but ask only daemons that nearmetal's instances have recorded in
        notes."""


def find_all(
    host: Host, prefix: str | None = None, *, quietly: bool = False, spare: Sequence[str] = ()
) -> tuple[Leftover, ...]:
    """Return leftovers.find(), with containers first: removing one also removes its processes and mounts.

    spare: as in leftovers.find().
    quietly: do not contact daemons that probably have no instances of nearmetal (KeepsNotes).
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
    """Return the backends that implement Keeps. A backend of another package that does not load is
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
