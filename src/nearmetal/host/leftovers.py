"""Finds and removes the leftovers of ended runs on this machine, by their labels. It never touches anything
of a running run, and never selects by the name of a program."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import RunError
from . import cgroups, namespaces
from .facts import devices
from .liveness import living_labels, of_living_process
from .lock import is_left_over, lock_path, owns
from .mounts import own_mounts
from .processes import labelled as processes
from .processes.helper import wait_readable
from .runtime import SHARED_MEMORY, noted_outside, runtime_directory

#: The labels that nearmetal gives: those of runs, and those of checks and image builds (with a pid).
#: A suffix names a part of the run, such as an instance.
OURS = re.compile(r"nearmetal-(?:[0-9a-f]{6}|(?:check|image)-(?P<pid>\d+))(?:-.*)?")


NETWORK_DEVICES = Path("/sys/class/net")


class LeftoverKind(StrEnum):
    """Kinds of leftovers, in the order in which they are removed."""

    CONTAINER = "container"
    PROCESS = "process"
    MOUNT = "mount"
    NETNS = "network namespace"
    LINK = "link"
    FUNCTIONS = "virtual functions"
    CGROUP = "control group"
    STORAGE = "storage directory"
    SCRATCH = "scratch directory"
    LOCK = "lock"


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that a run has left on the machine.

    name: the label by which it was found.
    detail: PID, path or interface, for remove(); for a container, the container program.
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
        return not any(owns(run, name) for run in alive) and not of_living_process(name)

    return wanted


def find(prefix: str | None = None, spare: Sequence[str] = ()) -> tuple[Leftover, ...]:
    """Find everything with a label of nearmetal that belongs to no running run or check, in the order of
    removal.

    Only leftovers that this user may see are found; root sees everything.

    prefix: find labels that begin with this prefix instead.
    spare: labels of further running runs.
    """
    wanted = wanted_names(prefix, spare)
    return (
        *_processes(wanted),
        *_mounts(wanted),
        *_entries(LeftoverKind.NETNS, namespaces.NETNS_DIRECTORY, wanted),
        *_links(wanted),
        *_functions(wanted),
        *_groups(wanted),
        *_storage(wanted),
        *_entries(LeftoverKind.SCRATCH, runtime_directory(), wanted),
        *_entries(LeftoverKind.SCRATCH, SHARED_MEMORY, wanted),
        *(_lock() if prefix is None else ()),
    )


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
                _delete_link(leftover.detail)
            case LeftoverKind.FUNCTIONS:
                devices.drop_functions(Path(leftover.detail))
            case LeftoverKind.CGROUP:
                cgroups.remove((Path(leftover.detail),))
            case LeftoverKind.STORAGE | LeftoverKind.SCRATCH:
                shutil.rmtree(leftover.detail)
                if leftover.kind is LeftoverKind.SCRATCH:
                    with contextlib.suppress(OSError):  # not empty: it contains a directory of another run
                        Path(leftover.detail).parent.rmdir()
            case LeftoverKind.LOCK:
                Path(leftover.detail).unlink(missing_ok=True)
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
    from pyroute2 import IPRoute

    with contextlib.suppress(OSError), Path("/proc/thread-self/ns/net").open("rb") as own:
        moved = []
        with namespaces.entered(netns), IPRoute() as ip:
            for link in ip.get_links():
                if str(link.get_attr("IFLA_IFALIAS")).endswith(devices.TAKEN):
                    ip.link("set", index=link["index"], net_ns_fd=own.fileno())
                    moved.append(link.get_attr("IFLA_IFNAME"))
        for name in moved:
            _unmark(name)


def _unmark(interface: str) -> None:
    (NETWORK_DEVICES / interface / "ifalias").write_text("\n")


def _functions(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    """Find virtual functions that a run has enabled, from the notes in its scratch directory."""
    with contextlib.suppress(OSError):
        for path in sorted(runtime_directory().glob(f"*/{devices.RECORD}*")):
            if wanted(path.parent.name):
                yield Leftover(kind=LeftoverKind.FUNCTIONS, name=path.parent.name, detail=str(path))


def _delete_link(interface: str) -> None:
    """Delete a link that a run has made. A device of the machine is kept and only loses its mark."""
    from pyroute2 import IPRoute

    with contextlib.suppress(FileNotFoundError):
        alias = (NETWORK_DEVICES / interface / "ifalias").read_text(errors="replace")
        if alias.strip().endswith(devices.TAKEN):
            _unmark(interface)
            return
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=interface):
            ip.link("del", index=index)


def _group_directories(wanted: Callable[[str], bool]) -> list[Path]:
    """Return the groups whose names match, in every hierarchy, deepest first."""
    found = []
    for top, names, _ in os.walk("/sys/fs/cgroup", topdown=False):
        found += [Path(top, name) for name in names if wanted(name)]
    return sorted(found, key=lambda p: -len(p.parts))


def _groups(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    for path in _group_directories(wanted):
        yield Leftover(kind=LeftoverKind.CGROUP, name=path.name, detail=str(path))


def _storage(wanted: Callable[[str], bool]) -> Iterator[Leftover]:
    """Find directories that a run has made outside its scratch directory.

    The run has noted them in its scratch directory (runtime.note_outside); their names begin with its label.
    """
    with contextlib.suppress(OSError):
        for scratch in sorted(runtime_directory().iterdir()):
            for path in noted_outside(scratch):
                if wanted(path.name) and path.is_dir() and not path.is_symlink():
                    yield Leftover(kind=LeftoverKind.STORAGE, name=path.name, detail=str(path))


def _lock() -> Iterator[Leftover]:
    path = lock_path()
    # A run may have begun since the other leftovers were looked for, so check again.
    if is_left_over(path):
        yield Leftover(kind=LeftoverKind.LOCK, name=path.name, detail=str(path))
