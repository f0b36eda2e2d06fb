"""The network of containers that all run in one guest. It is inside that guest, with a namespace for mpirun,
which runs there too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path

from ..environments import HoldsNetworks, Instance
from ..errors import UnavailableError
from ..host.namespaces import NETNS_DIRECTORY
from ..model.study import Arm
from ..network.build import Network
from ..network.plan import NetworkRequest, plan_networks
from ..network.topology import HUB


def inner_network(arm: Arm, label: str) -> Network | None:
    """Plan the network that joins the instances of an arm inside their guest. No I/O.

    label: beginning of the names of its namespaces.
    Returns None if the arm runs in no guest, or its attachment needs no network.
    """
    e = arm.environment
    if e.inside is None or not e.attachment.seated:
        return None
    instances = arm.placement.all_instances
    (plan,) = plan_networks(
        [NetworkRequest(attachment=e.attachment, settings=e.network, instances=instances)]
    )
    paths = {place: f"{NETNS_DIRECTORY}/{label}-{place}" for place in plan.topology.places}
    return Network(
        label=label,
        attachment=e.attachment,
        settings=e.network,
        mode=plan.mode,
        subnet=plan.subnet,
        hub_apart=True,
        hub_netns=paths[HUB],
        hub_address=plan.hub_address,
        hub_interface=plan.hub_interface,
        seats=plan.seats(paths),
        hub_enter=("nsenter", f"--net={paths[HUB]}", "--"),
    )


@contextmanager
def joined_in(guest: Instance | None, network: Network) -> Iterator[None]:
    """Build a network that inner_network() has planned in a running guest, and remove it on exit.

    Raises UnavailableError, RunError.
    """
    if not isinstance(guest, HoldsNetworks):
        raise UnavailableError(
            "no network can be built inside this guest", remedy="attachment: none, or host"
        )
    prefix = IPv4Network(network.subnet).prefixlen
    mtu = "" if network.settings.mtu is None else f",{network.settings.mtu}"
    places = [(network.hub_netns, network.hub_interface, network.hub_address)]
    places += [(seat.netns, seat.interface, seat.address) for seat in network.seats]
    ends = {Path(path).name: f"{interface},{address}/{prefix}{mtu}" for path, interface, address in places}
    with guest.joined(ends, network.settings):
        yield
