"""A network as data: namespaces, links, routes. plan.py and shapes.py compute it, and the worker builds
exactly this network. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..errors import UsageError
from ..model.record import JsonValue

HUB = "hub"
LONGEST_NAME = 15  # IFNAMSIZ minus the final zero


@dataclass(frozen=True, kw_only=True)
class Link:
    """One network interface.

    at: the network namespace where it is finally placed.
    kind: kind of link as named by the kernel; 'end' for the other end of a veth pair, which is made with the
        pair; 'device' for a device of the machine, which is moved in.
    peer: namespace and name of the other end of a veth pair.
    over: the interface in namespace made_at that it is based on.
    made_at: the namespace in which it is made before it is moved; None for `at`.
    options: attributes by their pyroute2 names.
    master: the bridge that it is a port of.
    hairpin: whether the port may send frames back to their sender's port.
    address: with prefix.
    mtu: bytes; queue_length: packets; None for the kernel's default.
    offloads: whether each is on, by name (see ethtool.switch()).
    rate: bytes per second; None for no limit.
    queue, burst: sizes of the rate limiter's queue and of its burst, in bytes; None for the defaults.
    delay: seconds by which outgoing frames are delayed. If the kernel cannot do this (netem), the interface
        is not made a port of master.
    """

    at: str
    name: str
    kind: str
    peer: tuple[str, str] | None = None
    over: str | None = None
    made_at: str | None = None
    options: Mapping[str, str | int] = field(default_factory=dict)
    master: str | None = None
    hairpin: bool = False
    address: str | None = None
    mtu: int | None = None
    queue_length: int | None = None
    offloads: Mapping[str, bool] = field(default_factory=dict)
    rate: float | None = None
    queue: int | None = None
    burst: int | None = None
    delay: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= LONGEST_NAME or set(self.name) & set("/: \t\n"):
            raise UsageError(
                f'"{self.name}" cannot be the name of a network interface',
                remedy=f"1 to {LONGEST_NAME} bytes, without / : and spaces",
            )


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route in one network namespace.

    at: name of the namespace.
    destination: with prefix.
    via: address of a gateway; None if the destination is on the link itself.
    rto_min: shortest retransmission timeout of TCP, in seconds.
    """

    at: str
    destination: str
    interface: str
    via: str | None = None
    rto_min: float | None = None
    congestion_control: str | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """All parts of a network.

    places: the namespaces; if there is a hub, it comes before the seats.
    links: the links, in the order in which they are made.
    routes: routes that replace those made by the kernel.
    forwarding: the namespaces whose kernel forwards packets.
    report: for each namespace, the interface whose facts are read back.
    """

    places: tuple[str, ...]
    links: tuple[Link, ...]
    routes: tuple[Route, ...] = ()
    forwarding: tuple[str, ...] = ()
    report: Mapping[str, str]

    def as_json(self) -> dict[str, JsonValue]:
        return asdict(self)
