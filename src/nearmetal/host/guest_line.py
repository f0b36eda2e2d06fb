"""The connection to a guest's agent, through the multiplexer on the host. It is for queries and files;
commands of workloads use 'nm-box guest'. kernels/common/frames.h defines the protocol."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ..errors import RunError

_HEAD = struct.Struct("=III")
_WINDOW = 1 << 17
_PIECE = 1 << 14
_MOST_FRAME = 1 << 20
"""Largest payload in bytes that is accepted. The agent sends less."""
_MOST_OUTPUT = 64 << 20
"""Most bytes of output that are accepted of one command."""
ANSWER_SECONDS = 60.0
"""Seconds within which the agent answers a request that starts no command."""
LOOK_AGAIN = 0.02
"""Seconds between two checks whether a silent guest still runs."""


class FrameKind(IntEnum):
    RUN = 1
    IN = 2
    IN_END = 3
    SIGNAL = 4
    WINDOW = 5
    OUT = 6
    ERR = 7
    ENDED = 8
    HELLO = 9
    DROP = 10
    PING = 11
    PONG = 12
    AWAIT = 13
    MOVE = 14
    SWITCH = 15
    STAY = 16
    MOVED = 17


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The message by which a guest reports that it is ready.

    kernel: version of the guest's kernel.
    at: time of each step of the guest's start, by CLOCK_MONOTONIC of the guest, in ns.
    """

    kernel: str
    at: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Offsets of a guest's clocks from those of the host, in ns. Positive values mean that the guest is
    ahead.

    monotonic: offset of CLOCK_MONOTONIC.
    realtime: offset of CLOCK_REALTIME.
    error: largest error of both offsets, which is half of the round trip.
    """

    monotonic: int
    realtime: int
    error: int


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a command in a guest.

    status: exit status as in Completed.returncode.
    """

    status: int
    stdout: bytes
    stderr: bytes


