"""Do the ranks talk by what was asked for? Judged from what the kernel shows of them, not from what the
library was told."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

from ..errors import TrialFailedError
from ..host.processes.ranks import Link, RankHolds
from ..model.study import Transport

SEEN = {
    Transport.TCP: "TCP connections between ranks",
    Transport.SHM: "memory shared by ranks, no TCP between them",
}
"""What is recorded of a transport that was seen."""
ONE_RANK = "nothing: one rank sends none a message"
NOT_SEEN = "nothing: it ended before its ranks could be looked at"
_LOGS = "read the trial's log"


class TransportDiffers(TrialFailedError):
    """A launch succeeded, but its ranks do not talk by the transport of their arm."""


def links_between(held: Mapping[int, RankHolds]) -> frozenset[Link]:
    """The TCP connections that have a rank at either end, each from both ends."""
    return frozenset(
        link
        for one, other in permutations(held, 2)
        for link in held[one].links
        if (link[1], link[0]) in held[other].links
    )


def verify_transport(
    held: Mapping[int, RankHolds], wanted: Transport, ranks: int, *, connected: bool
) -> str | None:
    """What was seen, for the record; None where it is too early to tell. connected: every pair of ranks has
    talked by now, so that what is not there will not come.

    Raises TransportDiffers naming the first rank that stands out.
    """
    if ranks == 1:
        return ONE_RANK
    links = links_between(held)
    if wanted is Transport.SHM and links:
        local, remote = min(links)
        raise TransportDiffers(
            f"ranks that were to share memory hold a TCP connection ({local} to {remote})", remedy=_LOGS
        )
    missing = sorted(set(range(ranks)) - set(held))
    if missing:
        if not connected:
            return None
        raise TransportDiffers(f"rank {missing[0]} is not among the processes of its arm", remedy=_LOGS)
    for rank in range(ranks):
        if wanted is Transport.TCP:
            found = bool(held[rank].links & links)
            lacks = f"rank {rank} holds no TCP connection with another, and {wanted} was asked for"
        else:
            found = any(held[rank].memory & held[other].memory for other in range(ranks) if other != rank)
            lacks = f"rank {rank} maps no memory in common with another, and {wanted} was asked for"
        if not found and connected:
            raise TransportDiffers(lacks, remedy=_LOGS)
        if not found:
            return None
    return SEEN[wanted]
