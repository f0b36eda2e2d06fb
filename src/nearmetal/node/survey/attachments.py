"""Determines which attachments this machine can build, by building each with the requested settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ...environments import Backend, Tools, Unavailable
from ...environments.contract import UserNetworked
from ...environments.holder import user_namespace_holder
from ...errors import NearmetalError, UnavailableError
from ...host import Host
from ...host.facts import devices
from ...host.runtime import scratch_directory
from ...model.environments.network import NetworkSettings
from ...model.study import Arm, Attachment
from ...network.build import Network, attempted_networks
from ...network.plan import NetworkRequest

NEEDS_CARD = "a card with SR-IOV, switched on in its firmware (lspci -v: Single Root I/O Virtualization)"


_FOR_ROOT = Unavailable(reason="no user may make the node of its device", remedy="run as root")
_TAKEN_BY_ROOT = Unavailable(reason="no user may take a device of the machine", remedy="run as root")


def wanted_by(arm: Arm) -> NetworkRequest | None:
    """Return the network that an arm needs on this machine; None if it needs none of its own."""
    e = arm.environment
    elsewhere = arm.placement.node.remote or e.inside is not None
    if elsewhere or not (e.attachment.seated or arm.placement.node.emulated):
        return None
    return NetworkRequest(
        attachment=e.attachment,
        settings=e.network,
        instances=arm.placement.all_instances,
        nodes=arm.placement.nodes if arm.placement.node.emulated else 1,
        link=arm.placement.link,
    )


def missing_networks(host: Host, tools: Tools, arms: Mapping[str, Arm]) -> dict[str, UnavailableError]:
    """Return the arms whose network cannot be built here, each with the error."""
    wants = {name: want for name, arm in arms.items() if (want := wanted_by(arm)) is not None}
    # Equal networks are tried once, with at most two instances and two nodes.
    small = {
        name: replace(w, instances=min(w.instances, 2), nodes=min(w.nodes, 2)) for name, w in wants.items()
    }
    different = tuple(dict.fromkeys(small.values()))
    answers = dict(zip(different, try_networks(host, tools, different), strict=True))
    return {name: e for name, want in small.items() if isinstance(e := answers[want], UnavailableError)}


def try_networks(
    host: Host, tools: Tools, wants: Sequence[NetworkRequest]
) -> tuple[Network | UnavailableError, ...]:
    """Build each network, then remove all of them. Returns the network or the error for each."""
    if not wants:
        return ()
    label = f"nearmetal-check-{os.getpid()}"
    try:
        with ExitStack() as stack:
            scratch = stack.enter_context(scratch_directory(f"{label}-networks"))
            holder = None
            if not host.is_root():
                holder = stack.enter_context(user_namespace_holder(host, tools, label))
            return stack.enter_context(
                attempted_networks(label, wants, scratch, user_namespace_holder=holder, host=host)
            )
    except NearmetalError as e:
        return (UnavailableError(e.what, remedy=e.remedy),) * len(wants)


def check_attachments(
    host: Host, tools: Tools, backends: Iterable[Backend]
) -> dict[str, str | Unavailable | UnavailableError]:
    """Check every attachment. Modes are checked separately and named 'macvlan (vepa)'.

    Returns details of what was built, such as the datapath of Open vSwitch, or why it cannot be built.

    backends: backends to check for the attachment `user`, which only a backend can build.
    """
    wants = {
        f"{a.value} ({mode})" if mode else a.value: NetworkRequest(
            attachment=a, settings=NetworkSettings(mode=mode), instances=2
        )
        for a in Attachment
        if a.seated and not a.on_device
        for mode in (a.modes or (None,))
    }
    out: dict[str, str | Unavailable | UnavailableError] = {a.value: "" for a in Attachment if not a.seated}
    out[Attachment.USER.value] = _user(host, backends)
    for name, found in zip(wants, try_networks(host, tools, tuple(wants.values())), strict=True):
        out[name] = found if isinstance(found, UnavailableError) else _detail(found)
    if not host.is_root():
        out |= {name: _FOR_ROOT for name, want in wants.items() if want.attachment is Attachment.MACVTAP}
    return {**out, Attachment.PHYS.value: _phys(host), Attachment.SRIOV.value: _sriov(host)}


def _detail(network: Network) -> str:
    return f"datapath {network.mode}" if network.attachment is Attachment.OVS else ""


def _user(host: Host, backends: Iterable[Backend]) -> str | Unavailable:
    found = [b.user_network(host) for b in backends if isinstance(b, UserNetworked)]
    if None in found:
        return "one guest, which reaches out and is not reached"
    none = Unavailable(reason="no backend offers it", remedy="nearmetal list")
    return next((f for f in found if f is not None), none)


def _phys(host: Host) -> str | Unavailable:
    if not host.is_root():
        return _TAKEN_BY_ROOT
    free = devices.free_hardware(host)
    if free:
        return f"free: {', '.join(free)}"
    return Unavailable(
        reason="no network card that is not in use",
        remedy="a further card; or name any other device, such as one end of a veth pair",
    )


def _sriov(host: Host) -> str | Unavailable:
    cards = devices.physical_functions(host)
    if not cards:
        return Unavailable(reason="no network card with SR-IOV", remedy=NEEDS_CARD)
    if not host.is_root():
        return _TAKEN_BY_ROOT
    return ", ".join(f"{card}: {devices.most_functions(host, card)} virtual functions" for card in cards)
