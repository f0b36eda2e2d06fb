"""What a bridged network consists of: names and addresses, and the request that the worker builds it from.
Pure."""

from __future__ import annotations

import string
from collections.abc import Sequence
from ipaddress import IPv4Network

from ..errors import UsageError
from ..model.network import Seat
from ..model.record import JsonValue

NETWORK = IPv4Network("10.99.0.0/24")
"""Lives only inside our namespaces: no route leads out of them, so it cannot clash with the machine's own."""

HUB_INTERFACE = "br0"
SEAT_INTERFACE = "eth0"
MAX_SEATS = NETWORK.num_addresses - 3  # the network, the hub, the broadcast


def hub_address() -> str:
    return str(NETWORK[1])


def seat_names(count: int) -> tuple[str, ...]:
    """'a' to 'z', then 'aa', 'ab', ...

    Raises UsageError for more seats than there are addresses.
    """
    if not 1 <= count <= MAX_SEATS:
        raise UsageError(f"a bridged network takes 1 to {MAX_SEATS} instances, not {count}")
    letters = string.ascii_lowercase
    return tuple(letters[i] if i < 26 else letters[i // 26 - 1] + letters[i % 26] for i in range(count))


def make_seats(netns: Sequence[str]) -> tuple[Seat, ...]:
    """A seat in each namespace (paths), with the addresses after the hub's."""
    return tuple(
        Seat(netns=path, address=str(NETWORK[i + 2]), interface=SEAT_INTERFACE, port=f"port{i}")
        for i, path in enumerate(netns)
    )


def request(
    label: str, hub: str, seats: Sequence[Seat], *, create: Sequence[str], meters: int | None = None
) -> dict[str, JsonValue]:
    """What the worker reads. create: names of the namespaces to make first (below /run/netns); meters: the
    descriptor of a Unix socket that takes what reads the counters of each namespace, hub first."""
    return {
        "meters": meters,
        "alias": label,
        "create": list(create),
        "hub": {"netns": hub, "address": hub_address(), "interface": HUB_INTERFACE},
        "prefix": NETWORK.prefixlen,
        "seats": [
            {"netns": s.netns, "address": s.address, "interface": s.interface, "port": s.port} for s in seats
        ],
    }
