"""What the network did to one standing arm: counters over the trial and over the timed parts of each
workload, and its TCP connections where something was lost.

Only of arms whose ranks talk over TCP or whose instances have a network of their own: ranks that share memory
on the bare machine use none. Native ranks over loopback use the machine's own network: what is counted there,
scope 'node', holds the traffic of other programs too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from ..errors import TrialFailedError
from ..host.network_files import PROBES, RETRANSMITTED
from ..host.network_meter import MARKED, PROTOCOLS, QDISCS, NetworkMeter, grown
from ..model.record import Connection
from ..model.scope import HUB, NODE, Scope
from ..model.study import Attachment, Transport
from ..network.build import Network
from .session import Session
from .standing import Standing

Counters = dict[str, float | None]

KEPT_CONNECTIONS = 64
"""Of each trial, those with most retransmissions first."""

_LINKS = ("dev", QDISCS)
_OWN = (PROTOCOLS, *_LINKS)
_SOFTNET = ("softnet_stat",)
_LOOPBACK = "127."


@dataclass(frozen=True, kw_only=True)
class NetworkAccount:
    """See TrialRecord.network and .connections."""

    counters: Mapping[str, Mapping[str, float | None]]
    connections: tuple[Connection, ...] | None


class NetworkWatch:
    """Counts from its creation until close(). shared: the arm's TCP runs over the machine's own network,
    where other arms and programs are counted too."""

    def __init__(self, session: Session, s: Standing, stack: ExitStack) -> None:
        self.shared, self._points = _points(session, s, stack)
        self._timed: dict[str, Counters] = {}
        self._connections: dict[tuple[str, str, str], Connection] | None = None

    @contextmanager
    def timed(self, workload: str, *, since_last: bool = False) -> Iterator[None]:
        """What is counted meanwhile belongs to the timed part of that workload. since_last: begin at the last
        mark of the same network, which is not read anew then."""
        tcp = [point.meter for point in self._points if point.tcp is not None]
        before = [meter.last_mark if since_last else meter.mark() for meter in tcp]
        try:
            yield
        finally:
            after = [meter.mark() for meter in tcp]
            total = self._timed.setdefault(
                str(Scope.timed(workload)), dict.fromkeys(MARKED, 0.0 if tcp else None)
            )
            for name in MARKED:
                for first, last in zip(before, after, strict=True):
                    total[name] = _plus(total[name], first[name], last[name])

    def mark(self) -> None:
        for point in self._points:
            if point.tcp is not None:
                point.meter.mark()

    def look(self) -> None:
        """Ask for the connections while they stand, if anything was lost since the beginning: too dear a
        question where nothing was. What was seen before is kept as it was last."""
        for point in self._points:
            if point.tcp is None or not point.lost():
                continue
            found = point.meter.connections(point.scope)
            if found is None:
                continue
            held = self._connections = self._connections or {}
            for c in found:
                # On the machine's own network stand many that are not ours: only those in trouble.
                ours = bool(c.retransmitted) or not self.shared
                if ours and point.tcp(_address(c.local), _address(c.remote)):
                    held[point.scope, c.local, c.remote] = c

    def acknowledged(self, links: Set[tuple[str, str]]) -> int | None:
        """Bytes that these connections (local and remote end) have brought over so far; None where the kernel
        does not tell of each."""
        total = known = 0
        for point in self._points:
            for c in point.meter.connections(point.scope) or () if point.tcp is not None else ():
                if (c.local, c.remote) in links and c.bytes_acked is not None:
                    total += c.bytes_acked
                    known += 1
        return total if known == len(links) else None

    def close(self) -> NetworkAccount:
        """Everything since the watch was made."""
        counters: dict[str, Counters] = {}
        for point in self._points:
            counters.setdefault(point.scope, {}).update(point.grown())
        worst = sorted((self._connections or {}).values(), key=lambda c: -(c.retransmitted or 0))
        return NetworkAccount(
            counters={**counters, **self._timed},
            connections=None if self._connections is None else tuple(worst[:KEPT_CONNECTIONS]),
        )


class _Point:
    """Where something is counted. devices: those of interest, None for all; tcp: whether a connection
    (local and remote address) is the arm's, None where its ranks hold none."""

    def __init__(
        self,
        scope: str,
        meter: NetworkMeter,
        sources: Sequence[str],
        *,
        devices: frozenset[str] | None = None,
        tcp: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.scope, self.meter, self.tcp = scope, meter, tcp
        self._sources = tuple(sources)
        self._devices = devices
        self._first = self._counters()

    def lost(self) -> bool:
        """Whether a segment was sent again that was no mere probe."""
        now = self.meter.mark()
        again, probes = (_plus(0.0, self._first.get(n), now[n]) for n in (RETRANSMITTED, PROBES))
        return again is not None and again > (probes or 0)

    def grown(self) -> Counters:
        return grown(self._first, self._counters())

    def _counters(self) -> Counters:
        return self.meter.counters(self._sources, self._devices)


@contextmanager
def timed_slices(arms: Iterable[Standing], workload: str) -> Iterator[None]:
    """All slices of a workload on these arms, in turn. What an arm's own network counts meanwhile is the
    arm's; a network that arms share is counted slice by slice (timed_slice)."""
    with ExitStack() as stack:
        for s in arms:
            if s.watch is not None and not s.watch.shared:
                stack.enter_context(s.watch.timed(workload))
        for s in arms:
            if s.watch is not None and s.watch.shared:
                s.watch.mark()
        yield


def timed_slice(s: Standing, workload: str) -> AbstractContextManager[None]:
    """One slice on a network that arms share, from the end of the last slice on it: meanwhile only arms with
    networks of their own were busy."""
    if s.watch is None or not s.watch.shared:
        return nullcontext()
    return s.watch.timed(workload, since_last=True)


def timed_run(s: Standing, workload: str) -> AbstractContextManager[None]:
    """A whole run of a program."""
    return nullcontext() if s.watch is None else s.watch.timed(workload)


def watch_network(session: Session, s: Standing, stack: ExitStack) -> NetworkWatch | None:
    """None for an arm that uses no network. The stack closes what is opened for it."""
    network = session.networks.get((s.arm.name, s.trial.aa))
    if not s.instances or (s.arm.transport is not Transport.TCP and network is None):
        return None
    return NetworkWatch(session, s, stack)


def _points(session: Session, s: Standing, stack: ExitStack) -> tuple[bool, list[_Point]]:
    """Whether the machine's own network is used, and where to count."""
    node = session.node_meter
    environment = s.arm.environment
    if environment.inside is not None:
        return False, []  # what stays inside a guest, its own kernel counts
    own = (
        "net" in session.backends[environment.backend].capabilities.own
        and environment.attachment is not Attachment.HOST
    )
    network = session.networks.get((s.arm.name, s.trial.aa))
    if not own and network is None:
        return True, [_Point(NODE, node, (*_OWN, *_SOFTNET), tcp=_over_loopback)] if node else []
    points = [_Point(NODE, node, _SOFTNET)] if node else []
    if network is not None:
        points += _between_nodes(network)
        apart = network.hub_apart and network.emulation is None
        hub = network.meters.get(network.hub_netns) if apart else None
        if hub is not None:
            devices = frozenset((network.hub_interface, *(seat.port for seat in network.seats)))
            points.append(_Point(HUB, hub, _LINKS, devices=devices))
        for instance, seat in zip(s.instances, network.seats, strict=True):
            meter = network.meters.get(seat.netns)
            if meter is not None:
                between = _between(seat.address, network.hub_address if network.hub_apart else "")
                points.append(_Point(str(Scope.instance(instance.hostname)), meter, _OWN, tcp=between))
        return False, points
    if session.backends[environment.backend].capabilities.virtual:
        return False, points  # what stays inside a guest, its own kernel counts
    for instance in s.instances:
        meter = NetworkMeter.of_process(instance.pid)
        stack.callback(meter.close)
        points.append(_Point(str(Scope.instance(instance.hostname)), meter, _OWN, tcp=_over_loopback))
    return False, points


def _between_nodes(network: Network) -> list[_Point]:
    """The switch of emulated nodes, and the nodes that are no instances themselves."""
    e = network.emulation
    if e is None:
        return []
    seats = {seat.netns for seat in network.seats}
    places = {**{name: path for name, path in e.nodes.items() if path not in seats}, "switch": e.switch}
    return [
        _Point(name, meter, _LINKS) for name, path in places.items() if (meter := network.meters.get(path))
    ]


def _over_loopback(local: str, remote: str) -> bool:
    return local.startswith(_LOOPBACK)


def _between(own: str, hub: str) -> Callable[[str, str], bool]:
    """Connections of the seat with others, but for those with mpirun in the hub ('' where it has none)."""
    return lambda local, remote: local == own and remote != hub


def _address(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]


def _plus(total: float | None, first: float | None, last: float | None) -> float | None:
    return None if total is None or first is None or last is None or last < first else total + last - first


def look_at_network(session: Session, s: Standing) -> None:
    """Once a second while a program runs; the transport of its ranks until it has been seen once.

    Raises TrialFailedError, which ends the program, when the network is gone that it waits for, or its ranks
    talk by what they were not asked to.
    """
    network = session.networks.get((s.arm.name, s.trial.aa))
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(gone, where=str(s.log))
    if s.watch is not None:
        s.watch.look()
    if s.transport is not None and s.transport.seen is None:
        s.transport.look(connected=False)
