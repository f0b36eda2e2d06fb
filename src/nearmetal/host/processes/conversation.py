"""Exchanges data with a child process over its pipes until the child has ended, without losing output at a
timeout.

Popen.communicate does the same, but it waits for the end by sleeping 0.5 ms or more between two checks. That
delay is visible in a trial of one millisecond; a pidfd reports the end at once."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable

from .bounded import BoundedOutput

_READ = 1 << 16
_WRITE = 1 << 12  # a pipe that poll reports as writable accepts this much at once (pipe(7), PIPE_BUF)
_LONGEST_WAIT = 3600.0  # seconds; poll accepts at most about 24 days


class Conversation:
    """Exchange of input and output with a child process. The caller kills and reaps the child.

    child: the process; its stdin is a pipe, or None.
    pipes: descriptors from which its stdout and stderr are read; the caller closes them.
    stdin: text to send to the child, if it was started with a pipe as its stdin.
    most: number of bytes of each stream to keep; None for all.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        pipes: tuple[int, int],
        stdin: str | None,
        most: int | None = None,
    ) -> None:
        self._child = child
        self._heard = {fd: BoundedOutput(most) for fd in pipes}
        self._unsent = (stdin or "").encode()
        self._poll, self._open = select.poll(), set[int]()
        self._end = os.pidfd_open(child.pid)
        for fd in (*pipes, self._end):
            self._attend_to(fd, select.POLLIN)
        if child.stdin is not None:
            self._attend_to(child.stdin.fileno(), select.POLLOUT)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)

    def until(self, deadline: float, each_second: Callable[[], None] | None) -> bool:
        """Exchange data until the child has ended and its pipes are closed. Returns False if the deadline
        comes first.

        deadline: CLOCK_MONOTONIC, in seconds.
        each_second: called about once a second while waiting.
        """
        tick = time.monotonic() + 1
        while self._open:
            now = time.monotonic()
            if now >= deadline:
                return False
            if each_second is not None and now >= tick:
                each_second()
                tick = time.monotonic() + 1
            until = min(deadline, tick) if each_second is not None else deadline
            for fd, _ in self._poll.poll(1000 * min(max(until - now, 0), _LONGEST_WAIT)):
                self._attend(fd)
        return True

    def texts(self) -> tuple[str, str]:
        """Return the output so far on stdout and on stderr, with all line endings converted to a newline."""
        out, err = (output.content().decode(errors="replace") for output in self._heard.values())
        return _lines(out), _lines(err)

    def _attend_to(self, fd: int, event: int) -> None:
        self._poll.register(fd, event)
        self._open.add(fd)

    def _done(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._open.remove(fd)

    def _attend(self, fd: int) -> None:
        if fd == self._end:
            self._done(fd)
        elif fd in self._heard:
            data = os.read(fd, _READ)
            if data:
                self._heard[fd].take(data)
            else:
                self._done(fd)
        else:
            self._say(fd)

    def _say(self, fd: int) -> None:
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent[:_WRITE]) :]
        except BrokenPipeError:  # the child has closed its stdin, which is not an error
            self._unsent = b""
        if not self._unsent:
            assert self._child.stdin is not None
            self._done(fd)
            self._child.stdin.close()


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
