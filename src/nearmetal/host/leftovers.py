"""Finds and removes the leftovers of ended runs on this machine, by their labels. It never touches anything
of a running run, and never selects by the name of a program."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import RunError
from . import cgroups, namespaces, undo
from .cards import NETWORK_DEVICES, marked_devices, route_socket
from .facts.devices import TAKEN
from .labels import OURS, owns
from .liveness import is_of_living_process, living_labels
from .lock import is_left_over, lock_path
from .mounts import own_mounts
from .notes import (
    Card,
    Controllers,
    Directories,
    Functions,
    is_held,
    note_error,
    read_notes,
    unfinished_notes,
)
from .outside import find_directories, remove_directory
from .processes import labelled as processes
from .processes.helper import wait_readable
from .runtime import SHARED_MEMORY, runtime_directory


class LeftoverKind(StrEnum):
    """Kinds of leftovers, in the order in which they are removed. What is noted comes before any file system
    is unmounted: it may be on one."""

    CONTAINER = "container"
    PROCESS = "process"
    CARD = "network card"
    FUNCTIONS = "virtual functions"
    STORAGE = "storage directory"
    MOUNT = "mount"
    NETNS = "network namespace"
    LINK = "link"
    CGROUP = "control group"
    CONTROLLERS = "controllers"
    SCRATCH = "scratch directory"
    NOTE = "undo note"
    LOCK = "lock"
    IMAGE = "unfinished image"


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that a run has left on the machine.

    name: the label by which it was found.
    detail: PID, path or interface, for remove(); for a container, the container program. For a card, virtual
        functions and controllers, the path of the undo note.
    """

    kind: LeftoverKind
    name: str
    detail: str


def wanted_names(prefix: str | None = None, spare: Sequence[str] = ()) -> Callable[[str], bool]:
    """Return a predicate that tells whether a name is a label that find() looks for.

    prefix, spare: as in find().
    """
    alive = (*living_labels(), *spare)

    def wanted(name: str) -> bool:
        if not (OURS.fullmatch(name) if prefix is None else name.startswith(prefix)):
            return False
        return not any(owns(run, name) for run in alive) and not is_of_living_process(name)

    return wanted


def find(prefix: str | None = None, spare: Sequence[str] = ()) -> tuple[Leftover, ...]:
    """Find everything with a label of nearmetal that belongs to no running run or check, in the order of
    removal.

    Only leftovers that this user may see are found; root sees everything.

    prefix: find labels that begin with this prefix instead.
    spare: labels of further running runs.
    """
    wanted = wanted_names(prefix, spare)
    noted = tuple(_noted(wanted))
    return (
        *_processes(wanted),
        *(item for item in noted if item.kind is not LeftoverKind.CONTROLLERS),
        *_mounts(wanted),
        *_entries(LeftoverKind.NETNS, namespaces.NETNS_DIRECTORY, wanted),
        *_links(wanted),
        *_groups(wanted),
        *(item for item in noted if item.kind is LeftoverKind.CONTROLLERS),
        *_entries(LeftoverKind.SCRATCH, runtime_directory(), wanted),
        *_entries(LeftoverKind.SCRATCH, SHARED_MEMORY, wanted),
        *_notes(wanted, prefix),
        *(_lock() if prefix is None else ()),
    )


def is_leftover(leftover: Leftover, prefix: str | None = None, spare: Sequence[str] = ()) -> bool:
    """Return whether something that was found still belongs to no running run or check. Call it immediately
    before each removal.

    prefix, spare: as in find().
    """
    match leftover.kind:
        case LeftoverKind.LOCK:
            return is_left_over(Path(leftover.detail))
        case LeftoverKind.NOTE if not OURS.fullmatch(leftover.name):
            return True
        case _:
            return wanted_names(prefix, spare)(leftover.name)


