"""Other users of a machine connect to the ports of nearmetal: they neither take part in a connection of two
programs, nor keep these from having one."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from nearmetal.api.moves.connection import start_connected
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.host.connection import accept_secret, connected_sockets, listening
from nearmetal.host.ssh import SshHost

pytestmark = pytest.mark.attack

SECRET = b"0123456789\n"
ANSWERS = [sys.executable, "-c", "import os; os.write(3, b'ready'); print(os.read(3, 5).decode())"]


@pytest.fixture
def others() -> Iterator[Callable[[int], socket.socket]]:
    """Returns a connection of another user to a port."""
    with ExitStack() as open_ones:
        yield lambda port: open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 10))


class Near(LocalHost):
    """This machine in place of another one.

    first: called with the number of the port that ssh forwards; returns the port to which it belongs by now.
    """

    name = "node7"

    def __init__(self, first: Callable[[int], int] = int) -> None:
        self.forward_from = first


def test_who_connects_first_gets_no_end_of_a_pair(
    others: Callable[[int], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    rogues, connect = [], socket.create_connection

    def second(address: tuple[str, int], timeout: float) -> socket.socket:
        monkeypatch.undo()
        rogues.append(others(address[1]))
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", second)
    near, far = connected_sockets()
    with near, far:
        near.sendall(b"memory")
        assert far.recv(6) == b"memory" and rogues[0].recv(1) == b""
        assert near.getblocking() and far.getblocking() and min(near.fileno(), far.fileno()) >= 100


def test_only_who_knows_the_secret_is_accepted(others: Callable[[int], socket.socket]) -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
        silent = [others(port) for _ in range(100)]
        silent[0].close()
        (guess := others(port)).sendall(b"0123456788\n")
        others(port).sendall(SECRET[:5])
        (ours := others(port)).sendall(SECRET)
        accepted = accept_secret(listener, SECRET, lambda: True)
        assert accepted is not None
        with accepted:
            accepted.sendall(b"!")
            assert ours.recv(1) == b"!"
        for rogue in (guess, silent[1], silent[-1]):
            rogue.settimeout(10)
            assert rogue.recv(1) == b""


def test_nobody_is_awaited_who_no_longer_comes(others: Callable[[int], socket.socket]) -> None:
    with listening() as listener:
        others(listener.getsockname()[1])
        assert accept_secret(listener, SECRET, lambda: False) is None


def test_a_program_there_gets_our_connection(tmp_path: Path, others: Callable[[int], socket.socket]) -> None:
    def busy(port: int) -> int:
        others(port).sendall(bytes(64))
        return port

    process, end = start_connected(cast(SshHost, Near(busy)), ANSWERS, tmp_path / "log")
    with end:
        assert end.recv(5) == b"ready"
        end.sendall(b"pages")
        assert process.wait(30) == 0
    assert (tmp_path / "log").read_text() == "pages\n"


def test_a_program_there_does_not_take_the_connection_of_another(
    tmp_path: Path, others: Callable[[int], socket.socket]
) -> None:
    """The connection of ssh was lost, and another user listens on the port now."""
    heard = list[bytes]()

    def listen() -> None:
        peer = rogue.accept()[0]
        with peer:
            heard.append(peer.recv(100))
            peer.sendall(heard[0])

    with listening() as rogue:
        thread = threading.Thread(target=listen)
        thread.start()
        began = ["sh", "-c", f": >{tmp_path}/began"]
        with pytest.raises(RunError, match=r"on node7: .*no connection to this machine by a forwarded port"):
            start_connected(cast(SshHost, Near(lambda _: rogue.getsockname()[1])), began, tmp_path / "log")
        thread.join()
    assert len(heard[0]) == 33 and not (tmp_path / "began").exists()
