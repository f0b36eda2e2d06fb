"""Builds one bridged network and reads it back: a program of its own, since it moves between network
namespaces.

Reads the request of plan.request as JSON on standard input, writes what it read back as one line of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pyroute2
from pyroute2 import netns

from ..host.network_meter import hand_over, open_descriptors

Json = dict[str, Any]


def main() -> None:
    """Build; errors end the program with a traceback, whose last line the caller shows."""
    asked: Json = json.load(sys.stdin)
    for name in asked["create"]:
        netns.create(name)
    read_back = {"hub": _build_hub(asked)}
    meters = Meters(asked["meters"])
    meters.add()
    for name, seat in zip(_names(asked), asked["seats"], strict=True):
        read_back[name] = _settle_seat(asked, seat)
        meters.add()
    sys.stdout.write(json.dumps(read_back) + "\n")


class Meters:
    """Hands over what reads the counters of each namespace (host.network_meter), in their order, until the
    first that is not taken."""

    def __init__(self, descriptor: int | None) -> None:
        self._to = None if descriptor is None else socket.socket(fileno=descriptor)

    def add(self) -> None:
        """Of the namespace that this process is in now."""
        if self._to is None:
            return
        descriptors = open_descriptors()
        try:
            hand_over(self._to, descriptors)
        except OSError:
            self._to.close()
            self._to = None
        finally:
            for fd in descriptors.values():
                os.close(fd)


def _names(asked: Json) -> list[str]:
    return [f"seat {i}" for i in range(len(asked["seats"]))]


def _enter(path: str) -> pyroute2.IPRoute:
    """Move this process into a network namespace; a netlink socket there."""
    netns.setns(path, flags=0)
    return pyroute2.IPRoute()


def _build_hub(asked: Json) -> Json:
    hub = asked["hub"]
    with _enter(hub["netns"]) as ip:
        ip.link("add", ifname=hub["interface"], kind="bridge")
        bridge = ip.link_lookup(ifname=hub["interface"])[0]
        ip.link("set", index=bridge, ifalias=asked["alias"], state="up")
        ip.addr("add", index=bridge, address=hub["address"], prefixlen=asked["prefix"])
        ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        for seat in asked["seats"]:
            fd = os.open(seat["netns"], os.O_RDONLY | os.O_CLOEXEC)
            try:
                peer = {"ifname": seat["interface"], "net_ns_fd": fd}
                ip.link("add", ifname=seat["port"], kind="veth", peer=peer)
            finally:
                os.close(fd)
            port = ip.link_lookup(ifname=seat["port"])[0]
            ip.link("set", index=port, ifalias=asked["alias"], master=bridge, state="up")
        return _facts(ip, bridge)


def _settle_seat(asked: Json, seat: Json) -> Json:
    with _enter(seat["netns"]) as ip:
        device = ip.link_lookup(ifname=seat["interface"])[0]
        ip.addr("add", index=device, address=seat["address"], prefixlen=asked["prefix"])
        ip.link("set", index=device, ifalias=asked["alias"], state="up")
        ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        return _facts(ip, device)


def _facts(ip: pyroute2.IPRoute, device: int) -> Json:
    """What governs TCP here, read in the namespace itself: /proc/sys/net is that of the reading process.
    rto_min_us: None before Linux 6.11, which fixes it at 200 ms."""
    link = ip.get_links(device)[0]
    return {
        "interface": link.get_attr("IFLA_IFNAME"),
        "mtu": link.get_attr("IFLA_MTU"),
        "qdisc": link.get_attr("IFLA_QDISC"),
        "congestion_control": _sysctl("tcp_congestion_control"),
        "rto_min_us": int(value) if (value := _sysctl("tcp_rto_min_us")) is not None else None,
    }


def _sysctl(name: str) -> str | None:
    path = Path("/proc/sys/net/ipv4", name)
    return path.read_text().strip() if path.exists() else None


if __name__ == "__main__":
    main()
