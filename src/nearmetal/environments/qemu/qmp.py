"""Client of QEMU's monitor protocol (QMP), for the threads of vCPUs, the guest's state, and migration."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from ...errors import RunError

QMP_SECONDS = 60.0
"""Seconds to wait for an answer of QEMU."""
LISTENS_SECONDS = 1.0
"""Seconds within which QEMU listens on a socket that it has made."""


def loaded() -> None:
    """Import the QMP library before anything is timed, since the import takes a tenth of a second."""
    importlib.import_module("qemu.qmp")


class Monitor:
    """A connection to QEMU's monitor.

    Its methods raise RunError if QEMU does not answer or refuses a command.
    """

    # The library's synchronous client sends commands without a number, so that the late answer to a command
    # that was given up is taken for that of the next command. It has no time limit for a connection either.

    def __init__(self, path: Path) -> None:
        # Imported here, because the import takes a tenth of a second and only guests need it.
        from qemu.qmp import QMPClient

        self._client = QMPClient()
        self._socket = path

    def __enter__(self) -> Monitor:
        self._loop = asyncio.new_event_loop()
        try:
            self._run(self._connect(), "connect")
        except RunError:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RunError):  # it also fails if QEMU has ended
            self._run(self._client.disconnect(), "disconnect")
        self._loop.close()

    async def _connect(self) -> None:
        """Connect when QEMU takes connections.

        While another one waits, connect() fails at once, and asyncio takes the socket for a connected one. It
        is refused for a moment after QEMU has made the socket, and for good when QEMU has ended.
        """
        until = self._loop.time() + LISTENS_SECONDS
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            while True:
                try:
                    line.connect(str(self._socket))
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.005)
                except ConnectionRefusedError:
                    if self._loop.time() > until:
                        raise
                    await asyncio.sleep(0.005)
            await self._client.connect(line)
        except BaseException:
            line.close()
            raise

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return its result."""
        return self._run(self._client.execute(command, dict(arguments or {})), command)

    def _run(self, doing: Coroutine[Any, Any, Any], what: str) -> Any:
        from qemu.qmp import ExecuteError

        try:
            return self._loop.run_until_complete(asyncio.wait_for(doing, QMP_SECONDS))
        except ExecuteError as e:
            raise RunError(f"QEMU refuses {what}: {e}", where=str(self._socket)) from e
        except TimeoutError as e:
            said = f"QEMU's monitor did not answer {what} within {QMP_SECONDS:g} s"
            raise RunError(said, where=str(self._socket)) from e
        except Exception as e:
            raise RunError(f"QEMU's monitor, {what}: {e}", where=str(self._socket)) from e

    def event_times(self) -> dict[str, float]:
        """Return when each kind of event has last happened since the previous call, in seconds of the
        machine's CLOCK_REALTIME."""
        self._loop.run_until_complete(asyncio.sleep(0))  # takes in what has arrived
        return {
            str(e["event"]): e["timestamp"]["seconds"] + e["timestamp"]["microseconds"] / 1e6
            for e in map(dict[str, Any], self._client.events.clear())
        }

    def threads(self) -> tuple[int, ...]:
        """Return the thread ID on the host of each vCPU, by number of the vCPU."""
        found = self.ask("query-cpus-fast")
        return tuple(int(c["thread-id"]) for c in sorted(found, key=lambda c: int(c["cpu-index"])))


def registers(path: Path) -> str:
    """Return the registers of the guest's first CPU, as QEMU prints them; empty if QEMU does not answer."""
    with contextlib.suppress(RunError), Monitor(path) as line:
        return str(line.ask("human-monitor-command", {"command-line": "info registers"}))
    return ""
