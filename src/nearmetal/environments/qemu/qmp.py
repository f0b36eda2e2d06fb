"""Client of QEMU's monitor protocol (QMP). It is used for vCPU threads, the state of guests, and
migration."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import struct
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from ...errors import RunError

QMP_SECONDS = 60.0
"""Time limit for an answer of QEMU, in seconds."""
_CREDENTIALS = struct.Struct("3i")
LISTENS_SECONDS = 1.0
"""Time limit from the creation of QEMU's socket until QEMU accepts connections there, in seconds."""


def loaded() -> None:
    """Import the QMP library. Call this before a time measurement, because the import takes a tenth of a
    second."""
    importlib.import_module("qemu.qmp")


class Monitor:
    """A connection to QEMU's monitor, as a context manager.

    listener: PID of the process that listens at the socket: QEMU, unless the socket was forwarded.

    Its methods raise RunError if QEMU does not answer or refuses a command.
    """

    # The synchronous client of the library is not used. It sends commands without an ID, so a late answer to
    # an abandoned command would be taken for the answer to the next one. It also has no time limit for
    # connections.
    #
    # The event loop of the library has a thread of its own. Python runs signal handlers in the main thread,
    # and an exception that they raise, such as KeyboardInterrupt, would end parts of the library in the loop.

    def __init__(self, path: Path) -> None:
        # Imported here, because the import takes a tenth of a second and only guests need it.
        from qemu.qmp import QMPClient

        self._client = QMPClient()
        self._socket = path
        self.listener = 0

    def __enter__(self) -> Monitor:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="QMP", daemon=True)
        self._thread.start()
        try:
            self._run(self._connect(), "connect")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with contextlib.suppress(RunError):  # it also fails if QEMU has ended
                self._run(self._client.disconnect(), "disconnect")
        finally:
            self._end()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _connect(self) -> None:
        """Connect to QEMU's socket, with retries for up to LISTENS_SECONDS.

        Two errors are temporary. While another client waits for QEMU, connect(2) fails with EAGAIN; asyncio's
        own connect would take the socket for connected. Shortly after QEMU has created the socket,
        connections are refused.
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
            self.listener = _listener(line)
            await self._client.connect(line)
        except BaseException:
            line.close()
            raise

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return its result."""
        return self._run(self._client.execute(command, dict(arguments or {})), command)

    def _run(self, doing: Coroutine[Any, Any, Any], what: str) -> Any:
        from qemu.qmp import ExecuteError

        answer = asyncio.run_coroutine_threadsafe(asyncio.wait_for(doing, QMP_SECONDS), self._loop)
        try:
            return answer.result()
        except ExecuteError as e:
            raise RunError(f"QEMU refuses {what}: {e}", where=str(self._socket)) from e
        except TimeoutError as e:
            said = f"QEMU's monitor did not answer {what} within {QMP_SECONDS:g} s"
            raise RunError(said, where=str(self._socket)) from e
        except Exception as e:
            raise RunError(f"QEMU's monitor, {what}: {e}", where=str(self._socket)) from e
        finally:
            answer.cancel()  # after an exception of a signal handler; an answer that has come is left alone

    def event_times(self) -> dict[str, float]:
        """Return the events since the previous call: name -> time of the last event of this name, in seconds
        of the machine's CLOCK_REALTIME."""
        return {
            str(e["event"]): e["timestamp"]["seconds"] + e["timestamp"]["microseconds"] / 1e6
            for e in map(dict[str, Any], self._run(self._events(), "read its events"))
        }

    async def _events(self) -> list[Any]:
        await asyncio.sleep(0)  # reads the events that have arrived
        return list(self._client.events.clear())

    def threads(self) -> tuple[int, ...]:
        """Return the thread IDs of the vCPUs on the machine, in the order of the vCPUs."""
        found = self.ask("query-cpus-fast")
        return tuple(int(c["thread-id"]) for c in sorted(found, key=lambda c: int(c["cpu-index"])))


def _listener(line: socket.socket) -> int:
    """Return the PID of the process that listens at the other end of a Unix socket."""
    pid, _, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(pid)


def registers(path: Path) -> str:
    """Return the registers of the guest's first CPU, as QEMU prints them; empty if QEMU does not answer.

    path: path of the monitor's socket.
    """
    with contextlib.suppress(RunError), Monitor(path) as line:
        return str(line.ask("human-monitor-command", {"command-line": "info registers"}))
    return ""
