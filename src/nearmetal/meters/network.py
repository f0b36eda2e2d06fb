"""Counts the network traffic of one running arm over the trial and over the timed parts of each workload. If
segments were lost, also records its TCP connections.

Only arms whose ranks use TCP, or whose instances are on a network built by nearmetal, are counted. Ranks on
the bare machine that share memory use no network. Native ranks over loopback use the machine's own network,
so their counters, in scope 'node', include the traffic of other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager

from ..host.counters.network_files import PROBES, RETRANSMITTED
from ..host.counters.network_meter import MARKED, PROTOCOLS, QDISCS, NetworkMeter, grown
from ..model.record import Connection
from ..model.scope import HUB, NODE, Scope
from ..model.study import Attachment, Transport
from ..network.build import Network
from ..node.arms.running_arm import RunningArm

Counters = dict[str, float | None]

KEPT_CONNECTIONS = 64
"""Maximum number of connections in the record of a trial. Those with the most retransmissions are
recorded."""

_LINKS = ("dev", QDISCS)
_OWN = (PROTOCOLS, *_LINKS)
_SOFTNET = ("softnet_stat",)
_LOOPBACK = "127."


class NetworkWatch:
    """A meter of the network of one running arm (contract.Meter).

    shared: whether the arm uses the machine's own network, whose counters include the traffic of other arms
        and programs.
    """

    def __init__(self, arm: RunningArm, stack: ExitStack) -> None:
        self.shared, self._points = _points(arm, stack)
        self._tcp = [point for point in self._points if point.tcp is not None]
        self._timed: dict[Scope, Counters] = {}
        self._connections: dict[tuple[Scope, str, str], Connection] | None = None

    @contextmanager
    def timed(self, workload: str, *, since_last: bool = False) -> Iterator[None]:
        """Count the traffic from entry to exit as that of the timed part of a workload.

        since_last: whether to count from the last mark of the same network, instead of reading the counters
            on entry.
        """
        tcp = [point.meter for point in self._tcp]
        before = [meter.last_mark if since_last else meter.mark() for meter in tcp]
        try:
            yield
        finally:
            after = [meter.mark() for meter in tcp]
            zero: Counters = dict.fromkeys(MARKED, 0.0 if tcp else None)
            total = self._timed.setdefault(Scope.timed(workload), zero)
            for name in MARKED:
                for first, last in zip(before, after, strict=True):
                    total[name] = _plus(total[name], first[name], last[name])

    def mark(self) -> None:
        for point in self._tcp:
            point.meter.mark()

    def look(self) -> None:
        """Record the state of the TCP connections if a segment was lost since the beginning. Call this while
        the connections exist.

        Otherwise nothing is read, because that would be too expensive. For connections that no longer exist,
        the last recorded state is kept.
        """
        for point in self._points:
            if point.tcp is None or not point.lost():
                continue
            found = point.meter.connections(point.scope)
            if found is None:
                continue
            held = self._connections = self._connections or {}
            for c in found:
                # The machine's own network has many connections of other programs: keep only those with
                # retransmissions.
                ours = bool(c.retransmitted) or not self.shared
                if ours and point.tcp(_address(c.local), _address(c.remote)):
                    held[point.scope, c.local, c.remote] = c

    def acknowledged(self, links: Set[tuple[str, str]]) -> int | None:
        """Return the total of bytes that these connections have delivered so far; None if the kernel does not
        report this for every connection.

        links: local and remote end of each connection, 'ADDRESS:PORT'.
        """
        total = known = 0
        for point in self._tcp:
            for c in point.meter.connections(point.scope) or ():
                if (c.local, c.remote) in links and c.bytes_acked is not None:
                    total += c.bytes_acked
                    known += 1
        return total if known == len(links) else None

    @property
    def connections(self) -> tuple[Connection, ...] | None:
        """See TrialRecord.connections."""
        if self._connections is None:
            return None
        worst = sorted(self._connections.values(), key=lambda c: -(c.retransmitted or 0))
        return tuple(worst[:KEPT_CONNECTIONS])

    def close(self) -> dict[Scope, Counters]:
        """Return the counters since the creation of this object; see TrialRecord.network."""
        counters: dict[Scope, Counters] = {}
        for point in self._points:
            counters.setdefault(point.scope, {}).update(point.grown())
        return {**counters, **self._timed}


class _Point:
    """A network namespace in which counters are read.

    scope: scope of the counters in the record.
    sources: kinds of counters to read.
    devices: names of the devices to count; None for all.
    tcp: returns whether a TCP connection belongs to the arm, given its local and its remote address; None if
        the ranks have no connections in this namespace.
    """

    def __init__(
        self,
        scope: Scope,
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
        """Return whether a segment was retransmitted since the beginning, apart from tail loss probes."""
        now = self.meter.mark()
        again, probes = (_plus(0.0, self._first.get(n), now[n]) for n in (RETRANSMITTED, PROBES))
        return again is not None and again > (probes or 0)

    def grown(self) -> Counters:
        return grown(self._first, self._counters())

    def _counters(self) -> Counters:
        return self.meter.counters(self._sources, self._devices)


def watch_network(arm: RunningArm, stack: ExitStack) -> NetworkWatch | None:
    """Begin to count the network of an arm. Returns None if the arm uses no network, or runs on other
    machines, whose networks are not counted.

    stack: receives the clean-up of everything that is opened here.
    """
    if (arm.transport is not Transport.TCP and arm.trial.network is None) or arm.placement.node.remote:
        return None
    return NetworkWatch(arm, stack)


def _points(arm: RunningArm, stack: ExitStack) -> tuple[bool, list[_Point]]:
    """Return whether an arm uses the machine's own network, and the points at which its traffic is
    counted."""
    node = arm.node.network_meter
    environment = arm.environment
    if environment.inside is not None:
        return False, []  # traffic inside a guest is counted by the guest's own kernel
    capabilities = arm.node.backends[environment.backend].capabilities
    own = "net" in capabilities.own and environment.attachment is not Attachment.HOST
    network = arm.trial.network
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
        for instance, seat in zip(arm.instances, network.seats, strict=True):
            meter = network.meters.get(seat.netns)
            if meter is not None:
                between = _between(seat.address, network.hub_address if network.hub_apart else "")
                points.append(_Point(Scope.instance(instance.hostname), meter, _OWN, tcp=between))
        return False, points
    if capabilities.virtual:
        return False, points  # traffic inside a guest is counted by the guest's own kernel
    for instance in arm.instances:
        meter = NetworkMeter.of_process(instance.pid)
        stack.callback(meter.close)
        points.append(_Point(Scope.instance(instance.hostname), meter, _OWN, tcp=_over_loopback))
    return False, points


def _between_nodes(network: Network) -> list[_Point]:
    """Return points for the switch of emulated nodes, and for those nodes that are not instances
    themselves."""
    e = network.emulation
    if e is None:
        return []
    seats = {seat.netns for seat in network.seats}
    places = {**{name: path for name, path in e.nodes.items() if path not in seats}, "switch": e.switch}
    found = {Scope(kind=name): network.meters.get(path) for name, path in places.items()}
    return [_Point(scope, meter, _LINKS) for scope, meter in found.items() if meter is not None]


def _over_loopback(local: str, remote: str) -> bool:
    return local.startswith(_LOOPBACK)


def _between(own: str, hub: str) -> Callable[[str, str], bool]:
    """Return a predicate on the local and the remote address of a connection: whether it belongs to an
    instance and does not lead to mpirun in the hub.

    own: address of the instance.
    hub: address of the hub; '' for a network without a hub.
    """
    return lambda local, remote: local == own and remote != hub


def _address(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]


def _plus(total: float | None, first: float | None, last: float | None) -> float | None:
    return None if total is None or first is None or last is None or last < first else total + last - first
