"""Processes of control groups, and the removal of groups."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...errors import RunError
from ..processes.labelled import ancestors


def write_control(path: Path, text: str) -> None:
    """Write a control file of a group in one system call."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def take(made: Mapping[str, Path], pid: int) -> None:
    """Move a process with all its threads into the groups of create(). Raises RunError if the kernel
    refuses."""
    try:
        for directory in unique(made):
            write_control(directory / "cgroup.procs", str(pid))
    except OSError as e:
        raise RunError(f"process {pid} cannot be moved into its control groups: {e.strerror}") from e


def take_all(made: Mapping[str, Path], groups: Sequence[Path]) -> None:
    """Move all processes in these groups and below them into the groups of create(), also those that start
    meanwhile. A process that ends meanwhile is passed over."""
    moved: set[int] = set()
    while new := members(with_children(groups)) - moved:
        for pid in new:
            with contextlib.suppress(RunError):
                take(made, pid)
        moved |= new


def unique(made: Mapping[str, Path]) -> tuple[Path, ...]:
    """Return each directory once, because controllers may share one."""
    return tuple(dict.fromkeys(made.values()))


def with_children(groups: Iterable[Path]) -> list[Path]:
    """Return the groups that exist and all groups below them, deepest first. A container program may have
    made groups below ours."""
    found: list[Path] = []
    for directory in groups:
        with contextlib.suppress(OSError):
            if directory.stat().st_nlink > 2:
                found += with_children(p for p in directory.iterdir() if p.is_dir())
            found.append(directory)
    return found


def members(groups: Iterable[Path]) -> set[int]:
    """Return the processes in any of these groups. A group that no longer exists is skipped.

    Processes that only an outer PID namespace shows are left out: the kernel lists each as 0.
    """
    pids: set[int] = set()
    for directory in groups:
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (directory / "cgroup.procs").read_text().split())
    return pids - {0}


def kill_members(groups: Sequence[Path], *, timeout: float = 30.0) -> None:
    """Kill every process in these groups and below them, until none is left. The caller and its ancestors are
    never killed.

    Raises RunError if processes are left after timeout seconds.
    """
    deadline = time.monotonic() + timeout
    # Most groups are empty by now. The ancestors are looked up only if there are processes in the groups.
    while (present := members(with_children(groups))) and (left := present - ancestors(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RunError(
                f"processes {sorted(left)} of {groups[0].name} do not end", remedy="nearmetal clean"
            )
        time.sleep(0.001)


def remove_empty(groups: Iterable[Path]) -> list[Path]:
    """Remove the groups without members and children. Return the groups that could not be removed."""
    kept = []
    for group in groups:
        try:
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            kept.append(group)
    return kept


def remove(groups: Sequence[Path], *, timeout: float = 30.0) -> None:
    """Kill the members of the groups, and remove the groups and those below them. Groups that do not exist
    are ignored.

    Raises RunError if a group cannot be removed within timeout seconds.
    """
    # Most groups are empty by now and can be removed without reading their members.
    kept = remove_empty(groups)
    kill_members(kept, timeout=timeout)
    deadline = time.monotonic() + timeout
    for directory in with_children(kept):
        while True:
            try:
                directory.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError as e:
                if time.monotonic() > deadline:
                    raise RunError(f"{directory}: {e.strerror}", remedy="nearmetal clean") from e
                time.sleep(0.001)
