"""Builds the networks of a run, and removes them again.

As root the namespaces are named (/run/netns/<label>-net0-hub, -a, -b ...), so that 'nearmetal clean' finds
them. Without root, small processes of the user namespace hold them, and die with nearmetal. One worker builds
all networks, since starting it takes longer than building them."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ..errors import UnavailableError
from ..host import Host, LocalHost, namespaces
from ..host.counters.network_files import device_names
from ..host.counters.network_meter import DESCRIPTORS, NetworkMeter, taken_over
from ..host.processes import labelled as processes
from ..model.environments.network import NetworkSettings, Seat
from ..model.record import JsonValue
from ..model.study import Attachment, NodeLink
from . import plan
from .devices import allocated, register_give_back
from .differences import differences
from .nodes import NODE_SWITCH, SWITCH, switch_ports
from .openvswitch import BRIDGE as HUB_SWITCH
from .openvswitch import open_vswitch
from .plan import NetworkPlan, NetworkRequest
from .shapes import BRIDGE, HUB_PORT
from .topology import HUB, Topology

WORKER_TIMEOUT = 120.0


class Holder(Protocol):
    """The interface of the shared user namespace that networks need
    (environments.holder.UserNamespaceHolder)."""

    def command(self, argv: Sequence[str], *, pid: int | None = None) -> list[str]:
        """Return the command line that runs argv as root of the user namespace.

        pid: process whose network namespace the command enters; None for the empty one of the holder.
        """

    def network_namespace(self) -> AbstractContextManager[int]:
        """Make a new network namespace in the user namespace. Yields the PID of the process that holds it."""


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """The emulated nodes of a network.

    link: requested properties of each node's link.
    nodes: path of the network namespace of each node, by name.
    addresses: address of each node's bridge, in the same order.
    switch: network namespace of the switch.
    relay: ports that a relay must connect; empty if the kernel connects them itself.
    """

    link: NodeLink
    nodes: Mapping[str, str]
    addresses: tuple[str, ...]
    switch: str
    relay: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Network:
    """The part of a network that one arm uses.

    label: label of the network, which the names of its namespaces begin with.
    mode: mode of the attachment, or datapath of Open vSwitch; None if the attachment has no modes.
    hub_apart: whether mpirun has its own network namespace; otherwise it runs in that of the first instance.
    hub_netns, hub_address, hub_interface: namespace, address and interface of mpirun.
    seats: namespace, address and interface of each instance of the arm.
    read_back: facts read inside the namespaces, by place ('hub', 'a', 'b', ...).
    hub_enter: command line that enters the hub's namespace.
    meters: meter of each namespace, by its path, open as long as the network; empty if file descriptors are
        scarce.
    """

    label: str
    attachment: Attachment
    settings: NetworkSettings
    mode: str | None
    subnet: str
    hub_apart: bool
    hub_netns: str
    hub_address: str
    hub_interface: str
    seats: tuple[Seat, ...]
    read_back: Mapping[str, JsonValue] = field(default_factory=dict)
    hub_enter: tuple[str, ...]
    meters: Mapping[str, NetworkMeter] = field(default_factory=dict)
    emulation: Emulation | None = None

    def hub_command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs argv on this machine in the hub's network namespace."""
        return [*self.hub_enter, *argv]

    def trouble(self) -> str:
        """Return which of the arm's interfaces no longer exists; '' if all exist, or if this cannot be
        determined."""
        wanted = {seat.netns: {seat.interface} for seat in self.seats}
        if self.hub_apart:
            wanted[self.hub_netns] = {self.hub_interface, *(s.port for s in self.seats if s.port)}
        for netns, interfaces in wanted.items():
            meter = self.meters.get(netns)
            text = meter.read("dev") if meter is not None else None
            gone = sorted(interfaces - device_names(text)) if text is not None else []
            if gone:
                where = f"attachment {self.attachment}, {Path(netns).name}"
                return f"network interface {gone[0]} no longer exists ({where})"
        return ""

    def record(self) -> dict[str, JsonValue]:
        """Return the provenance of the network: the request, and the network as built."""
        return {
            "attachment": self.attachment.value,
            "mode": self.mode,
            "subnet": self.subnet,
            "asked": self.settings.requested(),
            "got": dict(self.read_back),
        }


