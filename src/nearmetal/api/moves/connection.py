"""Connects a program on another machine with this one. No other user of either machine can take part.

ssh forwards a port of the other machine, to which every user there can connect. Both ends therefore prove
that they know a secret before the program gets the connection. The secrets are sent through ssh."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from ...errors import RunError
from ...host import Process
from ...host.connection import LOOPBACK, accept_secret, listening
from ...host.processes.failure import describe_failure
from ...host.ssh import SshHost

DESCRIPTOR = 3
"""Descriptor of the connection in the program on the other machine."""
_CONNECT = f"""\
IFS= read -r ours && IFS= read -r theirs && exec {DESCRIPTOR}<>"/dev/tcp/{LOOPBACK}/$0" &&
printf '%s\\n' "$ours" >&{DESCRIPTOR} && IFS= read -r -t 60 answer <&{DESCRIPTOR} &&
[ "$answer" = "$theirs" ] && exec "$@" </dev/null
echo 'no connection to this machine by a forwarded port' >&2
exit 1
"""
"""Script of bash: connects to the port $0, exchanges secrets, and becomes the command in its arguments."""
_CHUNK = 1 << 20


def start_connected(remote: SshHost, argv: Sequence[str], log: Path) -> tuple[Process, socket.socket]:
    """Start a program on another machine that inherits a connection to this machine as DESCRIPTOR.

    log: file on this machine for its output.
    Returns the program, and this machine's end of the connection. Raises RunError.
    """
    ours, theirs = (f"{secrets.token_hex(16)}\n".encode() for _ in range(2))
    with listening() as listener:
        port = remote.forward_from(listener.getsockname()[1])
        reader, writer = os.pipe()
        try:
            os.write(writer, ours + theirs)
        finally:
            os.close(writer)
        try:
            words = ["bash", "-c", _CONNECT, str(port), *argv]
            process = remote.start(words, stdout=log, stderr=log, stdin=reader)
        finally:
            os.close(reader)
        end = None
        try:
            end = accept_secret(listener, ours, lambda: process.poll() is None)
            if end is None:
                said = log.read_text(errors="replace")
                raise RunError(
                    f"on {remote.name}: {describe_failure('bash', process.poll() or 1, said)}",
                    remedy="bash there, and AllowTcpForwarding in its sshd_config",
                )
            end.sendall(theirs)
        except BaseException:
            process.kill()
            if end is not None:
                end.close()
            raise
    return process, end


def relay(one: socket.socket, other: socket.socket) -> None:
    """Send all data that arrives at either of two sockets to the other one, until both are shut down. The end
    of the data at one socket is not passed on."""
    for source, target in ((one, other), (other, one)):
        threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
