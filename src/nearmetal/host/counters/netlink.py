"""The netlink messages that report loss: queueing disciplines, links, TCP connections.

Messages are built and parsed without I/O; only dump() communicates with the kernel. (linux/rtnetlink.h,
linux/inet_diag.h, linux/tcp.h) They are implemented here because every trial needs them, and importing
pyroute2 takes longer than many trials.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from ...model.record import Connection
from ...model.scope import Scope

ROUTE, SOCK_DIAG = 0, 4  # netlink protocols

_HEADER = struct.Struct("=IHHII")
_ERROR, _DONE = 2, 3
_GET_LINK, _GET_QDISC, _DIAG_BY_FAMILY = 18, 38, 20
_REQUEST_DUMP = 0x301

_LINK = struct.Struct("=BxHiII")
_LINK_NAME = 3
_QDISC = struct.Struct("=BxxxiIII")
_QDISC_KIND, _QDISC_STATISTICS, _QUEUE = 1, 7, 3
_NO_QUEUE = b"noqueue\0"
_QUEUE_FIELDS = struct.Struct("=IIIII")

_ESTABLISHED = 1
_INFO, _CONGESTION = 2, 4  # INET_DIAG_INFO, INET_DIAG_CONG
_DIAG_REQUEST = struct.Struct("=BBBxI48x")
_DIAG = struct.Struct("=BBBB2s2s16s16sI8x")
_LIMIT = struct.pack("@ll", 60, 0)  # struct timeval
_BUFFER = 1 << 15  # the kernel sends no longer messages; a larger buffer would be mapped again for every read


@dataclass(frozen=True, kw_only=True)
class Qdisc:
    """The counters of a queueing discipline.

    device: index of its network device.
    kind: name of the discipline, such as 'fq_codel'.
    drops, overlimits, requeues: packets since it was set up.
    backlog: bytes in the queue now.
    """

    device: int
    kind: str
    drops: int
    overlimits: int
    requeues: int
    backlog: int


def open_netlink(protocol: int, descriptor: int | None = None) -> socket.socket:
    """Open a netlink socket. It belongs to the network namespace in which it is opened, wherever it is used.

    descriptor: a socket that is already open, to use instead.

    Raises OSError.
    """
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol, descriptor)
    # Not settimeout, which would poll before every read.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LIMIT)
    return opened


def dump(via: socket.socket, request: bytes) -> bytes:
    """Send a request and return all messages of the answer, concatenated. Raises OSError."""
    via.send(request)
    parts: list[bytes] = []
    while True:
        part = via.recv(_BUFFER)
        parts.append(part)
        kinds = [kind for kind, _ in messages(part)]
        if not kinds or _DONE in kinds or _ERROR in kinds:
            return b"".join(parts)


def qdisc_request() -> bytes:
    return _request(_GET_QDISC, _QDISC.pack(0, 0, 0, 0, 0))


def link_request() -> bytes:
    return _request(_GET_LINK, _LINK.pack(0, 0, 0, 0, 0))


def connection_request() -> bytes:
    """Return the request for established TCP connections over IPv4, with tcp_info and the name of the
    congestion control."""
    wanted = 1 << (_INFO - 1) | 1 << (_CONGESTION - 1)
    body = _DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, wanted, 1 << _ESTABLISHED)
    return _request(_DIAG_BY_FAMILY, body)


def _request(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, 1, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of every complete message."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += _aligned(length)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the contents of attributes by type. An incomplete attribute at the end is ignored."""
    out: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            break
        out[kind & 0x3FFF] = data[at + 4 : at + length]
        at += _aligned(length)
    return out


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def parse_links(data: bytes) -> dict[int, str]:
    """Return the names of devices by index."""
    out: dict[int, str] = {}
    for _, body in messages(data):
        if len(body) >= _LINK.size:
            name = attributes(body[_LINK.size :]).get(_LINK_NAME)
            if name:
                out[_LINK.unpack_from(body)[2]] = _text(name)
    return out


def parse_qdiscs(data: bytes) -> list[Qdisc]:
    """Return the queueing disciplines that have a queue; 'noqueue' cannot drop packets."""
    out: list[Qdisc] = []
    for _, body in messages(data):
        if len(body) < _QDISC.size or body.find(_NO_QUEUE, _QDISC.size, _QDISC.size + 16) > 0:
            continue
        found = attributes(body[_QDISC.size :])
        kind = _text(found.get(_QDISC_KIND, b""))
        queue = attributes(found.get(_QDISC_STATISTICS, b"")).get(_QUEUE, b"")
        if kind and len(queue) >= _QUEUE_FIELDS.size:
            _, backlog, drops, requeues, overlimits = _QUEUE_FIELDS.unpack_from(queue)
            out.append(
                Qdisc(
                    device=_QDISC.unpack_from(body)[1],
                    kind=kind,
                    drops=drops,
                    overlimits=overlimits,
                    requeues=requeues,
                    backlog=backlog,
                )
            )
    return out


def parse_connections(data: bytes, scope: Scope) -> list[Connection]:
    """Return the TCP connections.

    scope: scope of the network namespace whose kernel answered.
    """
    out: list[Connection] = []
    for kind, body in messages(data):
        if kind != _DIAG_BY_FAMILY or len(body) < 72:
            continue
        family, _, _, _, from_port, to_port, source, destination, _ = _DIAG.unpack_from(body)
        if family == socket.AF_INET:
            found = attributes(body[72:])
            congestion = found.get(_CONGESTION)
            out.append(
                _state(
                    scope,
                    _endpoint(source, from_port),
                    _endpoint(destination, to_port),
                    _text(congestion) if congestion else None,
                    found.get(_INFO, b""),
                )
            )
    return out


def _endpoint(address: bytes, port: bytes) -> str:
    return f"{IPv4Address(address[:4])}:{int.from_bytes(port, 'big')}"


def _state(scope: Scope, local: str, remote: str, congestion: str | None, info: bytes) -> Connection:
    """Return the fields of struct tcp_info.

    Newer kernels append fields to it. A field that this kernel does not have is None.
    """

    def number(at: int, size: int = 4) -> int | None:
        return int.from_bytes(info[at : at + size], sys.byteorder) if at + size <= len(info) else None

    return Connection(
        scope=scope,
        local=local,
        remote=remote,
        congestion_control=congestion,
        rto=_seconds(number(8), 1e6),
        rtt=_seconds(number(68), 1e6),
        rttvar=_seconds(number(72), 1e6),
        cwnd=number(80),
        retransmitted=number(100),
        lost=number(32),
        bytes_acked=number(120, 8),
        bytes_received=number(128, 8),
        timeouts=number(240, 2),
        timeout_runs=number(242, 2),
        timeout_seconds=_seconds(number(244), 1e3),
    )


def _seconds(value: int | None, per_second: float) -> float | None:
    return None if value is None else value / per_second


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("ascii", "replace")
