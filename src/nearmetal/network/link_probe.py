"""Measures links between emulated nodes. This is a separate program, since it moves between network
namespaces.

It reads {"pairs": [{"from": namespace, "to": namespace, "address": of the second}]} as JSON on standard
input. It writes one line of JSON, a list with {"round_trip": median round-trip time of a small packet in
seconds, "rate": bytes per second of a TCP stream} for each pair."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from statistics import median

from ..host.namespaces import entered

ROUNDS, WARM_UP = 150, 20
STREAM_SECONDS = 0.15
LIMIT = 60.0
CHUNK = 1 << 16


def main() -> None:
    """Measure the links of all pairs, from standard input to standard output. An error ends the program with
    a traceback, which its caller records."""
    request = json.load(sys.stdin)
    out = [
        {
            "round_trip": round_trip(pair["from"], pair["to"], pair["address"]),
            "rate": stream(pair["from"], pair["to"], pair["address"]),
        }
        for pair in request["pairs"]
    ]
    sys.stdout.write(json.dumps(out) + "\n")


def _sockets(kind: socket.SocketKind, one: str, other: str) -> tuple[socket.socket, socket.socket]:
    """Open a socket in each of two namespaces. A socket belongs to the namespace in which it was made,
    wherever it is used."""
    made = []
    for path in (one, other):
        with entered(path):
            made.append(socket.socket(socket.AF_INET, kind))
        made[-1].settimeout(LIMIT)
    return made[0], made[1]


def round_trip(one: str, other: str, address: str) -> float:
    """Return the median round-trip time of a small UDP packet between two namespaces, in seconds.

    one, other: paths of the namespaces.
    address: address in the other namespace.
    """
    near, far = _sockets(socket.SOCK_DGRAM, one, other)
    with near, far:
        far.bind((address, 0))
        near.connect(far.getsockname())
        seconds = []
        for _ in range(WARM_UP + ROUNDS):
            begin = time.perf_counter()
            near.send(b"?")
            packet, where = far.recvfrom(16)
            far.sendto(packet, where)
            near.recv(16)
            seconds.append(time.perf_counter() - begin)
        return median(seconds[WARM_UP:])


def stream(one: str, other: str, address: str) -> float:
    """Return the received bytes per second of a TCP stream. Arguments as of round_trip()."""
    near, far = _sockets(socket.SOCK_STREAM, one, other)
    with near, far:
        far.bind((address, 0))
        far.listen(1)
        near.connect(far.getsockname())
        taken, _ = far.accept()
        with taken:
            taken.settimeout(LIMIT)
            sender = threading.Thread(target=_send, args=(near,), daemon=True)
            sender.start()
            arrived, begin, last = 0, 0.0, 0.0
            while data := taken.recv(CHUNK):
                last = time.perf_counter()
                begin = begin or last
                arrived += len(data)
            sender.join()
            return arrived / (last - begin) if last > begin else 0.0


def _send(near: socket.socket) -> None:
    end = time.perf_counter() + STREAM_SECONDS
    while time.perf_counter() < end:
        near.sendall(bytes(CHUNK))
    near.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
