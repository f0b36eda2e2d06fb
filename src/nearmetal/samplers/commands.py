"""The pipe through which a running nm-sample gets its commands."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..model.scope import Scope


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

    def add(self, scope: Scope, paths: Mapping[str, str], every: Mapping[str, int]) -> None:
        """Read these files in future samples of a scope.

        paths: by name of the file.
        every: n, by name of the file, for files that are read only in every n-th sample.
        """
        self._send(*(f"+ {scope} {name} {every.get(name, 1)} {path}\n" for name, path in paths.items()))

    def remove(self, scope: Scope) -> None:
        """Take no more samples of a scope. Harmless if it is not known."""
        self._send(f"- {scope}\n")

    def mark(self, *scopes: Scope) -> None:
        """Sample these scopes now, and write all samples so far to the file."""
        self._send(*(f"! {scope}\n" for scope in scopes))

    def _send(self, *lines: str) -> None:
        if self._writer < 0:
            return
        try:
            os.write(self._writer, "".join(lines).encode())
        except BrokenPipeError:  # nm-sample has ended; the reason is reported at the end
            self.close()

    def close(self) -> None:
        """Close the pipe; nm-sample then ends. Harmless if the pipe is not open."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1
