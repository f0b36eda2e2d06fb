"""The line to a guest's agent while the guest is moved from one hypervisor to another.

Both are sockets of the test, so that bytes can be cut anywhere.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from nearmetal.environments import Tools
from nearmetal.errors import RunError
from nearmetal.host import REPORT_FD, LocalHost, Process
from nearmetal.host.guest_line import FrameKind, GuestLine

pytestmark = pytest.mark.beside
HEAD = struct.Struct("=III")


@dataclass(frozen=True)
class Line:
    directory: Path
    first: socket.socket
    process: Process

    @property
    def agent(self) -> Path:
        return self.directory / "agent"

    @property
    def second(self) -> Path:
        return self.directory / "second"


def connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(PATIENCE)
    made.connect(str(path))
    return made


@pytest.fixture
def line(tools: Tools, tmp_path: Path) -> Iterator[Line]:
    argv = [
        tools / "nm-box",
        "multiplex",
        "--port",
        str(tmp_path / "port"),
        "--listen",
        str(tmp_path / "agent"),
    ]
    launched = LocalHost().launch(
        [*argv, "--report-fd", str(REPORT_FD)], expect={"listening"}, timeout=PATIENCE
    )
    try:
        with connected(tmp_path / "port") as first:
            yield Line(tmp_path, first, launched.process)
    finally:
        launched.process.kill()


def exactly(at: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = at.recv(size - len(data))
        assert more, "the line has ended"
        data += more
    return data


def frame(at: socket.socket) -> tuple[int, FrameKind, bytes]:
    channel, kind, size = HEAD.unpack(exactly(at, HEAD.size))
    return channel, FrameKind(kind), exactly(at, size)


@contextmanager
def reading(at: socket.socket, into: bytearray) -> Iterator[None]:
    """Read as a hypervisor does, whatever comes, until exit."""
    at.settimeout(0.02)
    end = threading.Event()

    def read() -> None:
        while not end.is_set():
            try:
                into.extend(at.recv(7))
            except TimeoutError:
                continue

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        at.settimeout(PATIENCE)


def test_nothing_is_lost_or_doubled_wherever_the_stream_is_cut(line: Line) -> None:
    """The first hypervisor ends in the middle of a frame of the guest, and the second goes on with its
    rest. Commands that come during the move reach the second one only."""
    with ExitStack() as stack:
        caller = stack.enter_context(connected(line.agent))
        read = bytearray()
        with reading(line.first, read):
            caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"one")
            mover = stack.enter_context(GuestLine(line.agent))
            mover.begin_move(line.second)
        channel, kind, _ = HEAD.unpack(bytes(read[: HEAD.size]))
        assert (kind, bytes(read[HEAD.size :])) == (FrameKind.IN, b"one"), "all was read before the answer"
        caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"two")
        second = stack.enter_context(connected(line.second))
        whole = HEAD.pack(channel, FrameKind.OUT, 11) + b"cut in half"
        line.first.sendall(whole + whole[: HEAD.size + 3])
        second.sendall(whole[HEAD.size + 3 :] + whole)
        mover.switch()
        assert [frame(caller)[2] for _ in range(3)] == [b"cut in half"] * 3
        assert frame(second) == (channel, FrameKind.IN, b"two")
        line.first.settimeout(PATIENCE)
        assert line.first.recv(64) == b"", "the first one got no more, and its connection is closed"


def test_output_cut_by_the_end_of_the_first_hypervisor_is_completed_by_the_second(line: Line) -> None:
    with connected(line.agent) as caller, GuestLine(line.agent) as mover:
        caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"one")
        channel, *_ = frame(line.first)
        mover.begin_move(line.second)
        whole = HEAD.pack(channel, FrameKind.OUT, 11) + b"cut in half"
        line.first.sendall(whole + whole[:5])
        line.first.close()
        caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"two")
        with connected(line.second) as second:
            second.sendall(whole[5:])
            mover.switch()
            assert [frame(caller)[2] for _ in range(2)] == [b"cut in half"] * 2
            assert frame(second) == (channel, FrameKind.IN, b"two")


@pytest.mark.parametrize("moves", [False, True])
def test_the_line_ends_with_a_guest_that_runs_nowhere(line: Line, moves: bool) -> None:
    with GuestLine(line.agent) as mover:
        if moves:
            mover.begin_move(line.second)
        line.first.close()
        if moves:
            mover.stay()
        assert line.process.wait(PATIENCE) == 0


def test_a_move_that_is_given_up_leaves_the_first_one(line: Line) -> None:
    with connected(line.agent) as caller, GuestLine(line.agent) as mover:
        mover.begin_move(line.second)
        caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"one")
        with connected(line.second) as second:
            mover.stay()
            assert frame(line.first)[1:] == (FrameKind.IN, b"one")
            assert second.recv(64) == b""


def test_a_mover_that_dies_leaves_the_first_one(line: Line) -> None:
    with connected(line.agent) as caller:
        with GuestLine(line.agent) as mover:
            mover.begin_move(line.second)
            caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"one")
        seen = {frame(line.first)[1] for _ in range(2)}
        assert seen == {FrameKind.DROP, FrameKind.IN}


def test_only_one_move_at_a_time_and_only_where_one_can_be(line: Line) -> None:
    with GuestLine(line.agent) as mover, GuestLine(line.agent) as other:
        with pytest.raises(RunError, match="cannot be moved now"):
            mover.begin_move(line.directory / "no" / "such" / "directory")
        mover.begin_move(line.second)
        with pytest.raises(RunError, match="cannot be moved now"):
            other.begin_move(line.directory / "third")
        with pytest.raises(RunError, match="second hypervisor has not connected"):
            other.switch()
        with pytest.raises(RunError, match="second hypervisor has not connected"):
            mover.switch()
        mover.stay()
        other.begin_move(line.directory / "third")


def test_a_guest_that_reads_nothing_is_not_moved(line: Line) -> None:
    """What is on its way to it would be lost."""
    with connected(line.agent) as caller, GuestLine(line.agent) as mover:
        caller.sendall(HEAD.pack(0, FrameKind.IN, 3) + b"one")
        assert line.first.recv(1, socket.MSG_PEEK), "it has come, and is not read"
        with pytest.raises(RunError, match="does not read its commands"):
            mover.begin_move(line.second)
        assert frame(line.first)[2] == b"one"
        assert line.process.poll() is None


MIB = 1 << 20


@pytest.mark.attack
def test_a_caller_that_the_guest_floods_is_dropped_and_no_other(line: Line) -> None:
    with connected(line.agent) as flooded, connected(line.agent) as other:
        flooded.sendall(HEAD.pack(0, FrameKind.IN, 1) + b"f")
        other.sendall(HEAD.pack(0, FrameKind.IN, 1) + b"o")
        frames = [frame(line.first) for _ in range(2)]  # they may come in either order
        channels = {data: channel for channel, _, data in frames}
        for _ in range(64):
            line.first.sendall(HEAD.pack(channels[b"f"], FrameKind.OUT, MIB) + bytes(MIB))
        line.first.sendall(HEAD.pack(channels[b"o"], FrameKind.OUT, 1) + b"y")
        assert frame(other)[2] == b"y"
        got = 0
        while got < 16 * MIB and (data := flooded.recv(MIB)):
            got += len(data)
        assert got < 16 * MIB


@pytest.mark.attack
def test_a_guest_that_reads_nothing_does_not_fill_the_memory(line: Line) -> None:
    with connected(line.agent) as caller:
        caller.settimeout(0.3)
        with pytest.raises(TimeoutError):
            for _ in range(64):
                caller.sendall(HEAD.pack(0, FrameKind.IN, MIB) + bytes(MIB))
        caller.settimeout(PATIENCE)
        got = 0
        while got < MIB:  # once it reads, the line goes on
            got += len(line.first.recv(MIB))
