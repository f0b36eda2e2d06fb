"""The networks that a run needs: their names and addresses, and the request from which the worker builds
them. No I/O.

All arms with the same attachment and settings share one network, with an address for each of their instances.
An arm has its own network if it uses a single veth pair, devices of the machine, or emulated nodes."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network

from ..errors import UsageError
from ..model.environments.network import NetworkSettings, Seat
from ..model.record import JsonValue
from ..model.study import Attachment, NodeLink
from .nodes import emulated_nodes, node_places
from .shapes import SHAPES, Frame, port
from .topology import HUB, Topology

RANGE = IPv4Network("10.99.0.0/16")
"""Addresses, divided among the networks of a run. Networks in their own namespaces have no route to the
outside, so they cannot clash with those of the machine."""

_PREFIX = 24
MAX_NETWORKS = 1 << (_PREFIX - RANGE.prefixlen)


@dataclass(frozen=True, kw_only=True)
class NetworkRequest:
    """The network that the instances of one arm need.

    devices: devices of the machine selected for the instances, in their order, if they use any.
    nodes: number of nodes to emulate; 1 for none. Instances are in the order of the nodes. Without
        an attachment, the instances are the nodes themselves.
    link: properties of each node's link.
    """

    attachment: Attachment
    settings: NetworkSettings
    instances: int
    devices: tuple[str, ...] = ()
    nodes: int = 1
    link: NodeLink = field(default_factory=NodeLink)


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """One network.

    groups: indexes of the seats (addresses) of each arm.
    hub, hub_address: place and address of mpirun: those of the first seat if there is no separate hub.
    seat_places, addresses: place and address of each seat.
    nodes: places of the emulated nodes; empty if there are none.
    link: properties of the links of emulated nodes.
    """

    attachment: Attachment
    settings: NetworkSettings
    mode: str | None
    topology: Topology
    hub: str
    hub_address: str
    seat_places: tuple[str, ...]
    addresses: tuple[str, ...]
    subnet: str
    groups: tuple[range, ...]
    nodes: tuple[str, ...] = ()
    link: NodeLink = field(default_factory=NodeLink)

    @property
    def hub_interface(self) -> str:
        return self.topology.report[self.hub]

    def seats(self, paths: Mapping[str, str]) -> tuple[Seat, ...]:
        """Return the seats.

        paths: path of each place's namespace.
        """
        ports = {link.name for link in self.topology.links if link.at == HUB}
        return tuple(
            Seat(
                netns=paths[place],
                address=address,
                interface=self.topology.report[place],
                port=port(i) if port(i) in ports else "",
            )
            for i, (place, address) in enumerate(zip(self.seat_places, self.addresses, strict=True))
        )


def plan_networks(wants: Sequence[NetworkRequest]) -> tuple[NetworkPlan, ...]:
    """Return the networks of all requests. Network i serves the requests groups_of(wants)[i].

    Raises UsageError for an impossible network: too many addresses or networks, or a subnet that is too
        small.
    """
    plans: list[NetworkPlan] = []
    used: dict[NetworkSettings, int] = {}
    for members in groups_of(wants):
        first = wants[members[0]]
        number = len(plans)
        if number >= MAX_NETWORKS:
            raise UsageError(
                f"this study needs more than {MAX_NETWORKS} networks, the most that a run can have"
            )
        # Devices with equal settings are on one wire, so a named subnet is shared.
        shared = first.attachment.on_device and first.settings.subnet is not None
        skipped = used.get(first.settings, 0) if shared else 0
        plans.append(_plan(number, [wants[m] for m in members], skipped))
        used[first.settings] = skipped + len(plans[-1].seat_places)
    return tuple(plans)


def groups_of(wants: Sequence[NetworkRequest]) -> tuple[tuple[int, ...], ...]:
    """Return, for each network, the indexes of the requests that share it."""
    out: dict[object, list[int]] = {}
    for i, want in enumerate(wants):
        alone = want.attachment is Attachment.VETH or want.attachment.on_device or want.nodes > 1
        key: object = i if alone else (want.attachment, mode_of(want), want.settings)
        out.setdefault(key, []).append(i)
    return tuple(tuple(members) for members in out.values())


def mode_of(want: NetworkRequest) -> str | None:
    """Return the requested mode, or else the default; None if the attachment has none."""
    return want.settings.mode or next(iter(want.attachment.modes), None)


def _plan(number: int, wants: Sequence[NetworkRequest], skipped: int) -> NetworkPlan:
    first = wants[0]
    if first.nodes > 1:
        return _plan_nodes(number, first)
    count = sum(w.instances for w in wants)
    most = first.attachment.most_instances
    if most is not None and count > most:
        raise UsageError(
            f"attachment {first.attachment.value} connects at most {most} instances, not {count}",
            remedy="attachment: veth-bridge",
        )
    subnet = _subnet(number, first)
    room = subnet.num_addresses - 3 - skipped  # without the network, hub and broadcast addresses
    if not 1 <= count <= room:
        raise UsageError(
            f"attachment {first.attachment.value}: {subnet} has addresses for 1 to {room} instances, "
            f"not {count}",
            remedy="fewer instances, or a larger network: subnet: 10.99.0.0/16",
        )
    names = seat_names(count)
    addresses = tuple(subnet[i + 2 + skipped] for i in range(count))
    frame = Frame(
        number=number,
        settings=first.settings,
        mode=mode_of(first),
        subnet=subnet,
        hub=IPv4Interface(f"{subnet[1]}/{subnet.prefixlen}"),
        seats=names,
        addresses=tuple(IPv4Interface(f"{a}/{subnet.prefixlen}") for a in addresses),
        devices=tuple(d for w in wants for d in w.devices),
    )
    topology = SHAPES[first.attachment](frame)
    apart = HUB in topology.places
    begins = [sum(w.instances for w in wants[:i]) for i in range(len(wants))]
    return NetworkPlan(
        attachment=first.attachment,
        settings=first.settings,
        mode=frame.mode,
        topology=topology,
        hub=HUB if apart else names[0],
        hub_address=str(subnet[1] if apart else addresses[0]),
        seat_places=names,
        addresses=tuple(map(str, addresses)),
        subnet=str(subnet),
        groups=tuple(range(b, b + w.instances) for b, w in zip(begins, wants, strict=True)),
    )


def _plan_nodes(number: int, want: NetworkRequest) -> NetworkPlan:
    """Return the plan of emulated nodes with the instances of one arm."""
    bare = not want.attachment.seated
    mode = mode_of(want)
    if not bare and not want.attachment.across_nodes(mode):
        what = want.attachment.value + (f" in mode {mode}" if mode else "")
        raise UsageError(
            f"emulated nodes connect instances by veth-bridge, macvlan or ovs, not by {what}",
            remedy="attachment: veth-bridge, or nodes: 1",
        )
    subnet = _subnet(number, want)
    seats = 0 if bare else want.instances
    if want.nodes + seats > subnet.num_addresses - 2:
        raise UsageError(
            f"{subnet} has no addresses for {want.nodes} nodes and {want.instances} instances",
            remedy="fewer instances, or a larger network: subnet: 10.99.0.0/16",
        )
    own = [IPv4Interface(f"{subnet[i + 1]}/{subnet.prefixlen}") for i in range(want.nodes + seats)]
    nodes = dict(zip(node_places(want.nodes, bare=bare), own, strict=False))
    places, names = tuple(nodes), seat_names(seats)
    frame = Frame(
        number=number,
        settings=want.settings,
        mode=mode,
        subnet=subnet,
        hub=own[0],
        seats=names,
        addresses=tuple(own[want.nodes :]),
    )
    return NetworkPlan(
        attachment=want.attachment,
        settings=want.settings,
        mode=mode,
        topology=emulated_nodes(frame, nodes, want.link, switched=want.attachment is Attachment.OVS),
        hub=places[0],
        hub_address=str(own[0].ip),
        seat_places=places if bare else names,
        addresses=tuple(str(a.ip) for a in (nodes.values() if bare else frame.addresses)),
        subnet=str(subnet),
        groups=(range(want.instances),),
        nodes=places,
        link=want.link,
    )


def _subnet(number: int, want: NetworkRequest) -> IPv4Network:
    if want.settings.subnet is not None:
        return IPv4Network(want.settings.subnet)
    return IPv4Network((int(RANGE[number << (RANGE.max_prefixlen - _PREFIX)]), _PREFIX))


def seat_names(count: int) -> tuple[str, ...]:
    """Return names for the addresses of instances: 'a' to 'z', then 'aa', 'ab', ... 'aaa', as the columns of
    a spreadsheet."""
    return tuple(_letters(i) for i in range(count))


def _letters(i: int) -> str:
    out = ""
    while i >= 0:
        out = string.ascii_lowercase[i % 26] + out
        i = i // 26 - 1
    return out


def labelled(plan_number: int, label: str) -> str:
    """Return the label of one network of a run."""
    return f"{label}-net{plan_number}"


def request(
    label: str,
    plans: Sequence[NetworkPlan],
    paths: Sequence[Mapping[str, str]],
    *,
    create: Sequence[str],
    meters: int | None = None,
) -> dict[str, JsonValue]:
    """Return the request for the worker.

    paths: path of each namespace, by plan and place.
    create: names of the namespaces to make first (below /run/netns).
    meters: descriptor of a Unix socket that receives the meter descriptors of each namespace, network by
        network in the order of their places.
    """
    return {
        "create": list(create),
        "meters": meters,
        "networks": [
            {"label": labelled(i, label), "paths": dict(own), **plan.topology.as_json()}
            for i, (plan, own) in enumerate(zip(plans, paths, strict=True))
        ],
    }
