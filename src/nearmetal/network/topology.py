"""What a network consists of, as data: namespaces, links, routes. The worker makes it as it stands here; what
is meant by it, plan.py and shapes.py know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..errors import UsageError
from ..model.record import JsonValue

HUB = "hub"
LONGEST_NAME = 15  # IFNAMSIZ, less its end


@dataclass(frozen=True, kw_only=True)
class Link:
    """One network interface.

    at: the network namespace where it ends up.
    kind: as the kernel names it; 'end' for the other end of a veth pair, which is made with it; 'device'
        for a device of the machine, which is moved in.
    peer: namespace and name of the other end of a veth pair.
    over: the interface in namespace made_at that it stands on.
    options: attributes by their pyroute2 names.
    master: the bridge that it is a port of.
    hairpin: whether the port sends back to where a frame came from.
    address: with prefix.
    rate: bytes a second.
    queue, burst: bytes that wait for the rate, and that pass at once; None for the usual ones.
    delay: seconds that what leaves by it is held; where the kernel does that (netem), it is a port of master
        only then.
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

    at: place.
    destination: with prefix.
    via: a gateway, None = on the link itself.
    rto_min: seconds.
    """

    at: str
    destination: str
    interface: str
    via: str | None = None
    rto_min: float | None = None
    congestion_control: str | None = None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Everything that a network is built of.

    places: the namespaces, the seats' after the hub where there is one; links in the order of making.
    routes: replace those that the kernel made.
    forwarding: places that route packets of others.
    report: by place the interface whose facts are read back.
    """

    places: tuple[str, ...]
    links: tuple[Link, ...]
    routes: tuple[Route, ...] = ()
    forwarding: tuple[str, ...] = ()
    report: Mapping[str, str]

    def as_json(self) -> dict[str, JsonValue]:
        """For the worker."""
        return asdict(self)
