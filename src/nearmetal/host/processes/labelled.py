"""Finds processes of a run by the label in their environment (NEARMETAL_RUN), never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from ...errors import RunError
from .birth import send_signal, stat_fields

LABEL_VARIABLE = "NEARMETAL_RUN"
"""Environment variable with the label of the run, set for every process that is started in or for an
instance.
"""

DYING_SECONDS = 30.0
GROUP_SECONDS = 2.0
"""Seconds for which kill_group() waits. A process in a frozen control group does not end before it is
thawed."""

_FLAGS = 6
"""Position of the flags of a process among the fields of /proc/<pid>/stat after the name."""
_EXITING = 0x4
"""PF_EXITING (linux/sched.h): the process has begun to end."""
_THREADS = 14
"""Position of the number of threads among the fields of /proc/<pid>/stat after the process group."""
_MARK = LABEL_VARIABLE.encode() + b"="


def label_of(environ: bytes) -> str | None:
    """Return the label in the text of /proc/<pid>/environ; None if there is none."""
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
            pid = int(stat_fields(pid)[1])
        except OSError:
            break
    return seen


def ends(pid: int) -> bool:
    """Return whether a process has begun to end. The first process of a PID namespace then waits for all
    others in it."""
    try:
        return bool(int(stat_fields(pid)[_FLAGS]) & _EXITING)
    except OSError:
        return True


def name_of(pid: int) -> str:
    """Return the name of a process (/proc/<pid>/comm); '' if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def named(comm: str) -> list[int]:
    """Return the PIDs of all processes with this name."""
    return [int(e.name) for e in os.scandir("/proc") if e.name.isdigit() and name_of(int(e.name)) == comm]


def descendant(pid: int, comm: str) -> int | None:
    """Return the nearest descendant of pid (or pid itself) with this name; None if there is none."""
    return next((p for p in family(pid) if name_of(p) == comm), None)


def family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants, generation by generation. Those that end meanwhile may be
    missing."""
    found = [pid]
    for parent in found:
        yield parent
        found += children(parent)


def children(pid: int) -> list[int]:
    """Return the children of a process. Those that end meanwhile may be missing."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """Return a process and its descendants, parents before their children."""
    return list(family(pid))


def opened(pid: int, path: str) -> bool:
    """Return whether a process has the file with this path open, by whatever path in whatever namespace."""
    with contextlib.suppress(OSError):
        file = Path(path).stat()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(entry.stat(), file):
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


def kill_labelled(label: str) -> None:
    """Kill every process with exactly this label, until two scans in a row find none.

    One scan is not enough: while /proc is read, a process may start a child and end before the child is
    listed.

    Raises RunError if processes are left after DYING_SECONDS.
    """
    deadline = time.monotonic() + DYING_SECONDS
    unseen = 0
    while unseen < 2:
        left = labelled(lambda other: other == label)
        unseen = 0 if left else unseen + 1
        for pid in left:
            with contextlib.suppress(OSError):
                send_signal(pid, signal.SIGKILL, partial(_has_label, pid, label))
        if left and time.monotonic() > deadline:
            raise RunError(f"processes {sorted(left)} of {label} do not end", remedy="nearmetal clean")
        time.sleep(0.001)


def _has_label(pid: int, label: str) -> bool:
    return label_of(Path(f"/proc/{pid}/environ").read_bytes()) == label


def kill_group(leader: int, reap: Callable[[], object]) -> None:
    """Kill all processes of a group, and wait for at most GROUP_SECONDS until none of them lives.

    The children of the leader end a moment after it on a busy machine.
    reap: waits for the leader, which is a child of the caller.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    reap()
    end, pause = time.monotonic() + GROUP_SECONDS, 0.001
    while _lives(leader) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)  # each look reads the state of every process


def kill_program(leader: int, label: str | None, *, runs: bool, reap: Callable[[], object]) -> None:
    """Kill a child and its process group; if it has ended, what is left of its session.

    label: the label in its environment; None if there is none.
    runs: whether it still runs. reap: waits for it.
    """
    if runs:
        kill_group(leader, reap)
    elif label is not None:
        kill_session(leader, label)


def kill_session(leader: int, label: str) -> None:
    """Kill what is left of the session of a program that has ended: its processes with this label.

    A program that was killed may leave children, such as those that CRIU stops to try features of the
    kernel. The label distinguishes them from the processes of a later session with the same number.
    """
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                if os.getsid(pid) == leader and _has_label(pid, label):
                    os.kill(pid, signal.SIGKILL)


def _lives(group: int) -> bool:
    """Return whether any process of a group is alive. Zombies are not: the first process of some containers
    never reaps them."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for pid in pids:
        with contextlib.suppress(OSError):
            state, _, other, *rest = stat_fields(pid)
            # A process whose first thread has ended is called a zombie while the others live.
            if int(other) == group and (state not in "ZX" or int(rest[_THREADS]) > 1):
                return True
    return False


def kill_younger(pids: Iterable[int], begin: float) -> None:
    """Kill those of the given processes that were started after `begin`.

    begin: seconds of CLOCK_BOOTTIME. The kernel stores start times in ticks of 10 ms; a process that started
        in the same tick is not killed.
    """
    tick = os.sysconf("SC_CLK_TCK")
    for pid in pids:
        with contextlib.suppress(OSError):
            if int(stat_fields(pid)[19]) > int(begin * tick):
                os.kill(pid, signal.SIGKILL)