def answers(path: Path) -> bool:
    """Return whether a multiplexer still serves the connection to a guest."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        return trying.connect_ex(str(path)) == 0


class GuestLine:
    """A connection to the multiplexer of a guest, which may be hostile.

    gone: called while the guest does not answer. It returns why the guest has ended, which stops waiting, or
        ''.

    Every method raises RunError if the guest has ended, does not answer in time, or sends anything but the
    agent's messages.
    """

    def __init__(self, path: Path, gone: Callable[[], str] = str) -> None:
        self._path, self._gone = path, gone
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError as e:
            self._socket.close()
            raise RunError(f"the guest cannot be reached: {e.strerror}", where=str(path)) from e

    def __enter__(self) -> GuestLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def hello(self, timeout: float) -> Hello:
        """Wait until the guest is ready and return its message, which may have arrived before."""
        self._send(FrameKind.AWAIT)
        payload = self._wait(FrameKind.HELLO, time.monotonic() + timeout)
        with self._well_formed():
            fields = json.loads(payload[8:])
            kernel = str(fields.pop("kernel"))
            return Hello(kernel=kernel, at={str(step): int(at) for step, at in fields.items()})

    def clocks(self, *, tries: int = 5, timeout: float = ANSWER_SECONDS) -> Clocks:
        """Measure how far the guest's clocks are ahead, by the shortest of `tries` round trips.

        timeout: longest time of a round trip, in seconds.
        """
        return min((self._round_trip(timeout) for _ in range(tries)), key=lambda clocks: clocks.error)

    def _round_trip(self, timeout: float) -> Clocks:
        real, before = time.time_ns(), time.monotonic_ns()
        self._send(FrameKind.PING)
        payload = self._wait(FrameKind.PONG, time.monotonic() + timeout)
        half = (time.monotonic_ns() - before) // 2
        with self._well_formed():
            monotonic, realtime = struct.unpack("=QQ", payload)
        return Clocks(monotonic=monotonic - before - half, realtime=realtime - real - half, error=half)

    def run(self, argv: Sequence[str], stdin: bytes = b"", *, timeout: float) -> CommandResult:
        """Run a command to its end, without variables of this process. A connection can run only one command
        at a time."""
        end = time.monotonic() + timeout
        texts = ["/", str(len(argv)), *argv]
        self._send(FrameKind.RUN, b"".join(os.fsencode(t) + b"\0" for t in texts))
        out, err, at, unused, ended = bytearray(), bytearray(), 0, 0, False
        while True:
            while at < len(stdin) and unused < _WINDOW:
                piece = stdin[at : at + _PIECE]
                self._send(FrameKind.IN, piece)
                at += len(piece)
                unused += len(piece)
            if at == len(stdin) and not ended:
                self._send(FrameKind.IN_END)
                ended = True
            kind, payload = self._frame(end)
            match kind:
                case FrameKind.WINDOW:
                    with self._well_formed():
                        unused -= struct.unpack("=I", payload)[0]
                case FrameKind.OUT | FrameKind.ERR:
                    (out if kind is FrameKind.OUT else err).extend(payload)
                    if len(out) + len(err) > _MOST_OUTPUT:
                        raise self._error(
                            f"a command in the guest printed more than {_MOST_OUTPUT >> 20} MiB"
                        )
                    self._send(FrameKind.WINDOW, struct.pack("=I", len(payload)))
                case FrameKind.ENDED:
                    with self._well_formed():
                        status = os.waitstatus_to_exitcode(struct.unpack("=i", payload)[0])
                    return CommandResult(status=status, stdout=bytes(out), stderr=bytes(err))

    def begin_move(self, port: Path) -> None:
        """Prepare the move of the guest to a second hypervisor, which connects to a socket at `port`.

        Nothing more is sent to the guest until switch() or stay(). If this connection is closed before that,
        the guest stays where it is.
        Raises RunError also if the guest does not read what was sent to it, or is moved already.
        """
        if not self._move(FrameKind.MOVE, os.fsencode(port)):
            raise RunError(
                "the guest cannot be moved now: another move is under way, or it does not read its commands",
                remedy="try again when its commands have ended",
            )

    def switch(self) -> None:
        """Connect the guest's line to the second hypervisor, after delivering what the first one has written.

        Raises RunError also if the second hypervisor has not connected.
        """
        if not self._move(FrameKind.SWITCH):
            raise RunError("the second hypervisor has not connected to the agent's line")

    def stay(self) -> None:
        """End a move that has begun, and continue with the first hypervisor."""
        self._move(FrameKind.STAY)

    def _move(self, kind: FrameKind, payload: bytes = b"") -> bool:
        self._send(kind, payload)
        return self._wait(FrameKind.MOVED, time.monotonic() + ANSWER_SECONDS) == b"\0"

    def _send(self, kind: FrameKind, payload: bytes = b"") -> None:
        try:
            self._socket.settimeout(None)
            self._socket.sendall(_HEAD.pack(0, kind, len(payload)) + payload)
        except OSError as e:
            raise self._error(self._gone() or f"the guest has gone: {e.strerror}") from e

    def _wait(self, wanted: FrameKind, end: float) -> bytes:
        while True:
            kind, payload = self._frame(end)
            if kind is wanted:
                return payload

    def _frame(self, end: float) -> tuple[FrameKind, bytes]:
        while True:
            if len(self._buffer) >= _HEAD.size:
                _, kind, size = _HEAD.unpack_from(self._buffer)
                if size > _MOST_FRAME:
                    raise self._error(f"the guest announces a message of {size} bytes")
                if len(self._buffer) >= _HEAD.size + size:
                    payload = bytes(self._buffer[_HEAD.size : _HEAD.size + size])
                    del self._buffer[: _HEAD.size + size]
                    with self._well_formed():
                        return FrameKind(kind), payload
            self._more(end)

    def _more(self, end: float) -> None:
        if time.monotonic() > end:  # also if it sends messages of other kinds without end
            raise self._error(self._gone() or "the guest did not answer in time")
        self._socket.settimeout(LOOK_AGAIN)
        try:
            more = self._socket.recv(1 << 16)
        except TimeoutError:
            if reason := self._gone():
                raise self._error(reason) from None
            return
        except OSError as e:
            raise self._error(self._gone() or f"the guest has gone: {e.strerror}") from e
        if not more:
            raise self._error(self._gone() or "the guest has gone")
        self._buffer += more

    def _error(self, what: str) -> RunError:
        return RunError(what, where=str(self._path))

    @contextmanager
    def _well_formed(self) -> Iterator[None]:
        """Raise RunError if a message of the guest cannot be parsed."""
        try:
            yield
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
            struct.error,
        ) as e:
            raise self._error(f"the guest sent an invalid message: {e}") from e