@contextmanager
def build_networks(
    label: str,
    wants: Sequence[NetworkRequest],
    scratch: Path,
    *,
    user_namespace_holder: Holder | None = None,
) -> Iterator[tuple[Network, ...]]:
    """Build a network for each request, in the order of the requests. All networks are removed on exit.

    Requests with the same attachment and settings share one network.

    label: 'nearmetal-<run>'.
    scratch: directory for files of switches.

    Raises UnavailableError if this machine lacks something, or applies other settings than requested.
    Raises UsageError for an impossible network, and RunError.
    """
    with attempted_networks(label, wants, scratch, user_namespace_holder=user_namespace_holder) as tried:
        for network in tried:
            if isinstance(network, UnavailableError):
                raise network
        yield tuple(n for n in tried if isinstance(n, Network))


@contextmanager
def attempted_networks(
    label: str,
    wants: Sequence[NetworkRequest],
    scratch: Path,
    *,
    user_namespace_holder: Holder | None = None,
    host: Host | None = None,
) -> Iterator[tuple[Network | UnavailableError, ...]]:
    """Build networks as build_networks() does, but yield an error in place of each network that could not be
    built."""
    machine = host or LocalHost()
    with ExitStack() as stack:
        ready = allocated(stack, machine, wants, label)
        usable = [i for i, want in enumerate(ready) if isinstance(want, NetworkRequest)]
        out: dict[int, Network | UnavailableError] = {
            i: want for i, want in enumerate(ready) if isinstance(want, UnavailableError)
        }
        wants = [want for want in ready if isinstance(want, NetworkRequest)]
        if not wants:  # there is no namespace that the worker could enter
            yield tuple(out.values())
            return
        plans = plan.plan_networks(wants)
        places = _Places(stack, label, plans, user_namespace_holder)
        ours, theirs = _meter_sockets(stack, sum(len(own) for own in places.paths))
        register_give_back(stack, machine, label, places.of_devices())
        request = plan.request(label, plans, places.paths, create=places.created, meters=theirs)
        done = machine.run(
            places.worker(),
            timeout=WORKER_TIMEOUT,
            stdin=json.dumps(request),
            env={processes.LABEL_VARIABLE: label},  # clean ends it before it gives devices back
            cwd=Path("/"),
            pass_fds=() if theirs is None else (theirs,),
        ).require("the networks could not be built", remedy="nearmetal clean, then again")
        answers: list[dict[str, Any]] = json.loads(done.stdout)["networks"]
        for number, members in enumerate(plan.groups_of(wants)):
            own, made = plans[number], answers[number]
            try:
                if "error" in made:
                    raise UnavailableError(
                        f"attachment {own.attachment.value} cannot be built here: {made['error']}",
                        remedy=remedy(str(made["kind"]), str(made["error"])),
                    )
                meters = _meters(stack, ours, [places.paths[number][p] for p in own.topology.places])
                network = places.network(number, made, meters)
                _require_settings(network)
                if network.attachment is Attachment.OVS:
                    network = _switch(stack, machine, network, scratch, own.topology, places.enter)
            except UnavailableError as e:
                out |= {usable[member]: e for member in members}
                continue
            for member, seats in zip(members, own.groups, strict=True):
                out[usable[member]] = replace(network, seats=tuple(network.seats[i] for i in seats))
        yield tuple(out[i] for i in sorted(out))


