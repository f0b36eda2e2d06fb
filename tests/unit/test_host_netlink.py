"""Netlink messages: parsed as the kernel lays them out; what an older kernel leaves out is None."""

import socket
import struct
import sys

from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.counters.netlink import (
    attributes,
    connection_request,
    messages,
    parse_connections,
    parse_links,
    parse_qdiscs,
    qdisc_request,
)
from nearmetal.model.scope import NODE


def message(kind: int, body: bytes) -> bytes:
    text = struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body
    return text + b"\0" * (-len(text) % 4)


def attribute(kind: int, body: bytes) -> bytes:
    text = struct.pack("=HH", 4 + len(body), kind) + body
    return text + b"\0" * (-len(text) % 4)


def qdisc(device: int, kind: bytes, *, backlog: int, drops: int, requeues: int, overlimits: int) -> bytes:
    queue = struct.pack("=IIIII", 1, backlog, drops, requeues, overlimits)
    body = struct.pack("=BxxxiIII", 0, device, 0x80010000, 0xFFFFFFFF, 1)
    return message(36, body + attribute(1, kind + b"\0") + attribute(7, attribute(3, queue)))


DONE = message(3, b"\0\0\0\0")
QDISCS = (
    qdisc(1, b"noqueue", backlog=0, drops=0, requeues=0, overlimits=0)
    + qdisc(7, b"tbf", backlog=1514, drops=37, requeues=1, overlimits=90)
    + DONE
)
INFO = bytearray(248)
for at, value in ((8, 204000), (32, 2), (68, 891), (72, 37), (80, 156), (100, 5995)):
    INFO[at : at + 4] = value.to_bytes(4, sys.byteorder)
for at, value in ((120, 10_001_969), (128, 10_002_668)):
    INFO[at : at + 8] = value.to_bytes(8, sys.byteorder)
INFO[240:244] = struct.pack("=HH", 3, 2)
INFO[244:248] = struct.pack("=I", 250)


def connection(info: bytes) -> bytes:
    ends = struct.pack("!HH", 50709, 1024)
    addresses = socket.inet_aton("10.99.0.2").ljust(16, b"\0") + socket.inet_aton("10.99.0.3").ljust(
        16, b"\0"
    )
    body = struct.pack("=BBBB", socket.AF_INET, 1, 0, 0) + ends + addresses + bytes(12) + bytes(20)
    return message(20, body + attribute(4, b"cubic\0") + (attribute(2, info) if info else b""))


def test_requests_are_dumps_of_the_right_kind() -> None:
    assert struct.unpack_from("=IHH", qdisc_request()) == (36, 38, 0x301)
    asked = connection_request()
    assert struct.unpack_from("=IHH", asked) == (72, 20, 0x301)
    assert struct.unpack_from("=BBBxI", asked, 16) == (socket.AF_INET, socket.IPPROTO_TCP, 0b1010, 2)


def test_queueing_disciplines_that_have_a_queue() -> None:
    (found,) = parse_qdiscs(QDISCS)
    assert (found.device, found.kind, found.drops, found.overlimits) == (7, "tbf", 37, 90)
    assert (found.requeues, found.backlog) == (1, 1514)


def test_links() -> None:
    body = struct.pack("=BxHiII", 0, 1, 7, 0, 0) + attribute(3, b"port1\0")
    assert parse_links(message(16, body) + DONE) == {7: "port1"}


def test_a_connection_as_the_kernel_describes_it() -> None:
    (found,) = parse_connections(connection(bytes(INFO)) + DONE, NODE)
    assert (found.local, found.remote) == ("10.99.0.2:50709", "10.99.0.3:1024")
    assert (found.rto, found.rtt, found.rttvar) == (0.204, 0.000891, 0.000037)
    assert (found.cwnd, found.retransmitted, found.lost, found.congestion_control) == (156, 5995, 2, "cubic")
    assert (found.bytes_acked, found.bytes_received) == (10_001_969, 10_002_668)
    assert (found.timeouts, found.timeout_runs, found.timeout_seconds) == (3, 2, 0.25)


def test_values_missing_in_an_older_kernel_are_none() -> None:
    (found,) = parse_connections(connection(bytes(INFO[:136])), NODE)
    assert (found.rto, found.bytes_received) == (0.204, 10_002_668)
    assert (found.timeouts, found.timeout_runs, found.timeout_seconds) == (None, None, None)
    (found,) = parse_connections(connection(b""), NODE)
    assert (found.rto, found.retransmitted) == (None, None)


@given(st.binary(max_size=300))
def test_noise_never_raises(noise: bytes) -> None:
    attributes(noise)
    for data in (noise, message(20, noise), message(36, noise), message(16, noise)):
        list(messages(data))
        for parse in (parse_links, parse_qdiscs):
            assert len(parse(data)) >= 0
        assert len(parse_connections(data, NODE)) >= 0


@given(st.integers(0, len(QDISCS)))
def test_a_cut_answer_holds_whole_messages_only(cut: int) -> None:
    assert parse_qdiscs(QDISCS[:cut]) in ([], parse_qdiscs(QDISCS))
