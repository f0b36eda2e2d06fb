"""Reads the samples that a running sampler has written so far. Also runs a sampler inside a guest, which
sends its lines to the machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from ..host import Host, Process
from ..host.counters.files import NODE_FILES
from ..host.counters.procfiles import CounterUnits
from ..host.untrusted import UntrustedDirectory
from ..model.scope import GUEST, Scope
from .commands import CommandPipe
from .frames import FrameWriter
from .reading import Header, Sample, parse_lines

GUESTS = "guests.jsonl.zst"
"""Name of the file with the samples from guests, in the same directory as the samples of the machine."""
_LOOK_AGAIN = 0.005
_END_LIMIT = 30.0


class Stream:
    """The lines that are written to a file after this object was created.

    path: path of the file.
    scale: units of the raw counters in the lines.
    """

    def __init__(self, path: Path, scale: CounterUnits) -> None:
        self.path, self._scale = path, scale
        self._files = UntrustedDirectory.part(path.parent)
        found = self._files.stat(path.name)
        self._begin = 0 if found is None else found.st_size

    def lines(self) -> bytes:
        with contextlib.suppress(FileNotFoundError), self._files.open_file(self.path.name) as file:
            file.seek(self._begin)
            return file.read()
        return b""

    def until(self, scope: Scope, monotonic: float, limit: float) -> list[Sample]:
        """Wait until the file contains a sample of a scope that was taken at or after a moment. Return all
        samples so far.

        monotonic: the moment, in seconds of the CLOCK_MONOTONIC by which the samples were taken.
        limit: time limit in seconds. At the limit, the samples so far are returned.
        """
        end = time.monotonic() + limit
        while True:
            found = parse_lines(self.lines(), self._scale, self.path)
            there = any(s.monotonic >= monotonic and scope in s.scopes for s in reversed(found))
            if there or time.monotonic() > end:
                return found
            time.sleep(_LOOK_AGAIN)


class GuestSampler:
    """Runs nm-sample in a guest until exit. It reads the counters of the guest's kernel, as scope
    'guest.<name>'.

    If the guest ends, its sampler ends too. The lines received until then remain.

    argv: command line that runs nm-sample in the guest with arguments(). Commands are sent to its standard
        input.
    raw: file on the machine for its lines.
    scale: units of the raw counters.
    """

    def __init__(self, host: Host, argv: Sequence[str], name: str, raw: Path, scale: CounterUnits) -> None:
        self.scope, self._raw = Scope(kind=GUEST, name=name), raw
        self._host, self._argv = host, tuple(argv)
        self._commands = CommandPipe()
        self._process: Process | None = None
        self.stream = Stream(raw, scale)

    def keep(self, path: Path, header: Header) -> None:
        """Append a header and the received lines to a file of frames, for read_sections().

        Raises OSError.
        """
        lines = self.stream.lines()
        with contextlib.closing(FrameWriter(path)) as frames:
            frames.append(header.line() + lines[: lines.rfind(b"\n") + 1])

    @staticmethod
    def arguments(period: float) -> tuple[str, ...]:
        """Return the arguments by which nm-sample reads commands from its standard input and writes each
        sample to its standard output.

        period: seconds between two samples.
        """
        milliseconds = str(round(period * 1000))
        return "0", "/proc/self/fd/1", milliseconds, milliseconds

    def __enter__(self) -> GuestSampler:
        with self._commands.opened() as reader:
            self._process = self._host.start(
                self._argv, stdout=self._raw, stderr=self._raw.with_suffix(".stderr.txt"), stdin=reader
            )
        self._commands.add(self.scope, NODE_FILES, {})
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
        self._commands.mark(self.scope)