class _Places:
    """The namespaces of all networks: their paths by network and place, and the commands that enter them."""

    def __init__(
        self, stack: ExitStack, label: str, plans: Sequence[NetworkPlan], holder: Holder | None
    ) -> None:
        self._label, self._plans, self._holder = label, plans, holder
        self.paths: list[dict[str, str]] = []
        self.created: tuple[str, ...] = ()
        self._pids: dict[str, int] = {}
        if holder is None:
            names = [
                {p: f"{plan.labelled(i, label)}-{p}" for p in own.topology.places}
                for i, own in enumerate(plans)
            ]
            self.created = tuple(name for own in names for name in own.values())
            stack.enter_context(namespaces.named_network_namespaces(self.created))
            self.paths = [{p: str(namespaces.NETNS_DIRECTORY / n) for p, n in own.items()} for own in names]
            return
        for own in plans:
            paths = {}
            for place in own.topology.places:
                pid = stack.enter_context(holder.network_namespace())
                paths[place] = f"/proc/{pid}/ns/net"
                self._pids[paths[place]] = pid
            self.paths.append(paths)

    def worker(self) -> list[str]:
        argv = [sys.executable, "-P", "-m", "nearmetal.network.worker"]
        if self._holder is None:
            return [*argv, str(os.getpid())]
        return self._holder.command(argv, pid=next(iter(self._pids.values())))

    def of_devices(self) -> dict[str, str]:
        """Return the target namespace of each device of the machine that must be moved."""
        return {
            link.name: own[link.at]
            for made, own in zip(self._plans, self.paths, strict=True)
            for link in made.topology.links
            if link.kind == "device"
        }

    def enter(self, path: str) -> tuple[str, ...]:
        if self._holder is not None:
            return tuple(self._holder.command([], pid=self._pids[path]))
        return ("env", f"{processes.LABEL_VARIABLE}={self._label}", "nsenter", f"--net={path}", "--")

    def network(self, number: int, made: Mapping[str, Any], meters: Mapping[str, NetworkMeter]) -> Network:
        own, paths = self._plans[number], self.paths[number]
        return Network(
            label=plan.labelled(number, self._label),
            attachment=own.attachment,
            settings=own.settings,
            mode=own.mode,
            subnet=own.subnet,
            hub_apart=own.hub == HUB,
            hub_netns=paths[own.hub],
            hub_address=own.hub_address,
            hub_interface=own.hub_interface,
            seats=own.seats(paths),
            read_back=made["facts"],
            hub_enter=self.enter(paths[own.hub]),
            meters=meters,
            emulation=self._emulation(number, made["relay"]) if own.nodes else None,
        )

    def _emulation(self, number: int, relay: Sequence[str]) -> Emulation:
        own, paths = self._plans[number], self.paths[number]
        addresses = {link.at: link.address or "" for link in own.topology.links if link.name == BRIDGE}
        return Emulation(
            link=own.link,
            nodes={name: paths[name] for name in own.nodes},
            addresses=tuple(addresses[name].partition("/")[0] for name in own.nodes),
            switch=paths[SWITCH],
            relay=tuple(relay),
        )


def _require_settings(network: Network) -> None:
    """Check that the kernel applies the requested settings.

    Raises UnavailableError if it does not.
    """
    emulated = {*network.emulation.nodes, SWITCH} if network.emulation else set[str]()
    own = {place: facts for place, facts in network.read_back.items() if place not in emulated}
    if wrong := differences(network.settings, network.mode, own):
        raise UnavailableError(
            f"attachment {network.attachment.value}: {'; '.join(wrong)}",
            remedy="request settings that this machine supports, or omit them",
        )


def remedy(kind: str, message: str) -> str:
    """Return the remedy for a link that the kernel refused."""
    if "not supported" in message and kind in ("veth", "bridge", "macvlan", "macvtap", "ipvlan", "vxlan"):
        return f"modprobe {kind} (a kernel with CONFIG_{kind.upper()})"
    if "congestion_control" in message:
        return "one of /proc/sys/net/ipv4/tcp_available_congestion_control, or modprobe tcp_NAME"
    if "not permitted" in message:
        return "run as root, or let this user make user namespaces"
    return "request what this kernel supports; nearmetal check shows it"


def _switch(
    stack: ExitStack,
    machine: Host,
    network: Network,
    scratch: Path,
    topology: Topology,
    enter: Callable[[str], Sequence[str]],
) -> Network:
    """Run Open vSwitch between the ports in the hub, or in each emulated node.

    Returns the network with the type of the datapath as its mode.

    enter: returns the command line that enters the namespace with a path.

    Raises UnavailableError.
    """
    bridges = [(network.hub_netns, HUB_SWITCH, [*(seat.port for seat in network.seats), HUB_PORT])]
    if network.emulation is not None:
        nodes = network.emulation.nodes.items()
        bridges = [(path, NODE_SWITCH, switch_ports(topology, name)) for name, path in nodes]
    datapath = None
    for number, (path, bridge, ports) in enumerate(bridges):
        directory = scratch / f"{network.label}-{number}"
        directory.mkdir()
        datapath = stack.enter_context(open_vswitch(machine, enter(path), directory, ports, bridge))
    return replace(network, mode=datapath)


def _meter_sockets(stack: ExitStack, places: int) -> tuple[socket.socket | None, int | None]:
    """Return our end of a socket pair, and the descriptor of the worker's end.

    Both are None if meters would use more than half of the files that this process may open.
    """
    if places * DESCRIPTORS > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
        return None, None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.callback(ours.close)
    stack.callback(theirs.close)
    return ours, theirs.fileno()


def _meters(stack: ExitStack, taken: socket.socket | None, paths: Sequence[str]) -> dict[str, NetworkMeter]:
    """Return the meters by namespace, in the order in which the worker sends them."""
    meters: dict[str, NetworkMeter] = {}
    if taken is None:
        return meters
    for path in paths:
        meter = taken_over(taken)
        if meter is None:
            break
        stack.callback(meter.close)
        meters[path] = meter
    return meters