def remove(leftover: Leftover) -> None:
    """Remove a leftover; harmless if it no longer exists.

    Raises RunError if it cannot be removed.
    """
    try:
        match leftover.kind:
            case LeftoverKind.CONTAINER:
                raise RunError(f"container {leftover.name} is kept by {leftover.detail}, which removes it")
            case LeftoverKind.PROCESS:
                _end(int(leftover.detail), leftover.name)
                # Podman's monitor may have started its clean-up meanwhile, which would make files again.
                for pid in processes.labelled(lambda other: other == leftover.name):
                    _end(pid, leftover.name)
            case LeftoverKind.MOUNT:
                with contextlib.suppress(FileNotFoundError):
                    namespaces.detach(Path(leftover.detail))
            case LeftoverKind.NETNS:
                _give_devices_back(leftover.detail)
                namespaces.remove_network_namespace(Path(leftover.detail))
                namespaces.remove_empty_directory()
            case LeftoverKind.LINK:
                _delete_link(leftover.detail, leftover.name)
            case LeftoverKind.CARD | LeftoverKind.FUNCTIONS | LeftoverKind.CONTROLLERS | LeftoverKind.NOTE:
                _undo_noted(Path(leftover.detail))
            case LeftoverKind.CGROUP:
                cgroups.remove((Path(leftover.detail),))
            case LeftoverKind.STORAGE:
                _remove_noted(Path(leftover.detail))
            case LeftoverKind.SCRATCH:
                scratch = Path(leftover.detail)
                remove_directory(scratch.parent.resolve() / scratch.name)
                with contextlib.suppress(OSError):  # not empty: it contains a directory of another run
                    scratch.parent.rmdir()
            case LeftoverKind.LOCK:
                Path(leftover.detail).unlink(missing_ok=True)
            case LeftoverKind.IMAGE:
                raise RunError(f"image {leftover.name} is in the store of images, which removes it")
    except FileNotFoundError:
        return
    except OSError as e:
        raise RunError(f"{leftover.kind} {leftover.detail}: {e.strerror}", remedy="run it as root") from e


