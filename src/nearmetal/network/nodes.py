"""The topology of emulated nodes: network namespaces in place of machines, each with its own bridge and an
uplink of limited rate to one switch. No I/O.

A bare node is itself the instance and has the address of its bridge. Containers are connected to the bridge
of their node in one of three ways:

- by one veth pair for each container;
- by macvlan links on device0, one end of a veth pair whose other end, slot0, is a port of the bridge;
- by one veth pair for each container to an Open vSwitch of the node, of which device0 is a port too.

The switch is a bridge if the kernel can delay frames itself (netem) or no delay is requested;
otherwise a relay (nm-box relay)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Interface

from ..model.study import NodeLink
from .shapes import BRIDGE, SEAT, Frame, port, with_checksums
from .topology import HUB, Link, Topology

SWITCH = "switch"
UPLINK = "uplink"
DEVICE, SLOT = "device0", "slot0"
"""The two ends of a veth pair in a node. The macvlan links of the node are on the first end, or the first end
is a port of the node's Open vSwitch. The second end is a port of the node's bridge."""
NODE_SWITCH = "ovs0"
"""Name of a node's Open vSwitch bridge. The usual name, br0, is that of the node's other bridge."""
#: Bytes that may pass an end of a link at once: enough for its rate with the kernel's timers, and little
#: compared with its queue.
BURST = 16 << 10
#: Offloads are off: a real wire carries frames, so nothing may leave a node unsegmented or without its
#: checksum.
_WIRE = {"tso": False, "gso": False, "gro": False, "tx": False}


def node_places(count: int, *, bare: bool) -> tuple[str, ...]:
    """Return the names of the nodes.

    With containers, mpirun runs on the first node, which is therefore the hub. Bare nodes are themselves
    instances.
    """
    first = "node0" if bare else HUB
    return (first, *(f"node{i}" for i in range(1, count)))


def switch_port(node: int) -> str:
    """Return the name of the switch's end of a node's link."""
    return f"link{node}"


def emulated_nodes(
    f: Frame, nodes: Mapping[str, IPv4Interface], link: NodeLink, *, switched: bool
) -> Topology:
    """Return the topology of emulated nodes.

    f.seats: seats of containers, node by node; empty if the nodes are bare.
    f.mode: mode of macvlan if the seats are macvlan links; None if they are ends of veth pairs.
    nodes: address of each node's bridge, by name of the node.
    link: properties of each node's link.
    switched: whether the pairs end in an Open vSwitch of each node, which is made later (switch_ports()).
    """
    links = [Link(at=SWITCH, name=BRIDGE, kind="bridge")]
    for i, (place, address) in enumerate(nodes.items()):
        links.append(Link(at=place, name=BRIDGE, kind="bridge", mtu=f.settings.mtu, address=str(address)))
        links += f.pair(_end(f, link, SWITCH, switch_port(i)), _end(f, link, place, UPLINK))
    places, each = tuple(nodes), len(f.seats) // len(nodes)
    inner: list[Link] = []
    if f.mode is not None or switched:
        for place in places:
            slot = replace(f.inner(place, SLOT, "veth"), master=BRIDGE)
            inner += f.pair(slot, f.inner(place, DEVICE, "end"))
    for i, _ in enumerate(f.seats):
        place = places[i // each]
        if f.mode is not None:
            stacked = replace(f.own(i, "macvlan"), over=DEVICE, made_at=place)
            inner.append(replace(stacked, options={"macvlan_mode": f.mode}))
        else:
            outer = replace(f.inner(place, port(i), "veth"), master=None if switched else BRIDGE)
            inner += f.pair(outer, f.own(i, "end"))
    return Topology(
        places=(*places, SWITCH, *f.seats),
        links=(*links, *(with_checksums(inner) if switched else inner)),
        routes=tuple(r for seat in range(len(f.seats)) for r in f.tuned(seat)),
        report={
            **dict.fromkeys(places, BRIDGE),
            SWITCH: switch_port(0),
            **dict.fromkeys(f.seats, SEAT),
        },
    )


def switch_ports(topology: Topology, place: str) -> list[str]:
    """Return the interfaces of a node that are ports of its Open vSwitch."""
    own = (link for link in topology.links if link.at == place and link.master is None)
    return [link.name for link in own if link.kind in ("veth", "end")]


def _end(f: Frame, link: NodeLink, at: str, name: str) -> Link:
    """Return one end of a node's link.

    Both ends limit the rate. The whole delay is applied at the switch's end, in the direction of the node.
    """
    return Link(
        at=at,
        name=name,
        kind="veth",
        master=BRIDGE,
        mtu=f.settings.mtu,
        offloads=_WIRE,
        rate=link.rate,
        queue=link.queue,
        burst=BURST,
        delay=link.delay if at == SWITCH and link.delay else None,
    )
