"""The networks of instances on machines that are reached by ssh.

For each network, every machine gets a network namespace whose eth0 is connected to the machine's named
interface, and so does this machine, for mpirun. The names of the namespaces begin with the label of the run,
and all links end with them. So `nearmetal clean` finds and removes what a killed run left."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address, IPv4Interface

from ..errors import UnavailableError
from ..host import Host, namespaces
from ..host.labels import OURS, owns
from ..host.lock import living_runs
from ..model.environments.network import NetworkSettings, Seat
from ..model.record import JsonValue
from ..model.study import Arm, Attachment, Study
from ..network.build import Network
from ..network.plan import labelled, seat_names
from ..network.shapes import SEAT, VXLAN_PORT
from ..network.topology import HUB
from .arms.seats import with_aa
from .real_addresses import SECONDS, Attached, Ends, command, plan_ends, require_free, require_unanswered
from .remote_lock import living_there

_REACH_SECONDS = 10.0
_CLOSED_PORT = 9
_NOT_ROOT, _NO_PROGRAM, _NO_BRIDGE, _MTU = 77, 78, 79, 80

_BEGIN = f"""
set -eu
PATH=$PATH:/usr/sbin:/sbin
ns=$1 parent=$2 own=$3 address=$4 number=$5 label=$6 mtu=$7 port=$8 below=$9
shift 9
[ "$(id -u)" = 0 ] || exit {_NOT_ROOT}
command -v ip >/dev/null && command -v bridge >/dev/null || exit {_NO_PROGRAM}
ip netns add "$ns"
ip -n "$ns" link set lo up
"""
_END = """
[ "$mtu" = 0 ] || ip -n "$ns" link set dev eth0 mtu "$mtu"
ip -n "$ns" address add "$address" dev eth0
ip -n "$ns" link set dev eth0 alias "$label" up
"""
_DELETE = 'PATH=$PATH:/usr/sbin:/sbin; [ ! -e "/run/netns/$1" ] || ip netns delete "$1"'
_MACVLAN = 'ip link add link "$parent" name eth0 netns "$ns" type macvlan mode bridge'
_VXLAN = f"""
ip link add name eth0 netns "$ns" type vxlan id "$number" dev "$parent" local "$own" dstport {VXLAN_PORT}
for peer do
    bridge -netns "$ns" fdb append 00:00:00:00:00:00 dev eth0 dst "${{peer%%,*}}"
done
"""
_BRIDGE = f"""
bridge=$parent
if [ -z "$(ip -oneline link show dev "$parent" type bridge)" ]; then
    bridge=$(ip -oneline link show dev "$parent" | sed -n 's/.* master \\([^ ]*\\).*/\\1/p')
    [ -n "$bridge" ] && [ -n "$(ip -oneline link show dev "$bridge" type bridge)" ] || exit {_NO_BRIDGE}
fi
bridge_mtu() {{ ip -oneline link show dev "$bridge" | sed -n 's/.* mtu \\([0-9]*\\).*/\\1/p'; }}
whole=$(bridge_mtu)
if [ "$mtu" -gt "$whole" ]; then
    echo "the bridge $bridge has an MTU of $whole" >&2
    exit {_MTU}
fi
ip link add name "$port" mtu "$whole" type veth peer name eth0 mtu "$whole" netns "$ns"
ip link set dev "$port" alias "$label" master "$bridge" up
if [ "$(bridge_mtu)" != "$whole" ]; then
    ip link delete dev "$port"
    echo "a new port changes the MTU of the bridge $bridge, which is $whole" >&2
    exit {_MTU}
