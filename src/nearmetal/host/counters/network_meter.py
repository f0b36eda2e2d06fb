"""Reads the counters of one network namespace, through files of /proc/net and netlink sockets opened inside
it. These belong to the namespace wherever they are used, so the tool itself need not enter it again."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from ...model.record import Connection
from ...model.scope import Scope
from ..namespaces import entered
from .files import opened, whole_file
from .netlink import (
    ROUTE,
    SOCK_DIAG,
    Qdisc,
    connection_request,
    dump,
    link_request,
    open_netlink,
    parse_connections,
    parse_links,
    parse_qdiscs,
    qdisc_request,
)
from .network_files import (
    PROBES,
    RETRANSMITTED,
    TIMEOUTS,
    device_counters,
    protocol_counters,
    segments_sent_again,
    softnet_counters,
)
from .procfiles import Counters

FILES = ("netstat", "snmp", "dev", "softnet_stat")
MARKED = (TIMEOUTS, RETRANSMITTED, PROBES)
PROTOCOLS = "protocols"  # netstat and snmp
QDISCS = "qdisc"
_SOCKETS = {"route": ROUTE, "diag": SOCK_DIAG}
DESCRIPTORS = len(FILES) + len(_SOCKETS)
_LEVELS = ("backlog",)

_QDISC_REQUEST = qdisc_request()


class NetworkMeter:
    """A meter of one network namespace. It owns its descriptors, so it must be closed.

    last_mark: result of the last mark(); all values are None before the first.
    """

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._files = {name: fd for name, fd in descriptors.items() if name in FILES}
        self._sockets = {
            name: open_netlink(protocol, descriptors[name])
            for name, protocol in _SOCKETS.items()
            if name in descriptors
        }
        self._names: dict[int, str] = {}
        self._netstat: tuple[bytes, Counters] | None = None
        self.last_mark: Counters = dict.fromkeys(MARKED)

    @classmethod
    def of_process(cls, pid: int) -> NetworkMeter:
        """Make a meter of another process's namespace. Without root, only its files can be opened."""
        try:
            with entered(f"/proc/{pid}/ns/net"):
                return cls(open_descriptors())
        except OSError:
            return cls(opened({name: f"/proc/{pid}/net/{name}" for name in FILES}))

    def read(self, source: str) -> bytes | None:
        """Return the raw counters of a source, one of FILES and QDISCS; None if they cannot be read. It takes
        2 to 15 µs."""
        with contextlib.suppress(OSError):
            if source in self._files:
                return whole_file(self._files[source])
            if source == QDISCS and "route" in self._sockets:
                return dump(self._sockets["route"], _QDISC_REQUEST)
        return None

    def mark(self) -> Counters:
        """Return the current numbers of retransmission timeouts, retransmitted segments and tail loss probes.

        Timeouts and most probes retransmit a segment. The file snmp counts retransmitted segments, and
        netstat counts timeouts and probes but takes three times as long to read. So netstat is read only if
        the count of snmp has changed.
        """
        again = segments_sent_again(self.read("snmp") or b"")
        if again is None or again != self.last_mark[RETRANSMITTED]:
            more = self._read_netstat()
            self.last_mark = {**{name: more.get(name) for name in MARKED}, RETRANSMITTED: again}
        return self.last_mark

    def _read_netstat(self) -> Counters:
        return protocol_counters("netstat", self.read("netstat") or b"")

    def protocols(self) -> Counters:
        """Return the present counters of snmp and netstat.

        netstat is read only if snmp has changed, because it takes longest to read. Its counters can only
        change when a segment or datagram is received, sent or retransmitted, which snmp counts. Between the
        trials of an arm, nothing changes in its own network.
        """
        snmp = self.read("snmp") or b""
        if self._netstat is None or self._netstat[0] != snmp or not snmp:
            self._netstat = snmp, self._read_netstat() | protocol_counters("snmp", snmp)
        return self._netstat[1]

    def connections(self, scope: Scope) -> list[Connection] | None:
        """Return the established TCP connections; None if the kernel does not report them.

        The kernel searches the connections of all namespaces for this, which takes 0.2 ms or more on a large
        machine.
        """
        if "diag" not in self._sockets:
            return None
        try:
            return parse_connections(dump(self._sockets["diag"], connection_request()), scope)
        except OSError:
            return None

    def device_name(self, index: int) -> str:
        """Return the name of a device, such as 'eth0'; its index if the name is unknown."""
        if index not in self._names and "route" in self._sockets:
            with contextlib.suppress(OSError):
                self._names = parse_links(dump(self._sockets["route"], link_request()))
        return self._names.get(index, str(index))

    def counters(self, sources: Iterable[str], devices: Container[str] | None = None) -> Counters:
        """Return those counters of the sources that the kernel has, by name.

        sources: some of PROTOCOLS, 'dev', 'softnet_stat' and QDISCS.
        devices: network devices whose counters are returned; None for all of them.
        """
        out: Counters = {}
        for source in sources:
            if source == PROTOCOLS:
                out |= self.protocols()
                continue
            text = self.read(source)
            if text is None:
                continue
            if source == "dev":
                out |= device_counters(text, devices)
            elif source == "softnet_stat":
                out |= softnet_counters(text)
            elif source == QDISCS:
                out |= self._queues(parse_qdiscs(text), devices)
        return out

    def _queues(self, qdiscs: Iterable[Qdisc], devices: Container[str] | None) -> Counters:
        """Return the counters of queueing disciplines, named 'qdisc.<device>.<kind>.drops' and so on.

        Queues of the same kind on one device are added.
        """
        out: Counters = {}
        for q in qdiscs:
            device = self.device_name(q.device)
            if devices is not None and device not in devices:
                continue
            name = f"qdisc.{device}.{q.kind}"
            for what in ("drops", "overlimits", "requeues", "backlog"):
                key = f"{name}.{what}"
                out[key] = (out.get(key) or 0.0) + getattr(q, what)
        return out

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        for s in self._sockets.values():
            s.close()
        self._files, self._sockets = {}, {}


