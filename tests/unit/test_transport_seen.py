"""What the kernel shows of ranks, and the judgement whether they talk by what was asked for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

import nearmetal.meters.transport as transport_watch
from nearmetal.host.processes.ranks import Link, RankHolds, established, shared_mappings
from nearmetal.launchers.transport import ONE_RANK, SEEN, TransportDiffers, links_between, verify_transport
from nearmetal.meters.transport import TransportWatch
from nearmetal.model.study import Transport
from nearmetal.node.arms.running_arm import RunningArm

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOOP = b"0100007F" if sys.byteorder == "little" else b"7F000001"
MAPPED = b"0000000000000000FFFF0000" if sys.byteorder == "little" else b"00000000000000000000FFFF"


def line(local: bytes, remote: bytes, state: bytes, inode: bytes) -> bytes:
    return b"   0: %s %s %s 00000000:00000000 00:00000000 00000000     0        0 %s 1 0\n" % (
        local,
        remote,
        state,
        inode,
    )


def test_established_connections_are_read_by_inode() -> None:
    table = (
        HEAD
        + line(LOOP + b":0400", LOOP + b":0050", b"01", b"77")
        + line(LOOP + b":0050", LOOP, b"0A", b"78")
    )
    assert established(table) == {"77": ("127.0.0.1:1024", "127.0.0.1:80")}
    wide = HEAD + line(MAPPED + LOOP + b":0400", MAPPED + LOOP + b":0050", b"01", b"79")
    assert established(wide) == {"79": ("127.0.0.1:1024", "127.0.0.1:80")}
    assert established(b"") == {} == established(HEAD + b"torn line\n")


MAPS = """\
7f00-7f01 rw-s 00000000 00:1a 4711                       /dev/shm/vader_segment.h.0.1.0
7f02-7f03 r--s 00000000 00:1a 4712                       /tmp/readable
7f04-7f05 rw-p 00000000 00:1a 4713                       /usr/lib/private.so
7f06-7f07 rw-s 00000000 00:01 32769                      /SYSV00000000 (deleted)
7f08-7f09 rw-s 00000000 00:1a 4714                       /tmp/ompi/initial-pmix_shared-segment-0
7f0a-7f0b rw-p 00000000 00:00 0
"""


def test_shared_memory_is_what_is_mapped_writable_and_not_the_launchers() -> None:
    assert shared_mappings(MAPS) == {("00:1a", "4711"), ("00:01", "32769")}


A, B, HUB = ("x:1", "y:2"), ("y:2", "x:1"), ("x:9", "hub:1")
SEGMENT = ("00:1a", "7")


def holds(*links: Link, memory: bool = False) -> RankHolds:
    return RankHolds(links=frozenset(links), memory=frozenset({SEGMENT} if memory else ()))


TALKING = {0: holds(A, HUB), 1: holds(B)}
SHARING = {0: holds(HUB, memory=True), 1: holds(memory=True)}


def test_links_between_ranks_have_a_rank_at_each_end() -> None:
    assert links_between(TALKING) == {A, B}
    assert links_between(SHARING) == frozenset()


@pytest.mark.parametrize(("held", "wanted"), [(TALKING, Transport.TCP), (SHARING, Transport.SHM)])
def test_requested_transport_is_recognised(held: dict[int, RankHolds], wanted: Transport) -> None:
    for connected in (True, False):
        assert verify_transport(held, wanted, 2, connected=connected) == SEEN[wanted]


@pytest.mark.parametrize(
    ("held", "wanted", "words"),
    [
        (SHARING, Transport.TCP, "rank 0 has no TCP connection"),
        (TALKING, Transport.SHM, "hold a TCP connection"),
        ({0: holds(memory=True), 1: holds()}, Transport.SHM, "rank 0 maps no memory in common"),
        ({0: holds(memory=True)}, Transport.SHM, "rank 1 is not among the processes"),
        ({0: holds(A), 1: holds(B), 2: holds(HUB)}, Transport.TCP, "rank 2 has no TCP connection"),
    ],
)
def test_unexpected_transport_is_named_with_its_rank(
    held: dict[int, RankHolds], wanted: Transport, words: str
) -> None:
    ranks = max(2, len(held))
    with pytest.raises(TransportDiffers, match=words):
        verify_transport(held, wanted, ranks, connected=True)
    if "hold a TCP" in words:  # what must not be there is wrong at any time
        with pytest.raises(TransportDiffers):
            verify_transport(held, wanted, ranks, connected=False)
    else:
        assert verify_transport(held, wanted, ranks, connected=False) is None


def test_one_rank_needs_no_transport() -> None:
    assert verify_transport({}, Transport.TCP, 1, connected=True) == ONE_RANK


def watched(monkeypatch: pytest.MonkeyPatch, *acknowledged: int | None) -> TransportWatch:
    """Of two ranks over TCP whose connections have brought over so much at each look."""
    told = iter(acknowledged)
    monkeypatch.setattr(transport_watch, "rank_holdings", lambda *_: TALKING)
    network: Any = SimpleNamespace(acknowledged=lambda links: next(told) if links == {A, B} else -1)
    arm = SimpleNamespace(
        placement=SimpleNamespace(ranks=2),
        transport=Transport.TCP,
        instances=(),
        guests=(),
        trial=SimpleNamespace(directory="/run/t"),
    )
    return TransportWatch(cast(RunningArm, arm), network)


def test_connections_that_carry_nothing_are_for_show(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(monkeypatch, 640, 640)
    watch.look(connected=True)
    with pytest.raises(TransportDiffers, match="carried nothing"):
        watch.worked()


@pytest.mark.parametrize(("told", "found"), [((640, 1640), 1000), ((None, 5), None), ((640, None), None)])
def test_tcp_bytes_between_ranks_are_counted_or_unknown(
    told: tuple[int | None, ...], found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watched(monkeypatch, *told)
    watch.look(connected=True)
    watch.worked()
    assert watch.tcp_bytes == found
    assert watch.words() == SEEN[Transport.TCP]
