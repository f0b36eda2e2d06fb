"""Finds and removes the leftovers of killed runs: processes, files and mounts (host/leftovers.py), and also
containers that a daemon keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..errors import NearmetalError, RunError, UnavailableError
from ..host import Host
from ..host.leftovers import Leftover, LeftoverKind, find, is_leftover, remove, wanted_names
from .registry import backend_names, get_backend

__all__ = [
    "Cleaned",
    "ManagedByDaemon",
    "RecordsInstances",
    "ReportsSilence",
    "clean_up",
    "find_all",
    "not_searched",
    "remove_any",
]


@runtime_checkable
class ManagedByDaemon(Protocol):
    """Extra interface of backends whose instances are kept by a daemon, such as dockerd or libvirtd, when
    nearmetal is killed."""

    name: str

    def instance_names(self, host: Host) -> tuple[str, ...]:
        """Return the names of all instances of the daemon, including those that nearmetal did not create.

        Must be fast. Daemons that do not answer are left out (ReportsSilence).
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


@runtime_checkable
class ReportsSilence(Protocol):
    """Extra interface of backends that implement ManagedByDaemon, and that can tell a daemon that does not
    answer from one that does not run.

    note: name of the file in a scratch directory that says which daemon has instances; '' if there is none.
    """

    note: str

    def not_searched(self, host: Host) -> tuple[str, ...]:
        """Return a sentence for each daemon that runs and does not answer, such as 'docker does not answer:
        its containers were not looked at'."""


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """The leftovers of killed runs.

    found: those that were found.
    left: those that still exist.
    failures: why some of them could not be removed, one text for each.
    not_searched: where leftovers could not be looked for, one sentence for each.
    """

    found: tuple[Leftover, ...]
    left: tuple[Leftover, ...]
    failures: tuple[str, ...] = ()
    not_searched: tuple[str, ...] = ()


_SEARCHES = 3
"""How often leftovers are searched for and removed at most."""


def clean_up(
    host: Host, prefix: str | None = None, *, quietly: bool = False, spare: Sequence[str] = ()
) -> Cleaned:
    """Remove all leftovers, and look whether they are gone. What appears meanwhile, such as a process that
    was just starting, is removed too. A failure is returned in the result and does not stop the removal of
    others.

    prefix, quietly, spare: as in find_all().
    """
    found, failed, failures = list[Leftover](), list[Leftover](), list[str]()
    for _ in range(_SEARCHES):
        left = find_all(host, prefix, quietly=quietly, spare=spare)
        for leftover in (new := [item for item in left if item not in found]):
            # The search takes seconds. A run with this label may have begun since.
            if not is_leftover(leftover, prefix, spare):
                continue
            found.append(leftover)
            try:
                remove_any(host, leftover)
            except NearmetalError as e:
                failed.append(leftover)
                failures.append(str(e))
        if not new:
            break
    else:
        left = find_all(host, prefix, quietly=quietly, spare=spare)
    # A daemon that no longer answers does not show its containers.
    hidden = (i for i in failed if i.kind is LeftoverKind.CONTAINER and i not in left)
    return Cleaned(found=tuple(found), left=(*hidden, *left), failures=tuple(failures))


def not_searched(host: Host) -> tuple[str, ...]:
    """Return where instances could not be looked for, because a daemon does not answer."""
    managers = (m for m in _managers() if isinstance(m, ReportsSilence))
    return tuple(sentence for manager in managers for sentence in manager.not_searched(host))


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
    if leftover.kind is LeftoverKind.SCRATCH:
        _require_no_silence(host, Path(leftover.detail))
    if leftover.kind is not LeftoverKind.CONTAINER:
        remove(leftover)
        return
    for manager in _managers():
        if manager.name == leftover.detail:
            manager.remove_instance(host, leftover.name)


def _require_no_silence(host: Host, scratch: Path) -> None:
    """Check that a scratch directory may be removed.

    Raises RunError if it contains the only note of a daemon that does not answer.
    """
    for manager in _managers():
        if isinstance(manager, ReportsSilence) and manager.note and (scratch / manager.note).exists():
            for sentence in manager.not_searched(host):
                raise RunError(f"{scratch} is kept: {sentence}", remedy="nearmetal clean, when it answers")


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
