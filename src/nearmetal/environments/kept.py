"""What killed runs left, with what daemons keep for them: the machine's own leftovers (host/leftovers.py)
and the containers of backends that have kept() and remove_kept()."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..errors import UnavailableError
from ..host import Host
from ..host.leftovers import Leftover, LeftoverKind, find, remove, wanted_names
from .registry import backend_names, get_backend

__all__ = ["Keeps", "KeepsNotes", "find_all", "remove_any"]


@runtime_checkable
class Keeps(Protocol):
    """What a backend has besides the contract whose instances are kept by a daemon, beyond processes and
    files."""

    name: str

    def kept(self, host: Host) -> tuple[str, ...]:
        """Names of all that the daemon keeps, others' too; quick and empty where none answers."""

    def remove_kept(self, host: Host, name: str) -> None:
        """End and remove one; harmless where it is gone. Raises RunError."""


@runtime_checkable
class KeepsNotes(Protocol):
    """What such a backend may have besides, where asking a daemon may disturb what is measured next."""

    def kept_noted(self, host: Host) -> tuple[str, ...]:
        """kept() of those daemons alone that instances of ours have noted."""


def find_all(host: Host, prefix: str | None = None, *, quietly: bool = False) -> tuple[Leftover, ...]:
    """leftovers.find() with the containers first: with one go its processes and mounts. quietly: nobody is
    asked who need not have anything of ours (KeepsNotes)."""
    wanted = wanted_names(prefix)
    containers = tuple(
        Leftover(kind=LeftoverKind.CONTAINER, name=name, detail=keeper.name)
        for keeper in _keepers()
        for name in _names(keeper, host, quietly)
        if wanted(name)
    )
    return (*containers, *find(prefix))


def remove_any(host: Host, leftover: Leftover) -> None:
    """Remove one; harmless when it is gone already. Raises RunError when it cannot be removed."""
    if leftover.kind is not LeftoverKind.CONTAINER:
        remove(leftover)
        return
    for keeper in _keepers():
        if keeper.name == leftover.detail:
            keeper.remove_kept(host, leftover.name)


def _names(keeper: Keeps, host: Host, quietly: bool) -> tuple[str, ...]:
    return keeper.kept_noted(host) if quietly and isinstance(keeper, KeepsNotes) else keeper.kept(host)


def _keepers() -> tuple[Keeps, ...]:
    """Another package's backend that does not load is no reason to leave anything."""
    found = []
    for name in backend_names():
        try:
            backend = get_backend(name)
        except UnavailableError:
            continue
        if isinstance(backend, Keeps):
            found.append(backend)
    return tuple(found)