fi
"""
_ROUTED = """
ip netns add "$ns-router"
ip -n "$ns-router" link set lo up
ip link add link "$parent" name eth0 netns "$ns-router" type macvlan mode bridge
ip -n "$ns-router" address add "$below" dev eth0
ip -n "$ns-router" link set dev eth0 up
ip -n "$ns-router" link add name seat type veth peer name eth0 netns "$ns"
[ "$mtu" = 0 ] || ip -n "$ns-router" link set dev seat mtu "$mtu"
ip -n "$ns-router" link set dev seat up
ip -n "$ns-router" route add "${address%/*}" dev seat
ip netns exec "$ns-router" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
for peer do
    rest=${peer#*,}
    ip -n "$ns-router" route add "${rest%%,*}" via "${rest##*,}"
done
"""
SHAPES: Mapping[Attachment, str] = {
    Attachment.MACVLAN: _MACVLAN,
    Attachment.VXLAN: _VXLAN,
    Attachment.VETH_BRIDGE: _BRIDGE,
    Attachment.VETH_ROUTED: _ROUTED,
}
"""The part of a shell script that connects eth0 of a new namespace, by attachment. Each argument in $@ is
'address of the machine,address of the instance,address of the router' of one other machine."""


def number_of(label: str) -> int:
    """Return the number below 2^24 that the six hexadecimal digits in the label of a run stand for."""
    digits = re.search(r"(?<=nearmetal-)[0-9a-f]{6}", label)
    assert digits is not None, label
    return int(digits[0], 16)


@contextmanager
def real_networks(
    study: Study, label: str, hub: Attached, nodes: Sequence[Attached]
) -> Iterator[dict[tuple[str, bool], Network]]:
    """Make the networks that connect the instances of a study's arms on several machines. They are removed on
    exit.

    hub: this machine, on which mpirun runs.
    nodes: in the order in which placements use them.

    Yields the network of each arm, by its name and whether it is the A/A arm. Arms that use the network of
    the machines are left out.

    Raises UnavailableError, which names the machine, if a network cannot be made there, and UsageError.
    """
    wanted = {
        (arm.name, aa): arm
        for arm, aa in with_aa(study.arms(), study.design.baselines[0])
        if arm.environment.attachment.seated
    }
    settings = [arm.environment.network for arm in wanted.values()]
    ends = plan_ends(settings, 1 + len(nodes), number_of(label) % 256) if wanted else ()
    if wanted:
        for node in nodes:
            remove_dead(node.host, label)
    with ExitStack() as stack:
        out = {}
        for number, ((key, arm), own) in enumerate(zip(wanted.items(), ends, strict=True)):
            drawn = study.design.nodes is not None and study.design.nodes.draw
            used = nodes if drawn else nodes[: arm.placement.nodes]
            out[key] = make_network(stack, arm, labelled(number, label), number, own, (hub, *used))
        yield out


def make_network(
    stack: ExitStack, arm: Arm, label: str, number: int, ends: Ends, machines: Sequence[Attached]
) -> Network:
    """Make one network, and remove it at the exit of `stack`. Raises the errors of real_networks().

    label: label of the network.
    number: number of the network in the run.
    machines: all machines of the network, this one first.
    """
    environment = arm.environment
    places = (HUB, *seat_names(len(machines) - 1))
    if environment.attachment is not Attachment.VXLAN:  # whose addresses no other machine sees
        for machine in machines:
            require_free(machine, environment.attachment, ends)
    facts: dict[str, JsonValue] = {}
    for at, place in enumerate(places):
        facts[place] = make_seat(stack, arm, f"{label}-{place}", number, ends, machines, at)
        if at == 0:
            _require_unanswered(f"{label}-{place}", environment.attachment, ends, machines)
    seats = tuple(
        Seat(
            netns=f"{namespaces.NETNS_DIRECTORY}/{label}-{place}",
            address=str(address.ip),
            interface=SEAT,
            port="",
        )
        for place, address in zip(places, ends.inner, strict=False)
    )
    _require_reached(seats, machines, environment.attachment)
    return Network(
        label=label,
        attachment=environment.attachment,
        settings=environment.network,
        mode=None,
        subnet=str(ends.subnet),
        hub_apart=True,
        hub_netns=seats[0].netns,
        hub_address=seats[0].address,
        hub_interface=SEAT,
        seats=seats[1:],
        read_back=facts,
        hub_enter=("nsenter", f"--net={seats[0].netns}", "--"),
    )


def _require_unanswered(name: str, attachment: Attachment, ends: Ends, machines: Sequence[Attached]) -> None:
    """Check that no other machine already uses one of the addresses that this network will have.

    name: name of the namespace on this machine.

    Raises UnavailableError, which names the address.
    """
    if attachment is Attachment.VXLAN:
        return
    routed = attachment is Attachment.VETH_ROUTED
    probed = [address.ip for address in (ends.below if routed else ends.inner)[: len(machines)]]
    netns = f"{namespaces.NETNS_DIRECTORY}/{name}{'-router' if routed else ''}"
    require_unanswered(netns, SEAT, probed, machines[0], attachment)


def make_seat(
    stack: ExitStack,
    arm: Arm,
    name: str,
    number: int,
    ends: Ends,
    machines: Sequence[Attached],
    at: int,
) -> dict[str, JsonValue]:
    """Make the namespace of a network on one machine, and return its interface and routes for the record.

    name: name of the namespace.
    number: number of the network in the run.
    at: index of the machine.

    Raises UnavailableError if the machine refuses, and RunError.
    """
    machine, settings = machines[at], arm.environment.network
    attachment = arm.environment.attachment
    peers = [
        f"{other.address},{inner.ip},{below.ip}"
        for i, (other, inner, below) in enumerate(zip(machines, ends.inner, ends.below, strict=False))
        if i != at
    ]
    words = [
        *(name, machine.interface, machine.address, str(ends.inner[at])),
        str((number_of(name) + number) % (1 << 24) or 1),
        *(
            name.rpartition("-")[0],
            str(settings.mtu or 0),
            f"nm{number_of(name):06x}-{number}{'h' if at == 0 else 's'}",
        ),
        *(str(ends.below[at]), *peers),
    ]
    script = _BEGIN + SHAPES[attachment] + _END + _route(attachment, settings, ends, at)
    for made in (f"{name}-router", name) if attachment is Attachment.VETH_ROUTED else (name,):
        stack.callback(_delete, machine.host, made)
    done = machine.host.run(["sh", "-c", script, "sh", *words], timeout=SECONDS)
    if not done.ok:
        raise _refusal(machine, attachment, done.returncode, done.failure(), done.stderr.strip())
    shown = command(machine.host, ["ip", "-n", name, "-details", "-oneline", "link", "show", "dev", SEAT])
    routes = command(machine.host, ["ip", "-n", name, "route", "show"])
    mtu = re.search(r" mtu (\d+)", shown)
    return {
        "machine": machine.name,
        "interface": SEAT,
        "over": machine.interface,
        "mtu": int(mtu[1]) if mtu else None,
        "link": " ".join(shown.split()),
        "routes": [" ".join(line.split()) for line in routes.splitlines()],
    }


def _route(attachment: Attachment, settings: NetworkSettings, ends: Ends, at: int) -> str:
    """Return the lines that set the route to the other instances; '' if the kernel's own is right."""
    words = [] if settings.rto_min is None else ["rto_min", f"{round(settings.rto_min * 1000)}ms"]
    if settings.congestion_control is not None:
        words += ["congctl", settings.congestion_control]
    route = f'ip -n "$ns" route replace {ends.subnet} dev eth0'
    if attachment is Attachment.VETH_ROUTED:
        router = ends.below[at].ip
        via = f"via {router} src {ends.inner[at].ip}"
        return f'ip -n "$ns" route add {router} dev eth0\n{route} {via} {shlex.join(words)}\n'
    if not words:
        return ""
    return f"{route} proto kernel scope link src {ends.inner[at].ip} {shlex.join(words)}\n"


def _refusal(
    machine: Attached, attachment: Attachment, code: int, failure: str, said: str
) -> UnavailableError:
    what = f"{machine.title}: attachment {attachment.value}"
    match code:
        case _ if code == _NOT_ROOT:
            remedy = f"user: root for {machine.name} in the inventory" if machine.name else "run as root"
            return UnavailableError(f"{what} needs root there", remedy=f"{remedy}, or attachment: host")
        case _ if code == _NO_PROGRAM:
            return UnavailableError(f"{what} needs ip and bridge there", remedy="apt-get install iproute2")
        case _ if code == _NO_BRIDGE:
            return UnavailableError(
                f"{what}: {machine.interface} is neither a bridge nor a port of one",
                remedy="attachment: macvlan, or make it a port of a bridge that has its address",
            )
        case _ if code == _MTU:
            return UnavailableError(f"{what}: {said}", remedy="mtu: at most that of the bridge")
    return UnavailableError(f"{what}: {failure}", remedy="attachment: host, or one that its kernel has")


def remove_dead(host: Host, label: str) -> None:
    """Remove the network namespaces of ended runs from a machine. They would still answer ARP requests for
    their addresses.

    label: label of this run. Nothing is removed from a machine whose lock file does not name this run.
    """
    living = living_there(host)
    if label not in living:
        return
    living |= {run.run for run in living_runs()}
    for name in host.run(["ls", str(namespaces.NETNS_DIRECTORY)], timeout=SECONDS).stdout.split():
        ours = OURS.fullmatch(name)
        if ours and ours["pid"] is None and not any(owns(run, name) for run in living):
            _delete(host, name)


def _require_reached(seats: Sequence[Seat], machines: Sequence[Attached], attachment: Attachment) -> None:
    """Check that packets from the namespace of mpirun reach the namespaces of the instances. A switch may
    drop frames of unknown senders, and a firewall may drop tunnels.

    No program listens on the port, so a refused connection shows that packets arrive.

    Raises UnavailableError if they do not.
    """
    with namespaces.entered(seats[0].netns):
        for seat, machine in zip(seats[1:], machines[1:], strict=True):
            try:
                socket.create_connection((seat.address, _CLOSED_PORT), _REACH_SECONDS).close()
            except ConnectionRefusedError:
                continue
            except OSError as e:
                raise UnavailableError(
                    f"{machine.title}: nothing comes through attachment {attachment.value} over "
                    f"{machine.interface}: {e.strerror or e}",
                    remedy="let the network of the machines pass it, or write attachment: host",
                ) from e


def _delete(host: Host, name: str) -> None:
    host.run(["sh", "-c", _DELETE, "sh", name], timeout=SECONDS)


def reached_by(host: Host, interface: str, nodes: Sequence[tuple[str, Host]]) -> tuple[Attached, ...]:
    """Return this machine with the interface by which it reaches the nodes, then each node.

    host: this machine.
    interface: name of the interface that is used on each node.
    nodes: name and host of each node.

    Raises UnavailableError if a node has no address on the interface, or if this machine has no route to the
    first node.
    """
    found = [
        Attached(
            name=name, host=there, interface=interface, address=interface_address(there, name, interface)
        )
        for name, there in nodes
    ]
    target = found[0].address
    done = host.run(["ip", "-4", "-oneline", "route", "get", target], timeout=SECONDS)
    words = done.stdout.split()
    if not done.ok or "dev" not in words or "src" not in words:
        raise UnavailableError(
            f"this machine has no route to {target}, the address of {interface} on {found[0].name}",
            remedy="nodes: interface: one that this machine reaches",
        )
    own, address = words[words.index("dev") + 1], words[words.index("src") + 1]
    return Attached(name="", host=host, interface=own, address=str(IPv4Address(address))), *found


def interface_address(host: Host, name: str, interface: str) -> str:
    """Return the IPv4 address of an interface. Raises UnavailableError, which names the node."""
    done = host.run(["ip", "-4", "-oneline", "address", "show", "dev", interface], timeout=SECONDS)
    for word in done.stdout.split():
        with suppress(ValueError):
            if "/" in word:
                return str(IPv4Interface(word).ip)
    raise UnavailableError(
        f"node {name} has no address on an interface {interface}",
        remedy=f"nodes: interface: one of those that  ssh {shlex.quote(name)} ip address  shows",
    )
