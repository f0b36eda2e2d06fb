"""Limits the output of a program: keeps its beginning and its end, and the number of bytes left out
between."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

_READ = 1 << 16


class BoundedOutput:
    """Keeps about `most` bytes of its input, half of them from the beginning; None keeps everything."""

    def __init__(self, most: int | None) -> None:
        self._half = None if most is None else most // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._taken = self._kept = self._late = 0

    def take(self, data: bytes) -> None:
        """Add the next bytes."""
        self._taken += len(data)
        if self._half is None:
            self._head.append(data)
            return
        early = data[: self._half - self._kept]
        if early:
            self._head.append(early)
            self._kept += len(early)
        late = data[len(early) :]
        if late:
            self._tail.append(late)
            self._late += len(late)
            while self._late - len(self._tail[0]) >= self._half:
                self._late -= len(self._tail.popleft())

    def content(self) -> bytes:
        """Return the kept bytes, with a line in place of those that were left out."""
        tail = b"".join(self._tail)
        tail = tail if self._half is None else tail[max(len(tail) - self._half, 0) :]
        lost = self._taken - sum(map(len, self._head)) - len(tail)
        return b"".join([*self._head, gap(lost).encode() if lost else b"", tail])


def shortened(text: str, most: int) -> str:
    """Shorten a text to at most about `most` characters by cutting it in the middle."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}{gap(len(text) - 2 * half)}{text[-half:]}"


def gap(lost: int) -> str:
    """Return the text that replaces the omitted bytes."""
    return f"\n[nearmetal: {lost} bytes left out]\n"


def open_log(path: Path) -> int:
    """Open a file for appending, and make it if it is missing.

    Raises OSError if the path is a link, which the root user of an instance may have made.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


class Drain:
    """A thread that appends the limited output of a pipe to a file. It owns the pipe and closes it."""

    def __init__(self, pipe: int, file: Path, most: int) -> None:
        self._pipe, self._output = pipe, BoundedOutput(most)
        try:
            self._log = open_log(file)
        except OSError:
            os.close(pipe)
            raise
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the end of the pipe, at most `timeout` seconds, because a daemon may keep the pipe
        open."""
        self._thread.join(timeout)

    def _carry(self) -> None:
        try:
            while data := os.read(self._pipe, _READ):
                self._output.take(data)
        finally:
            os.close(self._pipe)
            with os.fdopen(self._log, "ab") as file:
                file.write(self._output.content())
