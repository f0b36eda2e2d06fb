"""Client of QEMU's monitor protocol (QMP), for the threads of vCPUs, the guest's state, and migration."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import RunError

QMP_SECONDS = 60.0


def loaded() -> None:
    """Import the QMP library before anything is timed, since the import takes a tenth of a second."""
    importlib.import_module("qemu.qmp.legacy")


class Monitor:
    """A connection to QEMU's monitor.

    Its methods raise RunError if QEMU does not answer or refuses a command.
    """

    def __init__(self, socket: Path) -> None:
        # Imported here, because the import takes a tenth of a second and only guests need it.
        from qemu.qmp.legacy import QEMUMonitorProtocol

        self._monitor = QEMUMonitorProtocol(str(socket))
        self._socket = socket

    def __enter__(self) -> Monitor:
        try:
            self._monitor.settimeout(QMP_SECONDS)
            self._monitor.connect()
        except Exception as e:
            raise RunError(f"QEMU's monitor does not answer: {e}", where=str(self._socket)) from e
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError, EOFError):  # it also fails if QEMU has ended
            self._monitor.close()

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return its result."""
        try:
            answer = self._monitor.cmd_raw(command, dict(arguments or {}))
        except Exception as e:
            raise RunError(f"QEMU's monitor, {command}: {e}") from e
        if "error" in answer:
            raise RunError(f"QEMU refuses {command}: {answer['error'].get('desc', '')}")
        return answer["return"]

    def event_times(self) -> dict[str, float]:
        """Return when each kind of event has last happened since the previous call, in seconds of the
        machine's CLOCK_REALTIME."""
        try:
            events = self._monitor.get_events()
        except Exception as e:
            raise RunError(f"QEMU's monitor: {e}") from e
        self._monitor.clear_events()
        return {
            str(e["event"]): e["timestamp"]["seconds"] + e["timestamp"]["microseconds"] / 1e6 for e in events
        }

    def threads(self) -> tuple[int, ...]:
        """Return the thread ID on the host of each vCPU, by number of the vCPU."""
        found = self.ask("query-cpus-fast")
        return tuple(int(c["thread-id"]) for c in sorted(found, key=lambda c: int(c["cpu-index"])))


def registers(socket: Path) -> str:
    """Return the registers of the guest's first CPU, as QEMU prints them; empty if QEMU does not answer."""
    with contextlib.suppress(RunError), Monitor(socket) as line:
        return str(line.ask("human-monitor-command", {"command-line": "info registers"}))
    return ""
