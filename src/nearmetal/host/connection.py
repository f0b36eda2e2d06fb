"""TCP connections on the loopback interface that no other user of the machine can join.

Programs that use a connection without any authentication, such as those of CRIU, get it as a descriptor."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"
_LEAST = 100
"""Least number of a descriptor that connected_sockets() returns. A program written in Go, such as runc, may
replace low descriptors that it has inherited in a program that it starts."""
_SECONDS = 10.0
_LOOK_AGAIN = 0.1
"""Seconds between two checks whether a connection is still expected."""
_MOST = 64
"""Maximum number of accepted connections that have not sent anything yet."""


@contextmanager
def listening() -> Iterator[socket.socket]:
    """Listen on a free port of the loopback interface until exit."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))  # without SO_REUSEADDR, so that nobody else can bind the port
        listener.listen()
        yield listener


def connected_sockets() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection. Another process may connect first, and is disconnected."""
    with listening() as listener:
        near = socket.create_connection(listener.getsockname(), timeout=_SECONDS)
        near.settimeout(None)
        while True:
            far, peer = listener.accept()
            if peer == near.getsockname():
                return _high(near), _high(far)
            far.close()


def accept_secret(
    listener: socket.socket, secret: bytes, expected: Callable[[], bool]
) -> socket.socket | None:
    """Return the first connection whose peer begins with the secret. All other connections are closed.

    listener: from listening().
    expected: returns whether to go on waiting.
    Returns None if no such connection is expected any more, or after some seconds.
    """
    silent: list[socket.socket] = []
    end = time.monotonic() + _SECONDS
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        try:
            while expected() and time.monotonic() < end:
                for key, _ in ready.select(_LOOK_AGAIN):
                    if key.fileobj is listener:
                        silent.append(listener.accept()[0])
                        ready.register(silent[-1], selectors.EVENT_READ)
                        peer = silent[0] if len(silent) > _MOST else None
                    else:
                        peer = next(s for s in silent if s is key.fileobj)
                        if _begins_with(peer, secret):
                            return _high(peer)
                    if peer is not None:
                        ready.unregister(peer)
                        silent.remove(peer)
                        peer.close()
        finally:
            for peer in silent:
                peer.close()
    return None


def _begins_with(peer: socket.socket, secret: bytes) -> bool:
    with contextlib.suppress(OSError):
        return hmac.compare_digest(peer.recv(len(secret), socket.MSG_DONTWAIT), secret)
    return False


def _high(end: socket.socket) -> socket.socket:
    """Return a copy of a socket whose descriptor is at least _LEAST, and close the socket."""
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _LEAST))
