"""Plans the addresses of networks that connect several machines, and checks that no other machine uses
them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from ..errors import UnavailableError, UsageError
from ..host import Host, namespaces
from ..model.environments.network import NetworkSettings
from ..model.study import Attachment
from ..network.plan import MAX_NETWORKS, RANGE

SECONDS = 60.0
"""Time limit of one command on a machine."""
_BELOW = IPv4Network("10.98.0.0/16")
"""Addresses of routers on the network of the machines."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A machine on which network namespaces are made.

    name: in messages; '' for this machine.
    interface: the interface of the machine to which they are connected.
    address: address of that interface.
    """

    name: str
    host: Host
    interface: str
    address: str

    @property
    def title(self) -> str:
        return f"node {self.name}" if self.name else "this machine"


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The addresses of one network that connects several machines.

    inner: addresses of mpirun and of the instances, in this order.
    below: address of the router of each.
    """

    subnet: IPv4Network
    inner: tuple[IPv4Interface, ...]
    below: tuple[IPv4Interface, ...]


def plan_ends(settings: Sequence[NetworkSettings], count: int, first: int) -> tuple[Ends, ...]:
    """Return the addresses of each network. Networks with the same named subnet share it. No I/O.

    settings: settings of each network.
    count: number of addresses in each network: one for mpirun, and one for each instance.
    first: number of the first subnet. Other runs on the same wire should have another.

    Raises UsageError if a subnet is too small, or if there are too many networks.
    """
    if len(settings) > MAX_NETWORKS:
        raise UsageError(f"this study needs more than {MAX_NETWORKS} networks, the most that a run can have")
    used: dict[str, int] = {}
    out = []
    for number, own in enumerate(settings):
        subnet = IPv4Network(own.subnet) if own.subnet else next_subnet(RANGE, first + number)
        begin = used.get(str(subnet), 0) + 1
        used[str(subnet)] = begin + count - 1
        if begin + count > subnet.num_addresses - 1:
            raise UsageError(
                f"{subnet} has too few addresses", remedy="a larger network: subnet: 10.99.0.0/16"
            )
        routers = next_subnet(_BELOW, first + number, min(24, 32 - (count + 1).bit_length()))
        out.append(
            Ends(
                subnet=subnet,
                inner=tuple(IPv4Interface(f"{subnet[begin + i]}/{subnet.prefixlen}") for i in range(count)),
                below=tuple(IPv4Interface(f"{routers[i + 1]}/{routers.prefixlen}") for i in range(count)),
            )
        )
    return tuple(out)


def next_subnet(within: IPv4Network, number: int, prefix: int = 24) -> IPv4Network:
    """Return subnet `number` (modulo their count) of the given prefix length inside `within`."""
    known = 1 << (prefix - within.prefixlen)
    return IPv4Network((int(within[0]) + (number % known << (32 - prefix)), prefix))


def require_free(machine: Attached, attachment: Attachment, ends: Ends) -> None:
    """Check that a machine has no route to the addresses of a network.

    A wider route through a gateway is allowed, such as 10.0.0.0/8 of a site: it does not mean that a machine
    on this wire has one of the addresses.

    Raises UnavailableError, which names the network and the route.
    """
    routes = command(machine.host, ["ip", "-4", "-oneline", "route", "show"]).splitlines()
    for wanted, remedy in _on_the_wire(attachment, ends):
        for line in routes:
            words = line.split()
            with suppress(ValueError, IndexError):
                known = IPv4Network(words[0])
                apart = "via" in words and known.prefixlen < wanted.prefixlen
                if known.overlaps(wanted) and not apart:
                    raise UnavailableError(
                        f"{machine.title}: attachment {attachment.value}: the addresses of {wanted} are "
                        f"in use there: {line.strip()}",
                        remedy=remedy,
                    )


def _on_the_wire(attachment: Attachment, ends: Ends) -> Iterator[tuple[IPv4Network, str]]:
    """Yield each subnet whose addresses are visible on the network of the machines, with the remedy if it is
    in use."""
    yield ends.subnet, "another network: {subnet: ...}"
    if attachment is Attachment.VETH_ROUTED:
        yield ends.below[0].network, "attachment: macvlan or veth-bridge, which need no addresses of routers"


PROBES, PAUSE = 3, 0.3
"""Number of times that each address is asked for, and seconds to wait for answers after each."""
_ARP = 0x0806
_REQUEST = struct.Struct("!HHBBH6s4s6s4s")
"""Of ARP over Ethernet: kinds and lengths of addresses, operation, sender, target."""


def require_unanswered(
    netns: str, interface: str, addresses: Sequence[IPv4Address], machine: Attached, attachment: Attachment
) -> None:
    """Check by ARP that no other machine on the wire has one of the addresses. A killed run may have left one
    there, or another run may use the same subnet.

    netns: path of the network namespace from which the requests are sent. It may have one of the addresses.
    interface: Ethernet interface of that namespace, which is up.
    machine: the machine of the namespace, for messages.

    Raises UnavailableError, which names the address and the Ethernet address of the machine that has it.
    """
    with namespaces.entered(netns), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as wire:
        wire.bind((interface, _ARP))
        own = wire.getsockname()[4]
        for _ in range(PROBES):
            for address in addresses:  # a sender of 0.0.0.0 changes no tables of others (RFC 5227)
                words = (1, 0x0800, 6, 4, 1, own, bytes(4), bytes(6), address.packed)
                wire.sendto(_REQUEST.pack(*words), (interface, _ARP, 0, 0, b"\xff" * 6))
            for sender, address in _heard(wire, time.monotonic() + PAUSE):
                if sender != own and address in addresses:
                    raise UnavailableError(
                        f"attachment {attachment.value} over {machine.interface}: another machine has the "
                        f"address {address}: its Ethernet address is {sender.hex(':')}",
                        remedy="another subnet, or, if a killed run left it there: nearmetal clean",
                    )


def _heard(wire: socket.socket, deadline: float) -> Iterator[tuple[bytes, IPv4Address]]:
    """Yield the Ethernet and IP address of the sender of each ARP packet.

    deadline: end, in seconds of time.monotonic().
    """
    while (left := deadline - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            packet = wire.recv(1 << 12)
        except TimeoutError:
            return
        if len(packet) >= _REQUEST.size:
            fields = _REQUEST.unpack_from(packet)
            yield fields[5], IPv4Address(fields[6])


def command(host: Host, argv: Sequence[str]) -> str:
    """Return what a command prints on a machine. Raises RunError if it fails."""
    return host.run(argv, timeout=SECONDS).require().stdout
