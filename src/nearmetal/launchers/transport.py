"""Checks that the ranks communicate by the requested transport. The check uses the kernel's information about
their processes (TCP connections and shared mappings), not the settings of the MPI library."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

from ..errors import TrialFailedError
from ..host.processes.ranks import Link, RankHolds
from ..model.study import Transport
from .places import READ_LOG

SEEN = {
    Transport.TCP: "TCP connections between ranks",
    Transport.SHM: "memory shared by ranks, no TCP between them",
}
"""Text for the record by which an observed transport is described."""
ONE_RANK = "nothing: a single rank sends no message to another"
NOT_SEEN = "nothing: the program ended before its ranks could be inspected"


class TransportDiffers(TrialFailedError):
    """A launch succeeded, but its ranks do not communicate by the transport that their environment
    requires."""


def links_between(held: Mapping[int, RankHolds]) -> frozenset[Link]:
    """Return the TCP connections between ranks. Each connection occurs twice: as seen from either end.

    held: connections and memory of each rank.
    """
    return frozenset(
        link
        for one, other in permutations(held, 2)
        for link in held[one].links
        if (link[1], link[0]) in held[other].links
    )


def verify_transport(
    held: Mapping[int, RankHolds], wanted: Transport, ranks: int, *, connected: bool
) -> str | None:
    """Check the transport of the ranks, and return a text about the observed transport for the record; None
    if it is too early to decide.

    held: connections and memory of each rank whose processes were found.
    wanted: the required transport.
    ranks: number of ranks.
    connected: whether every pair of ranks has already communicated. A connection or shared memory that is
        still missing is then an error.

    Raises TransportDiffers, with the first rank that uses another transport.
    """
    if ranks == 1:
        return ONE_RANK
    links = links_between(held)
    if wanted is Transport.SHM and links:
        local, remote = min(links)
        raise TransportDiffers(
            f"ranks that were to share memory hold a TCP connection ({local} to {remote})", remedy=READ_LOG
        )
    missing = sorted(set(range(ranks)) - set(held))
    if missing:
        if not connected:
            return None
        raise TransportDiffers(
            f"rank {missing[0]} is not among the processes of its environment", remedy=READ_LOG
        )
    for rank in range(ranks):
        if wanted is Transport.TCP:
            found = bool(held[rank].links & links)
            lacks = f"rank {rank} has no TCP connection to another rank, and {wanted} was requested"
        else:
            found = any(held[rank].memory & held[other].memory for other in range(ranks) if other != rank)
            lacks = f"rank {rank} maps no memory in common with another, and {wanted} was requested"
        if not found and connected:
            raise TransportDiffers(lacks, remedy=READ_LOG)
        if not found:
            return None
    return SEEN[wanted]
