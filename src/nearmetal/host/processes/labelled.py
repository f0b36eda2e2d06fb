"""Finds processes of a run by the label in their environment (NEARMETAL_RUN), never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ...errors import RunError

LABEL_VARIABLE = "NEARMETAL_RUN"
"""Environment variable with the label of the run, set for every process that is started in or for an
instance.
"""

_MARK = LABEL_VARIABLE.encode() + b"="


def label_of(environ: bytes) -> str | None:
    """Return the label in the text of /proc/<pid>/environ."""
    for entry in environ.split(b"\0"):
        if entry.startswith(_MARK):
            return entry[len(_MARK) :].decode(errors="replace")
    return None


def ancestors(pid: int) -> set[int]:
    """Return pid and its ancestors."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return seen


def descendant(pid: int, comm: str) -> int | None:
    """Return the nearest descendant of pid (or pid itself) with this name; None if there is none."""
    level = [pid]
    while level:
        below: list[int] = []
        for p in level:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{p}/comm").read_text().rstrip("\n") == comm:
                    return p
                for thread in Path(f"/proc/{p}/task").iterdir():
                    children = (thread / "children").read_text()
                    below += [int(child) for child in children.split()]
        level = below
    return None


def tree(pid: int) -> list[int]:
    """Return a process and its descendants, parents before their children."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def opened(pid: int, path: str) -> bool:
    """Whether a process has a file open."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()) == path:
                    return True
    return False


def labelled(wanted: Callable[[str], bool]) -> dict[int, str]:
    """Return the label of every living process whose label matches, by pid.

    Omitted are the caller, its ancestors, and processes whose environment the caller may not read.
    """
    mine = ancestors(os.getpid())
    found: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) not in mine:
            with contextlib.suppress(OSError):
                label = label_of(Path(entry.path, "environ").read_bytes())
                if label is not None and wanted(label):
                    found[int(entry.name)] = label
    return found


def kill_labelled(label: str, *, timeout: float = 30.0) -> None:
    """Kill every process with exactly this label, until two scans in a row find none.

    One scan is not enough: while /proc is read, a process may start a child and end before the child is
        listed.

    Raises RunError if processes are left after timeout seconds.
    """
    deadline = time.monotonic() + timeout
    unseen = 0
    while unseen < 2:
        left = labelled(lambda other: other == label)
        unseen = 0 if left else unseen + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if left and time.monotonic() > deadline:
            raise RunError(f"processes {sorted(left)} of {label} do not end", remedy="nearmetal clean")
        time.sleep(0.001)


def kill_younger(pids: Iterable[int], begin: float) -> None:
    """Kill those of the given processes that were started after `begin`.

    begin: seconds of CLOCK_BOOTTIME. The kernel stores start times in ticks of 10 ms; a process that started
        in the same tick is not killed.
    """
    tick = os.sysconf("SC_CLK_TCK")
    for pid in pids:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text()
            if int(stat.rpartition(")")[2].split()[19]) > int(begin * tick):
                os.kill(pid, signal.SIGKILL)
