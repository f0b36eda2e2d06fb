"""Finds and checks the network devices of the machine that instances use, and returns them afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from ipaddress import IPv4Network

from ..errors import UnavailableError
from ..host import Host, MissingValue
from ..host.cards import give_back, offloads
from ..host.facts.devices import (
    DeviceState,
    device_state,
    functions,
    ipv4_routes,
    make_functions,
    most_functions,
)
from ..host.notes import Card, undo_after
from ..model.study import Attachment
from .plan import RANGE, NetworkRequest


def allocated(
    stack: ExitStack, host: Host, wants: Sequence[NetworkRequest], label: str
) -> list[NetworkRequest | UnavailableError]:
    """Select the devices of the machine for the requests whose attachment uses such devices.

    Returns the requests in the same order, each with one device for every instance if it uses devices. A
    request whose devices cannot be provided is replaced by the error.

    label: label of the run.
    stack: restores the number of virtual functions on exit, if it is changed here.
    """
    taken: set[str] = set()
    out: list[NetworkRequest | UnavailableError] = []
    for want in wants:
        if not want.attachment.on_device:
            out.append(want)
            continue
        try:
            found = _devices(stack, host, want, taken, _still_wanted(wants, want, len(out)), label)
        except UnavailableError as e:
            out.append(e)
            continue
        taken.update(found)
        out.append(replace(want, devices=found))
    return out


def _still_wanted(wants: Sequence[NetworkRequest], like: NetworkRequest, begin: int) -> int:
    """Return the number of devices that this request and later equal ones need."""
    return sum(
        w.instances for w in wants[begin:] if (w.attachment, w.settings) == (like.attachment, like.settings)
    )


def _devices(
    stack: ExitStack, host: Host, want: NetworkRequest, taken: set[str], wanted: int, label: str
) -> tuple[str, ...]:
    kind = want.attachment.value
    if not host.is_root():
        raise UnavailableError(
            f"attachment {kind} needs root: other users may not move a device of the machine",
            remedy="run as root",
        )
    named = want.settings.devices
    if want.attachment is Attachment.SRIOV:
        named = _functions(stack, host, want, wanted, label)
    free = [name for name in named if name not in taken]
    found = free[: want.instances]
    if len(found) < want.instances:
        raise UnavailableError(
            f"attachment {kind}: {want.instances} instances need a device each, and there are {len(free)} "
            f"left of {', '.join(named) or 'none'}",
            remedy="name more devices in the environment's network",
        )
    for name in found:
        state = device_state(host, name)
        if isinstance(state, MissingValue):
            raise UnavailableError(
                f"attachment {kind}: {state.reason}",
                remedy="name another, or free it: ip address flush dev DEVICE",
            )
    _refuse_range_in_use(host, want)
    return tuple(found)


def _functions(
    stack: ExitStack, host: Host, want: NetworkRequest, wanted: int, label: str
) -> tuple[str, ...]:
    """Return virtual functions of the named devices: those that exist, or as many new ones as needed."""
    found: list[str] = []
    for name in want.settings.devices:
        most = most_functions(host, name)
        if not most:
            raise UnavailableError(
                f"attachment sriov: {name} has no SR-IOV",
                remedy="a card with SR-IOV, switched on in its firmware; nearmetal check names them",
            )
        there = functions(host, name)
        if not there and len(found) < wanted:
            count = min(most, wanted - len(found))
            there = stack.enter_context(make_functions(host, name, count, label))
        found += [f for f in there if isinstance(device_state(host, f), DeviceState)]
    return tuple(found)


def _refuse_range_in_use(host: Host, want: NetworkRequest) -> None:
    """Check that the machine has no route to the addresses of a network on devices of the machine. Such a
    network may reach other machines, so its addresses must be unused.

    Raises UnavailableError if there is such a route.
    """
    subnet = IPv4Network(want.settings.subnet or RANGE)
    for device, network in ipv4_routes(host):
        if network.prefixlen and network.overlaps(subnet):
            raise UnavailableError(
                f"attachment {want.attachment.value}: the addresses of {subnet} are in use here: "
                f"{network} is reached by {device}",
                remedy="another subnet",
            )


def register_give_back(stack: ExitStack, host: Host, label: str, places: Mapping[str, str]) -> None:
    """Note the settings of the devices, and register an exit callback that moves the devices back and
    restores them. Call it before they are moved.

    label: label of the run.
    places: path of the namespace by device.
    """
    for name, netns in places.items():
        if isinstance(state := device_state(host, name), DeviceState):
            card = Card(**asdict(state), netns=netns, offloads=offloads(name))
            stack.enter_context(undo_after(label, card, give_back))
