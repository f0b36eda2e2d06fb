"""Reads what a running sampler has written so far; and runs a sampler inside a guest, whose lines are sent to
the machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from ..host import Host, Process
from ..host.counters.files import NODE_FILES
from ..host.counters.procfiles import CounterUnits
from ..model.scope import GUEST, Scope
from .commands import CommandPipe
from .frames import FrameWriter
from .reading import Header, Sample, parse_lines

GUESTS = "guests.jsonl.zst"
"""File of the samples taken in guests, beside those of the machine."""
_LOOK_AGAIN = 0.005
_END_LIMIT = 30.0


class Stream:
    """The lines written to a file after this object was made."""

    def __init__(self, path: Path, scale: CounterUnits) -> None:
        self.path, self._scale = path, scale
        self._begin = path.stat().st_size if path.exists() else 0

    def lines(self) -> bytes:
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._begin)
            return file.read()
        return b""

    def until(self, scope: str, monotonic: float, limit: float) -> list[Sample]:
        """Wait for a sample of this scope taken at or after this moment, and return all samples so far.

        monotonic: moment by the clock of the samples.
        limit: seconds to wait; after that, the samples so far are returned.
        """
        end = time.monotonic() + limit
        while True:
            found = parse_lines(self.lines(), self._scale, self.path)
            there = any(s.monotonic >= monotonic and scope in s.scopes for s in reversed(found))
            if there or time.monotonic() > end:
                return found
            time.sleep(_LOOK_AGAIN)


class GuestSampler:
    """Runs nm-sample in a guest until exit. The counters of the guest's kernel have scope 'guest.<name>'.

    argv: command line that runs nm-sample in the guest; its commands are sent to its standard input.
    raw: file for its lines on this side.
    If a guest ends, its sampler ends too; the lines received until then are kept.
    """

    def __init__(self, host: Host, argv: Sequence[str], name: str, raw: Path, scale: CounterUnits) -> None:
        self.scope, self._raw = str(Scope(kind=GUEST, name=name)), raw
        self._host, self._argv = host, tuple(argv)
        self._commands = CommandPipe()
        self._process: Process | None = None
        self.stream = Stream(raw, scale)

    def keep(self, path: Path, header: Header) -> None:
        """Append the received lines to a file for read_sections and read_samples.

        Raises OSError.
        """
        lines = self.stream.lines()
        frames = FrameWriter(path)
        try:
            frames.append(header.line() + lines[: lines.rfind(b"\n") + 1])
        finally:
            frames.close()

    @staticmethod
    def arguments(period: float) -> tuple[str, ...]:
        """Return the arguments of nm-sample for reading commands on standard input and writing each sample to
        standard output."""
        milliseconds = str(round(period * 1000))
        return "0", "/proc/self/fd/1", milliseconds, milliseconds

    def __enter__(self) -> GuestSampler:
        with self._commands.opened() as reader:
            self._process = self._host.start(
                self._argv, stdout=self._raw, stderr=self._raw.with_suffix(".stderr.txt"), stdin=reader
            )
        files = [f"+ {self.scope} {name} 1 {path}\n" for name, path in NODE_FILES.items()]
        self._commands.send("".join(files))
        self.mark()
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.close()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                self._process.wait(_END_LIMIT)
            self._process.kill()
            self._process = None

    def mark(self) -> None:
        """Take a sample now."""
        self._commands.send(f"! {self.scope}\n")
