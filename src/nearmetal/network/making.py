"""Builds networks as described by topology.py, and reads their settings back. Part of the
worker: it moves its process between network namespaces.

An error in one network does not stop the others."""

from __future__ import annotations

import errno
import os
import socket

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ..host import ethtool
from ..host.counters.network_meter import hand_over, open_descriptors
from ..host.facts.devices import TAKEN
from ..host.namespaces import join
from .facts import RTO_MIN_LOCK, Json, facts, write_sysctl

LOOPBACK = 1  # the index of lo in every namespace
_NETEM, _NETEM_CHILD = 0x10000, 0x10001
_LINK_SCOPE, _KERNEL = 253, 2  # RT_SCOPE_LINK, RTPROT_KERNEL
#: Defaults of a rate limiter: its queue holds what the link sends in LATENCY seconds. Its burst is what the
#: link sends in BURST_SECONDS, but at least a whole TSO segment (bytes).
LATENCY, BURST_SECONDS, LEAST_BURST = 0.1, 1e-3, 1 << 16


def make_networks(request: Json) -> Json:
    """Handle a request of plan.request(). Returns facts or an error for each network."""
    meters, own = Meters(request["meters"]), NamespaceSockets(None)
    try:
        return {"networks": [_network(n, own, meters) for n in request["networks"]]}
    finally:
        own.close()


class Meters:
    """Sends the meter descriptors of each namespace (host.counters.network_meter), in order, until the
    receiver refuses one."""

    def __init__(self, descriptor: int | None) -> None:
        self._to = None if descriptor is None else socket.socket(fileno=descriptor)

    def add(self) -> None:
        """Send the descriptors of the namespace that this process is in."""
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


class Step:
    """The current step, for messages.

    kind: kind of the link that is being made, '' otherwise.
    """

    def __init__(self) -> None:
        self.what = self.kind = ""

    def now(self, what: str, kind: str = "") -> None:
        self.what, self.kind = what, kind