def open_descriptors() -> dict[str, int]:
    """Open the files and sockets of the calling thread's network namespace and return them by name. Those
    that cannot be opened are missing."""
    out = opened({name: f"/proc/thread-self/net/{name}" for name in FILES})
    for name, protocol in _SOCKETS.items():
        with contextlib.suppress(OSError):
            out[name] = open_netlink(protocol).detach()
    return out


def grown(before: Counters, after: Counters) -> Counters:
    """Return the differences of counters; None if a value is missing or a counter has decreased.

    For levels (backlog) the later value is returned. Devices, queues and CPUs without activity are omitted.
    """
    out: Counters = {}
    busy: set[str] = set()
    kinds = _kinds(tuple(after))
    for name, thing, level in kinds:
        last, first = after[name], 0.0 if level else before.get(name)
        value = last - first if last is not None and first is not None and last >= first else None
        out[name] = value
        if thing and value != 0:
            busy.add(thing)
    for name, thing, _ in kinds:
        if thing and thing not in busy:
            del out[name]
    return out


@lru_cache(maxsize=256)
def _kinds(names: tuple[str, ...]) -> tuple[tuple[str, str, bool], ...]:
    """Return for each counter its name, its device, queue or CPU, and whether it is a level.

    The second value is '' if the counter covers the whole namespace. The result is cached, because a
    namespace always has the same counters.
    """
    out = []
    for name in names:
        thing = ""
        if name.startswith(("dev.", "qdisc.")):
            thing = name.rpartition(".")[0]
        elif name.startswith("softnet.dropped.cpu"):
            thing = name
        out.append((name, thing, name.endswith(_LEVELS)))
    return tuple(out)


# --- handing over ------------------------------------------------------------------------------------------


def hand_over(via: socket.socket, descriptors: Mapping[str, int]) -> None:
    """Send the descriptors of one namespace to the process at the other end. Raises OSError if it cannot
    receive them at once."""
    socket.send_fds(via, [" ".join(descriptors).encode()], list(descriptors.values()), socket.MSG_DONTWAIT)


def taken_over(via: socket.socket) -> NetworkMeter | None:
    """Receive the descriptors that hand_over() has sent, and return a meter of their namespace.

    Returns None if nothing was sent or the message is incomplete. Does not wait.
    """
    try:
        words, fds, flags, _ = socket.recv_fds(via, 256, DESCRIPTORS, socket.MSG_DONTWAIT)
    except OSError:
        return None
    names = words.decode().split()
    if flags & socket.MSG_CTRUNC or len(names) != len(fds) or not fds:
        for fd in fds:
            os.close(fd)
        return None
    for fd in fds:
        os.set_inheritable(fd, False)
    return NetworkMeter(dict(zip(names, fds, strict=True)))
