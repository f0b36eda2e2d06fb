"""The topology of each attachment: the links and routes that connect the instances with each other and with
the hub. No I/O.

Every function makes a Topology from a Frame of names and addresses. The interface of an instance is eth0,
except that a device of the machine keeps its name. A seat is the namespace and address of one instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Interface, IPv4Network

from ..model.environments.network import NetworkSettings
from ..model.study import Attachment
from .topology import HUB, Link, Route, Topology

BRIDGE = "br0"
SEAT = "eth0"
HUB_PORT = "hubport"  # port of Open vSwitch whose other end, hub0, has the hub's address
VXLAN_PORT = 4789  # port assigned by IANA
VXLAN_HEADERS = 50  # bytes before the inner Ethernet frame's payload: Ethernet 14, IPv4 20, UDP 8, VXLAN 8
ETHERNET_MTU = 1500
_BELOW = (IPv4Network("10.98.0.0/16"), IPv4Network("172.31.0.0/16"))
#: In these modes, links on one device cannot reach each other, so each seat gets its own device.
_ALONE_ON_DEVICE = ("private", "passthru")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The names and addresses from which a topology is made.

    number: number of the network in its run, from 0.
    mode: mode of the attachment; None for an attachment without modes.
    seats: names of the seats' places.
    hub, addresses: addresses of the hub and of each seat, with the prefix of the subnet.
    devices: devices of the machine, by seat.
    """

    number: int
    settings: NetworkSettings
    mode: str | None
    subnet: IPv4Network
    hub: IPv4Interface
    seats: tuple[str, ...]
    addresses: tuple[IPv4Interface, ...]
    devices: tuple[str, ...] = ()

    def own(self, seat: int, kind: str) -> Link:
        """Return the interface of a seat, with all requested settings."""
        return replace(
            self.inner(self.seats[seat], SEAT, kind),
            address=str(self.addresses[seat]),
            rate=self.settings.rate,
        )

    def inner(self, at: str, name: str, kind: str) -> Link:
        """Return an interface on the path between two seats, with the requested MTU, queue length and
        offloads."""
        s = self.settings
        return Link(
            at=at,
            name=name,
            kind=kind,
            mtu=s.mtu,
            queue_length=s.queue_length,
            offloads=s.offloads.requested(),
        )

    def bridge(self) -> Link:
        """Return the hub's bridge, with the hub's address."""
        return Link(at=HUB, name=BRIDGE, kind="bridge", mtu=self.settings.mtu, address=str(self.hub))

    def pair(self, port: Link, end: Link) -> tuple[Link, Link]:
        """Return a veth pair with these two ends."""
        return replace(port, kind="veth", peer=(end.at, end.name)), replace(end, kind="end")

    def tuned(self, seat: int, interface: str = SEAT, *, via: str | None = None) -> tuple[Route, ...]:
        """Return the explicit route from a seat to the others. Empty if no setting and no gateway requires
        one."""
        s = self.settings
        if via is None and s.rto_min is None and s.congestion_control is None:
            return ()
        return (
            Route(
                at=self.seats[seat],
                destination=str(self.subnet),
                interface=interface,
                via=via,
                rto_min=s.rto_min,
                congestion_control=s.congestion_control,
            ),
        )

    def with_hub(self, *links: Link, hub: str = BRIDGE) -> Topology:
        """Return the topology of links that give every seat its eth0.

        hub: name of the interface that has the hub's address.
        """
        return Topology(
            places=(HUB, *self.seats),
            links=links,
            routes=tuple(r for seat in range(len(self.seats)) for r in self.tuned(seat)),
            report={HUB: hub, **dict.fromkeys(self.seats, SEAT)},
        )


def port(seat: int) -> str:
    """Return the name of the hub's end of a seat's link."""
    return f"port{seat}"


def veth(f: Frame) -> Topology:
    """Make one pair: between two seats, or between one seat and the hub."""
    if len(f.seats) == 1:
        hub = replace(f.inner(HUB, port(0), "veth"), address=str(f.hub))
        return f.with_hub(*f.pair(hub, f.own(0, "end")), hub=port(0))
    report = dict.fromkeys(f.seats, SEAT)
    return replace(f.with_hub(*f.pair(f.own(0, "veth"), f.own(1, "end"))), places=f.seats, report=report)


def veth_bridge(f: Frame) -> Topology:
    """Make a bridge in the hub, and a pair from it to each seat."""
    links = [f.bridge()]
    for i in range(len(f.seats)):
        links += f.pair(_bridged(f, port(i)), f.own(i, "end"))
    return f.with_hub(*links)


def veth_routed(f: Frame) -> Topology:
    """Make a pair from the hub to each seat, without a shared link: the hub forwards by its routing table.

    The hub's own address is on a bridge without ports, and is reachable through every pair.
    """
    links, routes = [f.bridge()], []
    for i, seat in enumerate(f.seats):
        alone = f"{f.addresses[i].ip}/32"
        links += f.pair(f.inner(HUB, port(i), "veth"), replace(f.own(i, "end"), address=alone))
        routes.append(Route(at=HUB, destination=alone, interface=port(i)))
        routes.append(Route(at=seat, destination=f"{f.hub.ip}/32", interface=SEAT))
        routes += f.tuned(i, via=str(f.hub.ip))
    hub = replace(links[0], address=f"{f.hub.ip}/32")
    return replace(f.with_hub(hub, *links[1:]), routes=tuple(routes), forwarding=(HUB,))


