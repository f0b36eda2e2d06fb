"""Faults at moments of a move between two QEMUs, which are recognised by what the monitors are asked and
answer, not by a time. As a program, it is a tool that is killed then: SOURCE DESTINATION METHOD MOMENT."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from nearmetal.api.moves import moving
from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.errors import NearmetalError
from nearmetal.lifecycle import Method

SLOW = float(4 << 20)
"""Bandwidth in B/s by which a guest of these tests is moved for seconds, so that the moment is met."""
_SYS_PIDFD_GETFD = 438


class Moment(StrEnum):
    """A moment of a move.

    BEGIN: the destination listens; the source has not been told to migrate yet.
    COPY: a part of the memory has been sent, while the guest runs at its source, or stands still there.
    SWITCH: the guest is about to continue at its destination by post-copy.
    FETCH: post-copy has let it go on there, and a part of its memory is still at the source.
    END: the source has sent everything, and nobody has looked where the guest runs.
    """

    BEGIN = "begin"
    COPY = "copy"
    SWITCH = "switch"
    FETCH = "fetch"
    END = "end"


def bandwidth_until(moment: Moment) -> float | None:
    """Return the bandwidth with which a moment is met: no limit if the move must come to its end."""
    return None if moment is Moment.END else SLOW


_ASKED = {Moment.BEGIN: "migrate", Moment.SWITCH: "migrate-start-postcopy"}
_STATUS = {Moment.COPY: "active", Moment.FETCH: "postcopy-active", Moment.END: "completed"}


def _reported(moment: Moment, report: Mapping[str, Any]) -> bool:
    ram = report.get("ram", {})
    some = min(int(ram.get("transferred", 0)), int(ram.get("remaining", 0))) > 1 << 20
    return report.get("status") == _STATUS.get(moment) and (some or moment is Moment.END)


@contextmanager
def at(moment: Moment, act: Callable[[], object]) -> Iterator[list[Moment]]:
    """Call act() once, when a move in this process reaches a moment. Yields what was reached."""
    ask, reached = Monitor.ask, list[Moment]()

    def strike() -> None:
        reached.append(moment)
        act()

    def watched(side: Monitor, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        if not reached and command == _ASKED.get(moment):
            strike()
        answer = ask(side, command, arguments)
        if not reached and command == "query-migrate" and "ram" in answer and _reported(moment, answer):
            strike()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Monitor, "ask", watched)
        yield reached


def cut(pid: int) -> None:
    """End the connections by which a QEMU receives a guest, as a link does that is cut: both sides live on.

    pid: of the QEMU at the destination, whose end of a Unix socket has the path of the move.
    """
    found = 0
    process = os.pidfd_open(pid)
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile, or is not connected
                if not str(file.readlink()).startswith("socket:"):
                    continue
                with _own(process, int(file.name)) as line:
                    if line.family is not socket.AF_UNIX:
                        continue
                    name = Path(os.fsdecode(line.getsockname())).name
                    if name == "move" or name.startswith(".nearmetal-"):
                        line.getpeername()
                        line.shutdown(socket.SHUT_RDWR)
                        found += 1
    finally:
        os.close(process)
    assert found, "no connection is there to cut"


def _own(process: int, number: int) -> socket.socket:
    """Return a duplicate of a socket of another process. process: its pidfd. number: of the descriptor."""
    own = ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, process, number, 0)
    if own < 0:
        raise OSError(ctypes.get_errno(), "no such descriptor")
    return socket.socket(fileno=own)


def main(source: str, target: str, method: str, moment: str) -> int:
    """Move a guest of a user's, as `nearmetal migrate` does, and kill this process at a moment."""
    try:
        with at(Moment(moment), lambda: os.kill(os.getpid(), signal.SIGKILL)):
            options = moving.MoveOptions(method=Method(method), bandwidth=bandwidth_until(Moment(moment)))
            moving.migrate(source, target, options)
    except NearmetalError as e:
        print(e, file=sys.stderr)
        return int(e.exit_code)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