class NamespaceSockets:
    """One network namespace, with route and ethtool sockets that stay in it.

    path: None for the machine's own.
    """

    def __init__(self, path: str | None) -> None:
        self.fd = os.open(path or "/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if path is not None:
            join(self.fd)
        self.ip = IPRoute()
        self._indices: dict[str, int] = {}
        self.plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def index(self, name: str) -> int:
        """Return the index of an interface.

        Raises LookupError if there is no such interface.
        """
        if name not in self._indices:
            found: list[int] = list(self.ip.link_lookup(ifname=name))
            if not found:
                raise LookupError(f"no interface {name}")
            self._indices[name] = found[0]
        return self._indices[name]

    def close(self) -> None:
        self.ip.close()
        self.plain.close()
        os.close(self.fd)


def _network(request: Json, own: NamespaceSockets, meters: Meters) -> Json:
    """Build one network.

    Returns {'facts': facts by place, 'relay': links whose delay a relay must apply}, or {'error': message,
    'kind': kind of the link that the kernel refused}.
    """
    places: dict[str, NamespaceSockets] = {}
    step = Step()
    relay: list[str] = []
    try:
        for name in request["places"]:
            places[name] = NamespaceSockets(request["paths"][name])
            places[name].ip.link("set", index=LOOPBACK, state="up")
        for link in request["links"]:
            relay += [] if make_link(link, own, places, request["label"], step) else [link["name"]]
        for route in request["routes"]:
            requested = {"rto_min": route["rto_min"], "congestion_control": route["congestion_control"]}
            with_what = "".join(f" with {k} {v}" for k, v in requested.items() if v is not None)
            step.now(f"route to {route['destination']}{with_what}")
            _route(route, places[route["at"]])
        found = {}
        for name, place in places.items():
            step.now(f"reading back {name}")
            join(place.fd)
            if name in request["forwarding"]:
                write_sysctl("ip_forward", "1")
            interface = request["report"][name]
            found[name] = facts(place.ip, place.plain, interface, place.index(interface))
            meters.add()
        return {"facts": found, "relay": relay}
    except (NetlinkError, OSError, LookupError) as e:
        return {"error": f"{step.what}: {e.args[1] if len(e.args) > 1 else e}", "kind": step.kind}
    finally:
        join(own.fd)
        for place in places.values():
            place.close()


def make_link(
    link: Json, own: NamespaceSockets, places: dict[str, NamespaceSockets], label: str, step: Step
) -> bool:
    """Make a link as described by topology.Link, and configure it. Returns False if a relay must apply its
    delay."""
    place, name = places[link["at"]], link["name"]
    alias = label
    step.now(f"{link['kind']} {name}", link["kind"])
    if link["kind"] == "device":
        alias = f"{label}{TAKEN}"
        # Marked first: after a kill -9 between the two calls, only a marked device is given back.
        own.ip.link("set", index=own.index(name), ifalias=alias)
        own.ip.link("set", index=own.index(name), net_ns_fd=place.fd)
    elif link["kind"] != "end":
        _add(link, places)
    index = place.index(name)
    step.now(f"setting up {name}")
    delayed = link["delay"] is not None and _delay(link, place, index)
    relayed = link["delay"] is not None and not delayed
    wanted: Json = {"ifalias": alias}
    if link["mtu"] is not None:
        wanted["mtu"] = link["mtu"]
    if link["queue_length"] is not None:
        wanted["txqlen"] = link["queue_length"]
    if link["master"] is not None and not relayed:
        wanted["master"] = place.index(link["master"])
    for offload, on in link["offloads"].items():
        step.now(f"offload {offload} {'on' if on else 'off'} of {name} ({link['kind']})")
        ethtool.switch(place.plain, name, offload, on)
    step.now(f"address and queue of {name}")
    if link["address"] is not None:
        address, _, prefix = link["address"].partition("/")
        place.ip.addr("add", index=index, address=address, prefixlen=int(prefix))
    place.ip.link("set", index=index, state="up", **wanted)
    if link["hairpin"]:
        place.ip.brport("set", index=index, mode=1)
    if link["rate"] is not None:
        rate = round(link["rate"])
        burst = link["burst"] or max(round(rate * BURST_SECONDS), LEAST_BURST)
        limit = link["queue"] or round(rate * LATENCY) + burst
        below: Json = {"parent": _NETEM_CHILD, "handle": 0x20000} if delayed else {}
        place.ip.tc("add", "tbf", index, rate=rate, burst=burst, limit=limit, **below)
    return not relayed


def _delay(link: Json, place: NamespaceSockets, index: int) -> bool:
    """Let the kernel delay packets. Returns False if the kernel has no netem."""
    try:
        place.ip.tc("add", "netem", index, handle=_NETEM, delay=round(link["delay"] * 1e6), limit=10_000)
    except NetlinkError as e:
        if e.code not in (errno.ENOENT, errno.EOPNOTSUPP):
            raise
        return False
    return True


def _add(link: Json, places: dict[str, NamespaceSockets]) -> None:
    at, made_at = link["at"], link["made_at"] or link["at"]
    wanted: Json = {"ifname": link["name"], "kind": link["kind"], **link["options"]}
    if link["peer"] is not None:
        there, name = link["peer"]
        wanted["peer"] = {"ifname": name}
        if there != at:
            wanted["peer"]["net_ns_fd"] = places[there].fd
    if link["over"] is not None:
        key = "vxlan_link" if link["kind"] == "vxlan" else "link"
        wanted[key] = places[made_at].index(link["over"])
    if made_at != at:
        wanted["net_ns_fd"] = places[at].fd
    places[made_at].ip.link("add", **wanted)


def _route(route: Json, place: NamespaceSockets) -> None:
    """Add a route, replacing the kernel's own to the same destination."""
    metrics: Json = {}
    if route["rto_min"] is not None:
        # Without the lock, sockets ignore it (tcp_rto_min() in net/ipv4/tcp_output.c; ip route sets the lock
        # by default).
        metrics |= {"lock": RTO_MIN_LOCK, "rto_min": round(route["rto_min"] * 1000)}
    if route["congestion_control"] is not None:
        metrics["cc_algo"] = route["congestion_control"]
    wanted: Json = {"dst": route["destination"], "oif": place.index(route["interface"])}
    if route["via"] is not None:
        wanted["gateway"] = route["via"]
    else:
        wanted |= {"scope": _LINK_SCOPE, "proto": _KERNEL}
    if metrics:
        wanted["metrics"] = metrics
    place.ip.route("replace", **wanted)
