"""Which networks a run needs: names, addresses and seats of each, and the request that the worker builds them
from. Pure.

One network for all arms of the same attachment and settings, with a seat for each of their instances; but one
for each arm where the attachment joins its instances to each other and to nothing else."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network

from ..errors import UsageError
from ..model.environments.network import NetworkSettings, Seat
from ..model.record import JsonValue
from ..model.study import Attachment, NodeLink
from .nodes import Nodes, emulated_nodes, node_places
from .shapes import SHAPES, Frame, port
from .topology import HUB, Topology

RANGE = IPv4Network("10.99.0.0/16")
"""Divided among the networks of a run. Where these stand in namespaces of their own, no route leads out of
them, so it cannot clash with the machine's."""

_PREFIX = 24
MAX_NETWORKS = 1 << (_PREFIX - RANGE.prefixlen)


@dataclass(frozen=True, kw_only=True)
class Want:
    """What the instances of one arm need.

    devices: those that were found for them, by instance, where they take devices of the machine.
    nodes: more than one are emulated, their instances in the order of the nodes and, without an attachment of
        their own, the nodes themselves.
    link: of each node.
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

    groups: the seats of each arm, as numbers.
    hub: the place where mpirun runs, of which the address is hub_address: the seats' own first one where
        there is no hub apart.
    nodes: places of the emulated ones, with their link, none where nothing is emulated.
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
        """paths: of the namespace of each place."""
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


def plan_networks(wants: Sequence[Want]) -> tuple[NetworkPlan, ...]:
    """The networks in order; their groups, one after the other, are the wants in their order by network
    (groups_of). Raises UsageError for what no network can be: too many seats or networks, no room in a
    subnet."""
    plans: list[NetworkPlan] = []
    used: dict[NetworkSettings, int] = {}
    for members in groups_of(wants):
        first = wants[members[0]]
        number = len(plans)
        if number >= MAX_NETWORKS:
            raise UsageError(f"a run holds at most {MAX_NETWORKS} networks, and this study asks for more")
        # Devices of like settings are on one wire, and there a subnet that was named is one.
        shared = first.attachment.on_device and first.settings.subnet is not None
        skipped = used.get(first.settings, 0) if shared else 0
        plans.append(_plan(number, [wants[m] for m in members], skipped))
        used[first.settings] = skipped + len(plans[-1].seat_places)
    return tuple(plans)


def groups_of(wants: Sequence[Want]) -> tuple[tuple[int, ...], ...]:
    """By network, which wants stand on it."""
    out: dict[object, list[int]] = {}
    for i, want in enumerate(wants):
        alone = want.attachment is Attachment.VETH or want.attachment.on_device or want.nodes > 1
        key: object = i if alone else (want.attachment, mode_of(want), want.settings)
        out.setdefault(key, []).append(i)
    return tuple(tuple(members) for members in out.values())


def mode_of(want: Want) -> str | None:
    """The mode asked for, else the usual one; None where the attachment has none."""
    return want.settings.mode or next(iter(want.attachment.modes), None)


def _plan(number: int, wants: Sequence[Want], skipped: int) -> NetworkPlan:
    first = wants[0]
    if first.nodes > 1:
        return _plan_nodes(number, first)
    count = sum(w.instances for w in wants)
    most = first.attachment.most_instances
    if most is not None and count > most:
        raise UsageError(
            f"attachment {first.attachment.value} joins at most {most} instances, not {count}",
            remedy="veth-bridge",
        )
    subnet = _subnet(number, first)
    room = subnet.num_addresses - 3 - skipped  # the network, the hub, the broadcast
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


def _plan_nodes(number: int, want: Want) -> NetworkPlan:
    """Emulated nodes with the instances of one arm."""
    bare = not want.attachment.seated
    if not bare and want.attachment is not Attachment.VETH_BRIDGE:
        raise UsageError(
            f"emulated nodes join instances by veth-bridge, not by {want.attachment.value}",
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
    nodes = Nodes(
        places=node_places(want.nodes, bare=bare), addresses=tuple(own[: want.nodes]), link=want.link
    )
    names = seat_names(seats)
    frame = Frame(
        number=number,
        settings=want.settings,
        mode=None,
        subnet=subnet,
        hub=own[0],
        seats=names,
        addresses=tuple(own[want.nodes :]),
    )
    return NetworkPlan(
        attachment=want.attachment,
        settings=want.settings,
        mode=None,
        topology=emulated_nodes(frame, nodes),
        hub=nodes.places[0],
        hub_address=str(own[0].ip),
        seat_places=nodes.places if bare else names,
        addresses=tuple(str(a.ip) for a in (nodes.addresses if bare else frame.addresses)),
        subnet=str(subnet),
        groups=(range(want.instances),),
        nodes=nodes.places,
        link=want.link,
    )


def _subnet(number: int, want: Want) -> IPv4Network:
    if want.settings.subnet is not None:
        return IPv4Network(want.settings.subnet)
    return IPv4Network((int(RANGE[number << (RANGE.max_prefixlen - _PREFIX)]), _PREFIX))


def seat_names(count: int) -> tuple[str, ...]:
    """'a' to 'z', then 'aa', 'ab', ... 'aaa': as the columns of a spreadsheet."""
    return tuple(_letters(i) for i in range(count))


def _letters(i: int) -> str:
    out = ""
    while i >= 0:
        out = string.ascii_lowercase[i % 26] + out
        i = i // 26 - 1
    return out


def labelled(plan_number: int, label: str) -> str:
    """The label of one network of a run, on everything of it."""
    return f"{label}-net{plan_number}"


def request(
    label: str,
    plans: Sequence[NetworkPlan],
    paths: Sequence[Mapping[str, str]],
    *,
    create: Sequence[str],
    meters: int | None = None,
) -> dict[str, JsonValue]:
    """What the worker reads. paths: by plan and place; create: names of the namespaces to make first (below
    /run/netns); meters: the descriptor of a Unix socket that takes what reads the counters of each
    namespace, network by network in the order of their places."""
    return {
        "create": list(create),
        "meters": meters,
        "networks": [
            {"label": labelled(i, label), "paths": dict(own), **plan.topology.as_json()}
            for i, (plan, own) in enumerate(zip(plans, paths, strict=True))
        ],
    }
