"""Network cards of the machine that a run has moved to a network namespace of its own, and their return."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import RunError
from . import ethtool, namespaces
from .facts.devices import TAKEN, checked_device
from .labels import owns
from .notes import Card, Note

NETWORK_DEVICES = Path("/sys/class/net")


def offloads(name: str) -> dict[str, bool]:
    """Return whether each offload of a card is on. Those that it does not have are left out."""
    out: dict[str, bool] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        for offload in ethtool.OFFLOADS:
            with contextlib.suppress(OSError):
                out[offload] = ethtool.switched(plain, name, offload)
    return out


def give_back(note: Note) -> None:
    """Move a card back to the machine, and restore its settings.

    Only a card with the mark of the run is changed. The mark goes last, so that a later call can finish what
    an earlier one has begun.

    Raises RunError if the card is not as it was before.
    """
    card = note.change
    assert isinstance(card, Card)
    checked_device(card.name)
    try:
        _move_back(card, note.label)
        if _is_taken(_alias(card.name), note.label):
            _restore(card)
    except OSError as e:
        raise _not_restored(card, e.strerror or str(e)) from e


@contextmanager
def route_socket() -> Iterator[Any]:
    """Yield a route socket (pyroute2.IPRoute) of this thread's network namespace.

    Raises OSError if the kernel refuses a request.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as e:
        raise OSError(e.code, os.strerror(e.code)) from e


def marked_devices(ip: Any) -> dict[str, str]:
    """Return the alias of each device with the mark of a run in a network namespace, by name.

    ip: route socket of the namespace.
    """
    found = ((link.get_attr("IFLA_IFNAME"), str(link.get_attr("IFLA_IFALIAS"))) for link in ip.get_links())
    return {name: alias for name, alias in found if alias.endswith(TAKEN)}


def _is_taken(alias: str, label: str) -> bool:
    return alias.endswith(TAKEN) and owns(label, alias.removesuffix(TAKEN))


def _alias(name: str) -> str:
    return (NETWORK_DEVICES / name / "ifalias").read_text(errors="replace").strip()


def _move_back(card: Card, label: str) -> None:
    """Move a card from the namespace of the run. It may be back already: the kernel returns hardware devices
    when their namespace ends."""
    netns = Path(card.netns)
    if netns.parent != namespaces.NETNS_DIRECTORY or not owns(label, netns.name):
        raise RunError(f"{netns} is not a network namespace of {label}")
    if not namespaces.is_network_namespace(card.netns):
        return
    with (
        Path("/proc/thread-self/ns/net").open("rb") as own,
        namespaces.entered(card.netns),
        route_socket() as ip,
    ):
        if _is_taken(marked_devices(ip).get(card.name, ""), label):
            ip.link("set", index=ip.link_lookup(ifname=card.name)[0], net_ns_fd=own.fileno())


def _restore(card: Card) -> None:
    with route_socket() as ip, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        index = ip.link_lookup(ifname=card.name)[0]
        ip.link("set", index=index, state="down", mtu=card.mtu, txqlen=card.queue_length)
        for offload, on in card.offloads.items():
            ethtool.switch(plain, card.name, offload, on)
        ip.link("set", index=index, state="up" if card.up else "down")
        link = ip.get_links(index)[0]
        wanted = {"IFLA_MTU": card.mtu, "IFLA_TXQLEN": card.queue_length}
        wrong = [f"{k} is {v}" for k, w in wanted.items() if (v := link.get_attr(k)) != w]
        wrong += ["it is down"] if card.up and not link["flags"] & 1 else []
        there = offloads(card.name)
        wrong += [f"{name} is {there[name]}" for name, on in card.offloads.items() if there[name] != on]
        if wrong:
            raise _not_restored(card, ", ".join(wrong))
        ip.link("set", index=index, ifalias=card.alias)
    if _alias(card.name) != card.alias:
        raise _not_restored(card, "it still has the mark of a run")


def _not_restored(card: Card, why: str) -> RunError:
    remedy = f"ip link set {card.name} mtu {card.mtu} txqueuelen {card.queue_length}"
    return RunError(f"network card {card.name} is not restored: {why}", remedy=remedy)
