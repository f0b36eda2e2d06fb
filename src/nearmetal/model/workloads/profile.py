"""The time of an MPI rank by call and by peer, as recorded by libnm-profile.so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class CallProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """All calls of one MPI function.

    seconds: time spent inside the calls.
    bytes: bytes passed to MPI for other ranks.
    """

    count: int
    seconds: float
    bytes: int


class PeerProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Messages from one rank to another.

    rank: rank in MPI_COMM_WORLD; -1 for all ranks outside it.
    """

    rank: int
    messages: int
    bytes: int


class RankProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The time of one MPI rank, in seconds: before MPI_Init, in MPI_Init, computing, in communication calls,
    and in MPI_Finalize. The sum is the lifetime of the process, except for its exit.

    complete: whether the rank reached MPI_Finalize.
    peers: point-to-point and one-sided messages sent by the rank, except those inside collective calls.
    """

    rank: int
    complete: bool
    before: float
    init: float
    compute: float
    communication: float
    finalize: float
    calls: Mapping[str, CallProfile]
    peers: tuple[PeerProfile, ...]

    @property
    def seconds(self) -> float:
        return self.before + self.init + self.compute + self.communication + self.finalize

    @property
    def messages(self) -> int:
        """Number of messages sent to single peers."""
        return sum(p.messages for p in self.peers)


def calls_together(many: Iterable[Mapping[str, CallProfile]]) -> dict[str, CallProfile]:
    """Add the calls of several ranks or sections, by function name."""
    out: dict[str, CallProfile] = {}
    for name, call in ((name, call) for calls in many for name, call in calls.items()):
        had = out.get(name, CallProfile(count=0, seconds=0.0, bytes=0))
        out[name] = CallProfile(
            count=had.count + call.count, seconds=had.seconds + call.seconds, bytes=had.bytes + call.bytes
        )
    return out


def peers_together(many: Iterable[Iterable[PeerProfile]]) -> tuple[PeerProfile, ...]:
    """Add the messages of several sections by peer, in the order of ranks."""
    out: dict[int, PeerProfile] = {}
    for peer in (peer for peers in many for peer in peers):
        had = out.get(peer.rank, PeerProfile(rank=peer.rank, messages=0, bytes=0))
        out[peer.rank] = PeerProfile(
            rank=peer.rank, messages=had.messages + peer.messages, bytes=had.bytes + peer.bytes
        )
    return tuple(out[rank] for rank in sorted(out))