def on_pairs(f: Frame, kind: str) -> Topology:
    """Make a macvlan or macvtap link for each seat, all on one device. The device is one end of a veth pair
    whose other end is a port of the hub's bridge, as a network card is connected to a switch.

    In mode vepa that port sends frames back (IEEE 802.1Qbg). In modes private and passthru each seat has a
    device of its own. A guest exchanges frames with a macvtap through its character device.

    kind: 'macvlan' or 'macvtap'.
    """
    assert f.mode is not None
    links = [f.bridge()]
    for i in range(len(f.seats)):
        device = f"device{i if f.mode in _ALONE_ON_DEVICE else 0}"
        if device == f"device{i}":
            way = replace(_bridged(f, port(i)), hairpin=f.mode == "vepa")
            links += f.pair(way, f.inner(HUB, device, "end"))
        links.append(_stacked(f, i, kind, device, f"{kind}_mode", f.mode))
    return f.with_hub(*links)


def ipvlan(f: Frame) -> Topology:
    """Make the same topology as on_pairs(), but with one Ethernet address for all seats.

    The hub has such a link too, since in mode l3 the seats do not answer to a bridge.
    """
    assert f.mode is not None
    over, hub = "device0", "hub0"
    number = Attachment.IPVLAN.modes.index(f.mode)
    links = [*f.pair(f.inner(HUB, port(0), "veth"), f.inner(HUB, over, "end"))]
    links.append(
        replace(
            f.inner(HUB, hub, "ipvlan"),
            over=over,
            made_at=HUB,
            options={"ipvlan_mode": number},
            address=str(f.hub),
        )
    )
    links += [_stacked(f, i, "ipvlan", over, "ipvlan_mode", number) for i in range(len(f.seats))]
    return f.with_hub(*links, hub=hub)


def vxlan(f: Frame) -> Topology:
    """Make eth0 of each seat the end of a VXLAN tunnel. The tunnels run over a veth pair from each seat to
    the hub's bridge, and the hub has a tunnel end too. Addresses are learned by multicast (RFC 7348)."""
    mtu = (f.settings.mtu or ETHERNET_MTU - VXLAN_HEADERS) + VXLAN_HEADERS
    below = _below(f)
    prefix = below.prefixlen
    links = [replace(f.bridge(), mtu=mtu, address=f"{below[1]}/{prefix}")]
    for i in range(len(f.seats)):
        outer = replace(f.inner(f.seats[i], "under0", "end"), mtu=mtu, address=f"{below[i + 2]}/{prefix}")
        links += f.pair(replace(_bridged(f, port(i)), mtu=mtu), outer)
        links.append(_tunnel(f, f.own(i, "vxlan"), "under0"))
    hub = replace(f.inner(HUB, "vxlan0", "vxlan"), address=str(f.hub))
    return f.with_hub(*links, _tunnel(f, hub, BRIDGE), hub="vxlan0")


def ovs(f: Frame) -> Topology:
    """Make pairs whose ends in the hub become ports of Open vSwitch (openvswitch.py), which also makes the
    bridge."""
    hub = replace(f.inner(HUB, "hub0", "end"), address=str(f.hub))
    links = [*f.pair(f.inner(HUB, HUB_PORT, "veth"), hub)]
    for i in range(len(f.seats)):
        links += f.pair(f.inner(HUB, port(i), "veth"), f.own(i, "end"))
    return f.with_hub(*with_checksums(links), hub="hub0")


def with_checksums(links: Iterable[Link]) -> list[Link]:
    """Return the links without checksum offload, so that every packet carries its checksum. Open vSwitch in
    user space does not add missing checksums."""
    return [replace(link, offloads={"tx": False, **link.offloads}) for link in links]


def on_devices(f: Frame) -> Topology:
    """Use devices of the machine, one for each seat: physical ones, or virtual functions of SR-IOV."""
    links = [replace(f.own(i, "device"), name=device) for i, device in enumerate(f.devices)]
    routes = [r for i, device in enumerate(f.devices) for r in f.tuned(i, device)]
    report = dict(zip(f.seats, f.devices, strict=True))
    return Topology(places=f.seats, links=tuple(links), routes=tuple(routes), report=report)


def _bridged(f: Frame, name: str) -> Link:
    return replace(f.inner(HUB, name, "veth"), master=BRIDGE)


def _stacked(f: Frame, seat: int, kind: str, device: str, key: str, mode: str | int) -> Link:
    return replace(f.own(seat, kind), over=device, made_at=HUB, options={key: mode})


def _below(f: Frame) -> IPv4Network:
    """Return a network for the outer addresses of tunnels, as large as the inner network and separate from
    it."""
    base = next(b for b in _BELOW if not b.overlaps(f.subnet))
    prefix = max(base.prefixlen, min(f.subnet.prefixlen, 24))
    number = f.number if prefix == 24 else 0
    return IPv4Network((int(base[0]) + (number << 8), prefix))


def _tunnel(f: Frame, link: Link, over: str) -> Link:
    options: Mapping[str, str | int] = {
        "vxlan_id": f.number + 1,
        "vxlan_group": f"239.99.{f.number // 256}.{f.number % 256}",
        "vxlan_port": VXLAN_PORT,
    }
    return replace(link, over=over, made_at=link.at, options=options)


SHAPES: Mapping[Attachment, Callable[[Frame], Topology]] = {
    Attachment.VETH: veth,
    Attachment.VETH_BRIDGE: veth_bridge,
    Attachment.VETH_ROUTED: veth_routed,
    Attachment.MACVLAN: partial(on_pairs, kind="macvlan"),
    Attachment.MACVTAP: partial(on_pairs, kind="macvtap"),
    Attachment.IPVLAN: ipvlan,
    Attachment.VXLAN: vxlan,
    Attachment.OVS: ovs,
    Attachment.PHYS: on_devices,
    Attachment.SRIOV: on_devices,
}
