"""QEMU processes that the user has started, as seen through their QMP sockets: whether they answer, wait for
a guest or have ended. Restores their settings after a failed move."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import RunError, UsageError
from ...host.processes.foreign import ForeignProcess
from ...host.processes.labelled import name_of
from ..qemu.moving import UNDER_WAY, migration_status
from ..qemu.qmp import Monitor

WAITS = "start a QEMU with the same options and -incoming defer, and give its QMP socket"
"""What the user does to get a QEMU that waits for a guest."""
_GREETING_SECONDS = 3.0
_END_SECONDS = 10.0
_LOOK_AGAIN = 0.01
_PARAMETERS = ("max-bandwidth", "max-postcopy-bandwidth", "downtime-limit", "multifd-channels")


def require_qmp(path: Path) -> None:
    """Check that a QEMU answers at a QMP socket.

    Raises UsageError if it does not.
    """
    remedy = "the socket of QEMU's option -qmp unix:PATH,server=on,wait=off, without another client"
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_GREETING_SECONDS)
        try:
            probe.connect(str(path))
            greeting = probe.makefile("rb").readline(1 << 16)
            if "QMP" in json.loads(greeting):
                return
            raise ValueError
        except TimeoutError as e:
            what = f"it does not greet within {_GREETING_SECONDS:g} s"
            raise UsageError(f"{path} is not a free QMP socket: {what}", remedy=remedy) from e
        except (ValueError, TypeError) as e:
            raise UsageError(f"{path} is not a QMP socket: it does not greet as QMP", remedy=remedy) from e
        except OSError as e:
            raise UsageError(f"{path} is not a QMP socket: {e.strerror or e}", remedy=remedy) from e


def require_waiting(path: Path) -> None:
    """Check that the QEMU at a socket waits for a guest. Raises UsageError if it does not."""
    require_qmp(path)
    with Monitor(path) as monitor:
        status = monitor.ask("query-status")["status"]
    if status != "inmigrate":
        raise UsageError(f"the QEMU at {path} does not wait for a guest: {status}", remedy=WAITS)


def end_qemu(monitor: Monitor, path: Path) -> None:
    """End a QEMU, and wait until its socket accepts no connections any more.

    path: path of the socket.
    Raises RunError if it does not end within 10 s.
    """
    with contextlib.suppress(RunError):
        monitor.ask("quit")
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end:
        if has_ended(path):
            return
        time.sleep(_LOOK_AGAIN)
    raise RunError(f"the QEMU at {path} does not end", remedy="end it before its guest runs elsewhere")


def has_ended(path: Path, within: float = 0.0) -> bool:
    """Return whether the QEMU of a QMP socket accepts no connections any more, now or within some seconds."""
    end = time.monotonic() + within
    while not (ended := _refuses(path)) and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)
    return ended


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # or the connection waits for a QEMU that hangs
        try:
            probe.connect(str(path))
        except (BlockingIOError, PermissionError):
            return False  # others wait for it, or it belongs to another user
        except OSError:
            return True
    return False


def kill_qemu(pid: int) -> None:
    """Kill a QEMU process. It would not quit while its guest waits for memory that no longer arrives.

    pid: of the listener at its QMP socket. Another program, which forwards the socket, is not killed.
    """
    with contextlib.suppress(OSError, RunError):
        if name_of(pid).startswith("qemu"):
            with ForeignProcess(pid):
                pass


def status_at_destination(path: Path, source: Path) -> str:
    """Return the status of a post-copy migration at its destination; empty if the QEMU there does not answer.

    If the source no longer sends, wait up to 10 s until the destination has noticed that.
    path, source: QMP sockets of destination and source.
    """
    end = time.monotonic() + _END_SECONDS
    with contextlib.suppress(RunError), Monitor(path) as there:
        while True:
            status = migration_status(there)
            if status != "postcopy-active" or time.monotonic() > end or _sends(source):
                return status
            time.sleep(_LOOK_AGAIN)
    return ""


def _sends(path: Path) -> bool:
    """Return whether the QEMU of a QMP socket still sends memory of a guest that post-copy has moved away."""
    with contextlib.suppress(RunError), Monitor(path) as monitor:
        return migration_status(monitor) == "postcopy-active"
    return False


@contextmanager
def settings_kept(path: Path, *, always: bool = False) -> Iterator[None]:
    """On exit after an exception, restore the migration parameters and capabilities that a QEMU had before.

    path: path of its QMP socket.
    always: whether they are restored after a success too.
    """
    with Monitor(path) as monitor:
        capabilities: list[Any] = monitor.ask("query-migrate-capabilities")
        parameters = monitor.ask("query-migrate-parameters")
    done = False
    try:
        yield
        done = True
    finally:
        if always or not done:
            with contextlib.suppress(RunError), Monitor(path) as monitor:
                _await_idle(monitor)
                monitor.ask("migrate-set-capabilities", {"capabilities": capabilities})
                kept = {name: parameters[name] for name in _PARAMETERS if name in parameters}
                monitor.ask("migrate-set-parameters", kept)


def _await_idle(monitor: Monitor) -> None:
    """Wait until a cancelled migration has ended.

    Raises RunError if it does not end within 10 s.
    """
    end = time.monotonic() + _END_SECONDS
    while migration_status(monitor) in UNDER_WAY:
        if time.monotonic() > end:
            raise RunError("a cancelled migration does not end")
        time.sleep(_LOOK_AGAIN)
