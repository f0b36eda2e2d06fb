"""Talks with a child process over its pipes until it has ended, and loses nothing when time runs out.

Popen.communicate does the same, but waits for the end by sleeping 0.5 ms and more between two looks, which a
trial of a millisecond feels; a pidfd is there at once."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable
from types import TracebackType

from .bounded import Bounded

_READ = 1 << 16
_WRITE = 1 << 12  # a pipe that poll calls writable takes so much without blocking (pipe(7), PIPE_BUF)


class Conversation:
    """With a child whose stdout and stderr are pipes, and stdin where there is something to say. The child is
    the caller's to kill and to reap. most: bytes of each that are kept, None for all."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: str | None, most: int | None = None) -> None:
        assert child.stdout is not None and child.stderr is not None
        self._child = child
        self._heard = {pipe.fileno(): Bounded(most) for pipe in (child.stdout, child.stderr)}
        self._unsaid = (stdin or "").encode()
        self._open = selectors.DefaultSelector()
        self._end = os.pidfd_open(child.pid)
        for fd in (*self._heard, self._end):
            self._open.register(fd, selectors.EVENT_READ)
        if child.stdin is not None:
            self._open.register(child.stdin.fileno(), selectors.EVENT_WRITE)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        self._open.close()
        os.close(self._end)

    def until(self, deadline: float, each_second: Callable[[], None] | None) -> bool:
        """Whether the child has ended and its pipes are closed by the deadline (CLOCK_MONOTONIC, seconds)."""
        tick = time.monotonic() + 1
        while self._open.get_map():
            now = time.monotonic()
            if now >= deadline:
                return False
            if each_second is not None and now >= tick:
                each_second()
                tick = time.monotonic() + 1
            wait = min(deadline, tick) if each_second is not None else deadline
            for key, _ in self._open.select(max(wait - now, 0)):
                self._attend(key.fd)
        return True

    def texts(self) -> tuple[str, str]:
        """What the child has said so far on stdout and on stderr, every kind of line end as \\n."""
        out, err = (said.content().decode(errors="replace") for said in self._heard.values())
        return _lines(out), _lines(err)

    def _attend(self, fd: int) -> None:
        if fd == self._end:
            self._open.unregister(fd)
        elif fd in self._heard:
            data = os.read(fd, _READ)
            if data:
                self._heard[fd].take(data)
            else:
                self._open.unregister(fd)
        else:
            self._say(fd)

    def _say(self, fd: int) -> None:
        try:
            self._unsaid = self._unsaid[os.write(fd, self._unsaid[:_WRITE]) :]
        except BrokenPipeError:  # it does not listen: its own affair
            self._unsaid = b""
        if not self._unsaid:
            assert self._child.stdin is not None
            self._open.unregister(fd)
            self._child.stdin.close()


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
