"""What the ranks of a standing arm talk by: looked at once they all have talked, and again when they have
worked."""

from __future__ import annotations

from ..host import cgroups
from ..host.ranks import Link, RankHolds, rank_holdings
from ..launchers import JOB_VARIABLE
from ..launchers.transport import NOT_SEEN, TransportDiffers, links_between, verify_transport
from ..model.study import Transport
from ..node.guests import holdings
from ..node.trial import Standing


class TransportWatch:
    """Of one launch. seen: what was seen so far; tcp_bytes: what the ranks sent to each other by TCP between
    the two looks; None where there is none, or the kernel does not tell."""

    def __init__(self, s: Standing) -> None:
        self._standing = s
        self._links: frozenset[Link] = frozenset()
        self._first: int | None = None
        self.seen: str | None = None
        self.tcp_bytes: int | None = None

    def look(self, *, connected: bool) -> None:
        """connected: every pair of ranks has talked. Raises TransportDiffers."""
        s = self._standing
        ranks = s.arm.placement.ranks
        held = {} if ranks == 1 else self._held(f"{JOB_VARIABLE}={s.directory}")
        self.seen = verify_transport(held, s.arm.transport, ranks, connected=connected)
        if s.arm.transport is Transport.TCP:
            self._links = links_between(held)
            self._first = self._acked()

    def _held(self, mark: str) -> dict[int, RankHolds]:
        s = self._standing
        if s.guests:
            return holdings(s, mark)
        held_by = [cgroups.unique(i.cgroups)[:1] for i in s.instances]
        groups = [directory for one in held_by for directory in one] if all(held_by) else []
        return rank_holdings(mark, groups)

    def worked(self) -> None:
        """After the ranks have exchanged messages: connections that carried none of them were for show.

        Raises TransportDiffers.
        """
        last = self._acked()
        if self._first is None or last is None:
            return
        self.tcp_bytes = last - self._first
        if self.tcp_bytes <= 0:
            raise TransportDiffers(
                "the TCP connections between the ranks carried nothing while they worked",
                remedy="read the trial's log",
            )

    def _acked(self) -> int | None:
        watch = self._standing.watch
        return None if watch is None or not self._links else watch.acknowledged(self._links)

    def words(self) -> str:
        return self.seen or NOT_SEEN
