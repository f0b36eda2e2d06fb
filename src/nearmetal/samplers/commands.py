"""The pipe through which a running nm-sample gets its commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class CommandPipe:
    """Sends commands to one nm-sample process. Commands before opened() and after close() are dropped."""

    def __init__(self) -> None:
        self._writer = -1

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the pipe and yield its read end, to start nm-sample with it. On exit, the read end is closed
        in this process, and after an exception also the write end."""
        reader, self._writer = os.pipe()
        try:
            yield reader
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reader)

    def send(self, lines: str) -> None:
        """Send commands, one per line. They are dropped if nm-sample has ended."""
        if self._writer < 0:
            return
        try:
            os.write(self._writer, lines.encode())
        except BrokenPipeError:  # nm-sample has ended; the reason is reported at the end
            self.close()

    def close(self) -> None:
        """Close the pipe; nm-sample then ends. Harmless if the pipe is not open."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
