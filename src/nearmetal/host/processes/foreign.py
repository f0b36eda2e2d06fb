"""A process that another program has started, but that this tool must end."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from ...errors import RunError
from .helper import wait_readable

_DYING_SECONDS = 30.0


class ForeignProcess:
    """A process that is not our child. A pidfd prevents confusion with a later process of the same pid.

    It is a context manager that kills the process on exit. Only the parent of a process gets its exit status,
    so the status is always reported as 0.
    """

    def __init__(self, pid: int) -> None:
        """Open the pidfd of a process. Raises RunError if the process does not exist."""
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except OSError as e:
            raise RunError(f"process {pid}: {e.strerror}") from e

    def __enter__(self) -> ForeignProcess:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            os.close(self._fd)
            self._fd = -1

    def poll(self) -> int | None:
        return 0 if self._fd < 0 or wait_readable(self._fd, 0) else None

    def wait(self, timeout: float) -> int:
        if self._fd >= 0 and not wait_readable(self._fd, timeout):
            raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
        return 0

    def kill(self) -> None:
        """Kill the process. Raises RunError if it does not end."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            try:
                self.wait(_DYING_SECONDS)
            except TimeoutError as e:
                raise RunError(f"process {self.pid} does not end: {e}", remedy="nearmetal clean") from e


def process_of_thread(thread: int) -> int:
    """Return the pid of the process of a thread. Raises RunError if the thread has ended."""
    try:
        lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    except OSError as e:
        raise RunError(f"thread {thread}: {e.strerror}") from e
    return int(next(line.split()[1] for line in lines if line.startswith("Tgid:")))
