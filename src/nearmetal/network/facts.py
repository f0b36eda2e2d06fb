"""Reads the settings that govern TCP in one network namespace from the kernel.

This is part of the worker. It must run inside the namespace, since /proc/sys/net shows the namespace of the
reading process."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from ..host import ethtool

Json = dict[str, Any]

RTO_MIN_LOCK = 1 << 13  # of RTAX_RTO_MIN
_MAIN = 254  # RT_TABLE_MAIN
_MODES = {"macvlan": "IFLA_MACVLAN_MODE", "macvtap": "IFLA_MACVTAP_MODE", "ipvlan": "IFLA_IPVLAN_MODE"}


def facts(ip: IPRoute, plain: socket.socket, interface: str, index: int) -> Json:
    """Return the settings of one interface, and of the route through it.

    rto_min: seconds; None before Linux 6.11 if no route sets it, which means 200 ms.
    rate: bytes per second of a tbf; None without one.
    mode: the kernel's number or name of the mode; None if the kind has no mode.
    """
    link = ip.get_links(index)[0]
    info = link.get_attr("IFLA_LINKINFO")
    kind = info.get_attr("IFLA_INFO_KIND") if info is not None else None
    data = info.get_attr("IFLA_INFO_DATA") if info is not None else None
    metrics = _metrics(ip, index)
    least = sysctl("tcp_rto_min_us")
    default = int(least) / 1e6 if least is not None else None
    return {
        "interface": link.get_attr("IFLA_IFNAME"),
        "kind": kind,
        "mode": data.get_attr(_MODES[kind]) if kind in _MODES and data is not None else None,
        "mtu": link.get_attr("IFLA_MTU"),
        "queue_length": link.get_attr("IFLA_TXQLEN"),
        "qdisc": link.get_attr("IFLA_QDISC"),
        "rate": _rate(ip, index),
        "congestion_control": metrics.get("RTAX_CC_ALGO") or sysctl("tcp_congestion_control"),
        "rto_min": metrics["RTAX_RTO_MIN"] / 1000 if _locked(metrics) else default,
        **{name: _offload(plain, interface, name) for name in ethtool.OFFLOADS},
    }


def _metrics(ip: IPRoute, index: int) -> Json:
    """Return the metrics of the widest route through the interface."""
    found = [r for r in ip.get_routes(family=socket.AF_INET, table=_MAIN) if r.get_attr("RTA_OIF") == index]
    widest = min(found, key=lambda r: r["dst_len"], default=None)
    metrics = widest.get_attr("RTA_METRICS") if widest is not None else None
    return dict(metrics["attrs"]) if metrics is not None else {}


def _locked(metrics: Json) -> bool:
    """Return whether the route's rto_min is locked. Sockets ignore it otherwise."""
    return "RTAX_RTO_MIN" in metrics and bool(metrics.get("RTAX_LOCK", 0) & RTO_MIN_LOCK)


def _rate(ip: IPRoute, index: int) -> int | None:
    for q in ip.get_qdiscs(index):
        options = q.get_attr("TCA_OPTIONS")
        if q.get_attr("TCA_KIND") == "tbf" and options is not None:
            return int(options.get_attr("TCA_TBF_PARMS")["rate"])
    return None


def _offload(plain: socket.socket, interface: str, name: str) -> bool | None:
    with contextlib.suppress(OSError):
        return ethtool.switched(plain, interface, name)
    return None


def sysctl(name: str) -> str | None:
    """Read a setting below net.ipv4; None if the kernel does not have it."""
    path = Path("/proc/sys/net/ipv4", name)
    return path.read_text().strip() if path.exists() else None


def write_sysctl(name: str, value: str) -> None:
    """Write a setting below net.ipv4.

    Raises OSError.
    """
    Path("/proc/sys/net/ipv4", name).write_text(value)
