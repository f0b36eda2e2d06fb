"""Network data that several packages use: the settings of a network, and the address of one instance on
it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from typing import TYPE_CHECKING

from ...units import Dimension
from ..keys import (
    COUNT_OR_NONE,
    INTERFACE,
    SOME_TEXT,
    SWITCH,
    WIRE_RATE,
    ListOf,
    ValueMistake,
    ValueType,
    key_made,
    key_or,
    matching,
    quantity,
    scalar,
    whole,
)

if TYPE_CHECKING:
    from ..record import JsonValue


def _read_rto_min(value: object) -> float:
    seconds: float = _RTO_RANGE.read(value)
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-9:
        raise ValueMistake(f'"{scalar(value)[:40]}": the kernel counts it in whole milliseconds')
    return seconds


def _read_subnet(value: object) -> str:
    text = scalar(value)
    try:
        network = IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as e:
        raise ValueMistake(f'"{text[:40]}" is not an IPv4 network such as 192.168.7.0/24') from e
    if not 8 <= network.prefixlen <= 29 or "/" not in text:
        raise ValueMistake(f'"{text[:40]}": write a network of /8 to /29, such as 192.168.7.0/24')
    return str(network)


_RTO_RANGE = quantity(Dimension.TIME, 1e-3, 120)
RTO_MIN = replace(_RTO_RANGE, read=_read_rto_min)
SUBNET = ValueType(_read_subnet, {"type": "string"}, plain=False)


@dataclass(frozen=True, kw_only=True)
class Offloads:
    """Offloads of a network device; None leaves an offload as it is."""

    tso: bool | None = key_or(None, SWITCH, "segmentation of TCP by the device", "off")
    gso: bool | None = key_or(None, SWITCH, "segmentation just before the device", "off")
    gro: bool | None = key_or(None, SWITCH, "merging of segments on receipt", "off")

    def requested(self) -> dict[str, bool]:
        """Return the offloads that must be set, by their names in ethtool."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of the network interface of each instance; None leaves the kernel's default.

    rto_min: in seconds.
    rate: in bytes per second.
    """

    mode: str | None = key_or(
        None,
        SOME_TEXT,
        "mode of macvlan and macvtap: bridge (the default), private, vepa or passthru; of ipvlan: l2"
        " (the default) or l3",
        "vepa",
    )
    devices: tuple[str, ...] = key_or(
        (),
        ListOf(INTERFACE),
        "devices of the machine: for phys one for each instance, for sriov the physical functions",
        ["eth1", "eth2"],
    )
    subnet: str | None = key_or(
        None, SUBNET, "IPv4 network of the addresses; a /24 below 10.99.0.0/16 if omitted", "192.168.7.0/24"
    )
    mtu: int | None = key_or(None, whole(68, 65_535), "largest packet, in bytes", 9000)
    rto_min: float | None = key_or(
        None, RTO_MIN, "least retransmission time-out of TCP, on the route; whole ms", "2 ms"
    )
    congestion_control: str | None = key_or(
        None,
        matching(r"^[a-z0-9_]{1,15}$", "the name of a congestion control, such as cubic", shown=False),
        "congestion control of TCP, on the route: one that the kernel has",
        "cubic",
    )
    rate: float | None = key_or(
        None, WIRE_RATE, "what each instance may send, by a token bucket (tbf)", "1 Gbit/s"
    )
    queue_length: int | None = key_or(None, COUNT_OR_NONE, "transmit queue in packets (txqueuelen)", 100)
    offloads: Offloads = key_made(
        Offloads,
        Offloads,
        "offloads, switched as by ethtool -K; left as they are if omitted",
        {"tso": "off", "gso": "off"},
    )

    def requested(self) -> dict[str, JsonValue]:
        """Return the requested settings by name; empty if there are none."""
        given = {f.name: getattr(self, f.name) for f in fields(self)} | self.offloads.requested()
        del given["offloads"]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items() if v not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class Seat:
    """The connection of one instance to an existing network.

    netns: path of the network namespace that the instance joins.
    address: IPv4 address of the instance.
    interface: name of its interface in that namespace.
    port: device in the hub that the interface is connected to; empty if the hub has no device for this
        interface.
    """

    netns: str
    address: str
    interface: str
    port: str
