"""What passes between the rooms about networks: what is asked of one, and a seat on one that is built
already."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import JsonValue


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What is set at the network interface of each instance; None leaves what the kernel gives.

    mode: of macvlan and macvtap (bridge, private, vepa, passthru) and of ipvlan (l2, l3).
    devices: of the machine; for phys one for each instance, for sriov the physical functions.
    subnet: IPv4 network of the addresses, such as '10.99.0.0/24'.
    rto_min: least retransmission time-out of TCP, seconds.
    rate: bytes a second that an instance may send.
    queue_length: packets.
    tso, gso, gro: offloads.
    """

    mode: str | None = None
    devices: tuple[str, ...] = ()
    subnet: str | None = None
    mtu: int | None = None
    rto_min: float | None = None
    congestion_control: str | None = None
    rate: float | None = None
    queue_length: int | None = None
    tso: bool | None = None
    gso: bool | None = None
    gro: bool | None = None

    @property
    def offloads(self) -> dict[str, bool]:
        """Those that are to be switched, by their ethtool names."""
        every = {"tso": self.tso, "gso": self.gso, "gro": self.gro}
        return {name: value for name, value in every.items() if value is not None}

    def asked(self) -> dict[str, JsonValue]:
        """What was asked for, by name; empty where nothing was."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items() if v not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A place on a network that is built already.

    netns: path of the network namespace to join.
    address: IPv4 address there.
    interface: its name inside.
    port: what it is joined to in the hub, '' where nothing in the hub is its own.
    """

    netns: str
    address: str
    interface: str
    port: str
