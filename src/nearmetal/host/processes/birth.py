"""The start time of a process, which distinguishes it from a later one with the same PID, and signals that
reach no later one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

_START_TIME = 19
"""Position of the start time among the fields of /proc/PID/stat after the name."""


def fields_in(text: str) -> list[str]:
    """Return the fields in the text of /proc/PID/stat after the name, which may contain anything. No I/O."""
    return text.rpartition(")")[2].split()


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name. Raises OSError."""
    return fields_in(Path(f"/proc/{pid}/stat").read_text(errors="replace"))


def birth_in(fields: list[str]) -> int | None:
    """Return the start time in the fields of /proc/PID/stat, in clock ticks since boot; None for a zombie and
    for other fields. No I/O."""
    return None if len(fields) <= _START_TIME or fields[0] in "ZX" else int(fields[_START_TIME])


def birth(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist, is a zombie,
    or is hidden from this user (see lives())."""
    try:
        return birth_in(stat_fields(pid))
    except OSError:
        return None


def lives(pid: int, born: int | None = None) -> bool:
    """Return whether a process is alive. A process that /proc hides from this user (hidepid) is.

    born: start time of the process, if it is known.
    """
    try:
        begin = birth_in(stat_fields(pid))
    except OSError:
        return _exists(pid)
    return begin is not None and born in (None, begin)


def send_signal(pid: int, number: int, is_right: Callable[[], bool]) -> None:
    """Send a signal to a process, unless its PID belongs to another process by now. Raises OSError.

    is_right: returns whether the process with this PID is the right one; it may raise OSError.
    """
    fd = os.pidfd_open(pid)
    try:
        if is_right():  # then the descriptor is that of the right one
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