def _processes(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    found = processes.labelled(wanted)
    mine = processes.ancestors(os.getpid())
    for group in _group_directories(wanted):
        for pid in cgroups.members([group]) - mine:
            found.setdefault(pid, group.name)
    for pid, label in sorted(found.items()):
        yield Leftover(kind=LeftoverKind.PROCESS, name=label, detail=str(pid))


def _end(pid: int, label: str) -> None:
    """Kill a process by its pidfd and wait until it has ended. It is killed only if it is still the process
    that was found."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            if label in _group_names(pid) or pid in processes.labelled(lambda other: other == label):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                cgroups.thaw(pid, label)
                if not wait_readable(fd, 5):
                    raise RunError(f"process {pid} of {label} does not end")
        finally:
            os.close(fd)


def _group_names(pid: int) -> set[str]:
    try:
        return set(Path(f"/proc/{pid}/cgroup").read_text().replace("\n", "/").split("/"))
    except OSError:
        return set()


def _mounts(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    """Find mounts, the last mounted first.

    Only mounts below the runtime directory are found; elsewhere a name does not prove that a run made it.
    """
    for mount in reversed(own_mounts()):
        label = next((p for p in (*Path(mount.point).parts, *Path(mount.source).parts) if wanted(p)), None)
        if label is not None and Path(mount.point).is_relative_to(runtime_directory()):
            yield Leftover(kind=LeftoverKind.MOUNT, name=label, detail=mount.point)


def _entries(kind: LeftoverKind, directory: Path, wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if wanted(path.name):
                yield Leftover(kind=kind, name=path.name, detail=str(path))


def _links(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    """Find links in the machine's own network namespace by their alias. Other links are removed with their
    namespace."""
    for path in sorted(NETWORK_DEVICES.glob("*/ifalias")):
        with contextlib.suppress(OSError):  # another run may have removed the link meanwhile
            alias = path.read_text(errors="replace").strip()
            if wanted(alias):
                yield Leftover(kind=LeftoverKind.LINK, name=alias, detail=path.parent.name)


def _give_devices_back(netns: str) -> None:
    """Move the machine's own devices out of a namespace before it is removed. Devices without hardware would
    be deleted with the namespace."""
    if not namespaces.is_network_namespace(netns):
        return
    noted = _noted_cards()
    with Path("/proc/thread-self/ns/net").open("rb") as own:
        with namespaces.entered(netns), route_socket() as ip:
            moved = tuple(marked_devices(ip))
            for name in moved:
                ip.link("set", index=ip.link_lookup(ifname=name)[0], net_ns_fd=own.fileno())
        for name in moved:
            if name not in noted:
                _unmark(name)


def _unmark(interface: str) -> None:
    (NETWORK_DEVICES / interface / "ifalias").write_text("\n")


def _delete_link(interface: str, alias: str) -> None:
    """Delete a link that a run has made. A device of the machine is kept and only loses its mark.

    alias: alias of the link when it was found. A link that has another one now is left alone: it may be a
        card that was given back meanwhile.
    """
    if (NETWORK_DEVICES / interface / "ifalias").read_text(errors="replace").strip() != alias:
        return
    if alias.endswith(TAKEN):
        if interface not in _noted_cards():
            _unmark(interface)
        return
    with route_socket() as ip:
        for index in ip.link_lookup(ifname=interface):
            ip.link("del", index=index)


def _noted_cards() -> set[str]:
    """Return the cards whose settings are still to be restored. They keep the mark until then."""
    return {note.change.name for note in read_notes()[0] if isinstance(note.change, Card)}


def _group_directories(wanted: Callable[[str], bool]) -> list[Path]:
    """Return the groups whose names match, in every hierarchy, deepest first."""
    found = []
    for top, names, _ in os.walk("/sys/fs/cgroup", topdown=False):
        found += [Path(top, name) for name in names if wanted(name)]
    return sorted(found, key=lambda p: -len(p.parts))


def _groups(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    for path in _group_directories(wanted):
        yield Leftover(kind=LeftoverKind.CGROUP, name=path.name, detail=str(path))


_KINDS = {
    Card: LeftoverKind.CARD,
    Functions: LeftoverKind.FUNCTIONS,
    Controllers: LeftoverKind.CONTROLLERS,
}


def _noted(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    """Find the changes that undo notes are about, the last change first."""
    for note in read_notes()[0]:
        if isinstance(note.change, Directories):
            for path in find_directories(note):
                if wanted(path.name):
                    yield Leftover(kind=LeftoverKind.STORAGE, name=path.name, detail=str(path))
        elif undo.survives(note) and wanted(note.label):
            yield Leftover(kind=_KINDS[type(note.change)], name=note.label, detail=str(note.file))


def _notes(wanted: Callable[[str], bool], prefix: str | None) -> Iterator[Leftover]:
    """Find notes from which nothing can be undone: their changes no longer exist, they are incomplete, or
    they are refused."""
    readable, refused = read_notes()
    found = [(n.label, n.file) for n in readable if not undo.has_effect(n) and not is_held(n)]
    for label, file in (*found, *unfinished_notes()):
        if wanted(label):
            yield Leftover(kind=LeftoverKind.NOTE, name=label, detail=str(file))
    for file in (note.file for note in refused):
        label = file.name.partition(".")[0]
        if wanted(label) or (prefix is None and not OURS.fullmatch(label)):
            yield Leftover(kind=LeftoverKind.NOTE, name=label, detail=str(file))


def _undo_noted(file: Path) -> None:
    """Undo the note in a file. Harmless if it does not exist.

    Raises RunError if the change is not undone or the note is refused.
    """
    readable, refused = read_notes()
    for note in (n for n in readable if n.file == file):
        undo.undo_note(note)
    for bad in (n for n in refused if n.file == file):
        raise note_error(file, bad.why)
    if file in (path for _, path in unfinished_notes()):
        file.unlink(missing_ok=True)


def _remove_noted(path: Path) -> None:
    """Remove a directory that a run has made outside its scratch directory, and its note after the last
    one."""
    remove_directory(path)
    for note in read_notes()[0]:
        if owns(note.label, path.name) and not undo.has_effect(note) and not is_held(note):
            undo.undo_note(note)


def _lock() -> Iterator[Leftover]:
    path = lock_path()
    # A run may have begun since the other leftovers were looked for, so check again.
    if is_left_over(path):
        yield Leftover(kind=LeftoverKind.LOCK, name=path.name, detail=str(path))
