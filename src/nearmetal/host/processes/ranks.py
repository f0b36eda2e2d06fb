"""Reads the open TCP connections and shared writable memory of the ranks of a launch from /proc.

This module only reports connections and mappings. It does not judge them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from ...errors import RunError
from .. import cgroups

_BYTE_ORDER = sys.byteorder
#: Environment variables in which the MPI launchers pass the number of a rank.
_RANK = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK|PMIX_RANK|SLURM_PROCID)=([0-9]+)")
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")
_ESTABLISHED = b"01"
#: Parts of the names of segments that ranks share with their launcher (PMIx: dstore, shmem).
_LAUNCHERS = ("pmix", "dstor", "smlockseg", "smdataseg", "smseg", "initial")

Link = tuple[str, str]
"""Local and remote end of a TCP connection, each 'address:port'."""


@dataclass(frozen=True, kw_only=True)
class RankHolds:
    """Open connections and shared memory of a rank.

    memory: device and inode of its writable shared mappings.
    """

    links: frozenset[Link]
    memory: frozenset[tuple[str, str]]


def rank_holdings(mark: str, groups: Sequence[Path]) -> dict[int, RankHolds]:
    """Return the connections and mappings by rank, from living processes with 'NAME=value' (mark) in their
    environment.

    groups: control groups of the processes, including groups below them; if empty, every process of the
        machine is examined.

    Values that may not be read are missing.
    """
    below = [Path(top) for group in groups for top, _, _ in os.walk(group)]
    pids = (
        cgroups.members(below)
        if groups
        else {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
    )
    found: dict[int, RankHolds] = {}
    tables: dict[tuple[int, int], Mapping[str, Link]] = {}
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            rank = _RANK.search(environ)
            if rank is None or mark.encode() not in environ.split(b"\0"):
                continue
            network = Path(f"/proc/{pid}/ns/net").stat()
            key = network.st_dev, network.st_ino
            if key not in tables:
                tables[key] = _connections(pid)
            number, before = int(rank[1]), found.get(int(rank[1]))
            links = {tables[key][inode] for inode in _sockets(pid) if inode in tables[key]}
            memory = shared_mappings(Path(f"/proc/{pid}/maps").read_text(errors="replace"))
            # A rank may have several processes: wrappers that pin it or enter its instance, and its children.
            found[number] = RankHolds(
                links=frozenset(links) | (before.links if before else frozenset()),
                memory=memory | (before.memory if before else frozenset()),
            )
    return found


def _sockets(pid: int) -> Iterable[str]:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            held = _SOCKET.fullmatch(str(Path(entry.path).readlink()))
            if held:
                yield held[1]


def _connections(pid: int) -> dict[str, Link]:
    """Return the connections by inode in the network namespace of a process."""
    out: dict[str, Link] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            out |= established(Path(f"/proc/{pid}/net/{name}").read_bytes())
    return out


def established(table: bytes) -> dict[str, Link]:
    """Parse /proc/net/tcp or tcp6 and return the ends of the established connections by inode."""
    out: dict[str, Link] = {}
    for line in table.splitlines()[1:]:
        words = line.split(None, 10)
        if len(words) > 9 and words[3] == _ESTABLISHED:
            out[words[9].decode()] = _endpoint(words[1]), _endpoint(words[2])
    return out


def _endpoint(text: bytes) -> str:
    """Format an address: '127.0.0.1:80' for b'0100007F:0050', which has 32-bit words in the machine's byte
    order.
    """
    address, _, port = text.decode().partition(":")
    raw = b"".join(int(address[at : at + 8], 16).to_bytes(4, _BYTE_ORDER) for at in range(0, len(address), 8))
    if len(raw) == 16:
        wide = IPv6Address(raw)
        name = str(wide.ipv4_mapped) if wide.ipv4_mapped else f"[{wide}]"
    else:
        name = ".".join(map(str, raw))
    return f"{name}:{int(port, 16)}"


def shared_mappings(maps: str) -> frozenset[tuple[str, str]]:
    """Parse /proc/<pid>/maps and return the writable shared mappings, except those that a rank shares with
    its launcher.
    """
    out: set[tuple[str, str]] = set()
    for line in maps.splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[1][1:4:2] == "ws":
            last = words[5].rpartition("/")[2]
            if not any(name in last for name in _LAUNCHERS):
                out.add((words[3], words[4]))
    return frozenset(out)


def parse_holdings(text: str, where: str) -> dict[int, RankHolds]:
    """Parse the output of `nm-guest holdings`, which lists the connections and shared memory of the ranks in
    a guest.

    The result maps each rank to its RankHolds. The program is kernels/guest/holdings.c.

    where: the guest, for the error.

    Raises RunError for any other text.
    """
    try:
        return _holdings(text)
    except (ValueError, OverflowError) as e:
        raise RunError(f"nm-guest printed no connections and shared memory: {e}", where=where) from e


def _holdings(text: str) -> dict[int, RankHolds]:
    links: dict[int, set[Link]] = {}
    maps: dict[int, list[str]] = {}
    rank = -1
    for line in text.splitlines():
        first, _, rest = line.partition(" ")
        if first == "maps":
            maps.setdefault(rank, []).append(rest)
            continue
        words = rest.split(" ")
        rank = int(first)
        own = links.setdefault(rank, set())
        if words[0] == "link":
            _, near, far = words
            own.add((_endpoint(near.encode()), _endpoint(far.encode())))
    return {
        rank: RankHolds(links=frozenset(own), memory=shared_mappings("\n".join(maps.get(rank, []))))
        for rank, own in links.items()
    }
