"""The line to a guest's agent: how long an answer is waited for after a move."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from nearmetal.environments.guests import moves
from nearmetal.errors import RunError
from nearmetal.host.guest_line import FrameKind, GuestLine

HEAD = struct.Struct("=III")


@contextmanager
def agent(path: Path, answers: threading.Event) -> Iterator[GuestLine]:
    """A line to an agent that answers once it may."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, suppress(ConnectionError):  # nobody may wait any more
            while connection.recv(HEAD.size):
                answers.wait(PATIENCE)
                connection.sendall(HEAD.pack(0, FrameKind.PONG, 16) + struct.pack("=QQ", 1, 1))

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with GuestLine(path) as line:
                yield line
        finally:
            answers.set()
            thread.join(PATIENCE)


def test_a_moved_guest_may_take_as_long_to_answer_as_its_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ANSWER_SECONDS", 0.05)
    with (
        agent(tmp_path / "silent", threading.Event()) as line,
        pytest.raises(RunError, match="did not answer in time"),
    ):
        moves.first_answer(line, 0.1)
    late = threading.Event()
    with agent(tmp_path / "late", late) as line:
        timer = threading.Timer(0.5, late.set)  # later than usual
        timer.start()
        _, answered = moves.first_answer(line, PATIENCE)
        assert answered > 0
        timer.join()
