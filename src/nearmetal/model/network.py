"""Data about networks that packages exchange: requested settings, and a seat on a network that is built
already."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import JsonValue


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of the network interface of each instance; None keeps the kernel's default.

    mode: mode of macvlan and macvtap (bridge, private, vepa, passthru) or of ipvlan (l2, l3).
    devices: devices of the machine; for phys one for each instance, for sriov the physical functions.
    subnet: IPv4 network of the addresses, such as '10.99.0.0/24'.
    rto_min: least retransmission timeout of TCP in seconds.
    rate: bytes per second that an instance may send.
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
        """The offloads to switch on or off, by their ethtool names."""
        every = {"tso": self.tso, "gso": self.gso, "gro": self.gro}
        return {name: value for name, value in every.items() if value is not None}

    def asked(self) -> dict[str, JsonValue]:
        """Return the requested settings by name; empty if there are none."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items() if v not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A place for one instance on a network that is built already.

    netns: path of the network namespace to join.
    address: IPv4 address in that namespace.
    interface: name of the interface in that namespace.
    port: device in the hub that it is connected to; '' if the hub has no device for it alone.
    """

    netns: str
    address: str
    interface: str
    port: str
