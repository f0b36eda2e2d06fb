"""Checks by which transport the ranks of a running arm communicate: once when all of them have exchanged
messages, and again at the end of their work."""

from __future__ import annotations

from ..host import cgroups
from ..host.processes.ranks import Link, RankHolds, rank_holdings
from ..launchers import JOB_VARIABLE
from ..launchers.places import READ_LOG
from ..launchers.transport import NOT_SEEN, TransportDiffers, links_between, verify_transport
from ..model.study import Transport
from ..node.arms.running_arm import RunningArm
from ..node.guests import holdings
from .network import NetworkWatch


class TransportWatch:
    """Checks the transport of the programs that one arm launches.

    launched: whether the arm has launched an MPI program.
    seen: text about the transport that was observed; None if none was observed so far.
    tcp_bytes: bytes that the ranks sent to each other by TCP between the two checks; None if they do not use
        TCP, or if the kernel does not report the bytes.
    """

    def __init__(self, arm: RunningArm, network: NetworkWatch | None) -> None:
        self._arm, self._network = arm, network
        self._links: frozenset[Link] = frozenset()
        self._first: int | None = None
        self.launched = False
        self.seen: str | None = None
        self.tcp_bytes: int | None = None

    def look(self, *, connected: bool) -> None:
        """Check by which transport the ranks communicate.

        connected: whether every pair of ranks has already exchanged messages.
        Raises TransportDiffers if this is not the required one.
        """
        arm = self._arm
        ranks = arm.placement.ranks
        held = {} if ranks == 1 else self._held(f"{JOB_VARIABLE}={self._arm.trial.directory}")
        self.seen = verify_transport(held, arm.transport, ranks, connected=connected)
        if arm.transport is Transport.TCP:
            self._links = links_between(held)
            self._first = self._acked()

    def _held(self, mark: str) -> dict[int, RankHolds]:
        if self._arm.guests:
            return holdings(self._arm.guests, mark)
        held_by = [cgroups.unique(i.cgroups)[:1] for i in self._arm.instances]
        groups = [directory for one in held_by for directory in one] if all(held_by) else []
        return rank_holdings(mark, groups)

    def worked(self) -> None:
        """Check that data was sent through the TCP connections between the ranks since look(). Call this at
        the end of their work.

        Raises TransportDiffers if no data was sent.
        """
        last = self._acked()
        if self._first is None or last is None:
            return
        self.tcp_bytes = last - self._first
        if self.tcp_bytes <= 0:
            raise TransportDiffers(
                "the TCP connections between the ranks carried nothing while they worked", remedy=READ_LOG
            )

    def _acked(self) -> int | None:
        if self._network is None or not self._links:
            return None
        return self._network.acknowledged(self._links)

    def words(self) -> str:
        """Return a text about the observed transport, for the record."""
        return self.seen or NOT_SEEN
