"""Counters before and after a trial, per node and per instance, and the CPU time of other processes in
between.

Granularity: CPU time of instances (cgroup version 1 cpuacct.usage, version 2 usage_usec) and of a version 1
root comes from the scheduler's clock, and lacks at most the last tick of a running task. A version 2 root and
/proc/stat are sampled at ticks (up to 10 ms per CPU). A share is therefore known only to within
`share_resolution`, at worst 10 ms per CPU: 0.25 % over a block of 4 s, 10 % over a trial of 0.1 s. flags()
requires a share to exceed its threshold by that much.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base import Host
from .files import cgroup_paths, node_paths, read_files
from .procfiles import LEVELS, MAY_FALL, Counters, CounterUnits, instance_counters, node_counters

OTHER_CPU_LIMIT = 0.02
STEAL_LIMIT = 0.01
_COARSEST_TICK = 0.01

#: Levels whose difference has no meaning.
_LEVELS = frozenset(("load1", "load5", "load15", "memory_total", "swap_total"))
_MAY_FALL = LEVELS | MAY_FALL


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Raw contents of counter files by name, which are parsed only when a difference is computed.

    node: whether they are those of the node; otherwise those of an instance.
    """

    node: bool
    files: Mapping[str, bytes]


def local_scale() -> CounterUnits:
    """Return the units in which this machine's kernel counts."""
    return CounterUnits(tick=os.sysconf("SC_CLK_TCK"), page=os.sysconf("SC_PAGE_SIZE"))


def snapshot(host: Host, cgroups: Mapping[str, Path] | None = None) -> Snapshot:
    """Read the counters of the node, or of an instance's cgroups, now. Takes about 0.1 ms.

    cgroups: directory by controller of version 1, or {'unified': directory}; if empty, all counters are
        unavailable.
    """
    paths = node_paths(host) if cgroups is None else cgroup_paths(cgroups)
    return Snapshot(node=cgroups is None, files=read_files(host, paths))


def delta(before: Snapshot, after: Snapshot, seconds: float) -> Counters:
    """Return the differences of two snapshots of the same node or instance, in base units, and 'seconds'
    itself.

    For levels (memory, swap) the change is returned. A value is None if either snapshot lacks it, or if the
    counter ran backwards.
    seconds: time between the snapshots.
    """
    parse = node_counters if after.node else instance_counters
    scale = local_scale()
    first, last = parse(before.files, scale), parse(after.files, scale)
    out: Counters = {"seconds": seconds}
    for name, value in last.items():
        if name not in _LEVELS:
            had = first.get(name)
            if had is None or value is None or (value < had and name not in _MAY_FALL):
                out[name] = None  # a counter that ran backwards was reset: unknown, not negative
            else:
                out[name] = value - had
    return out


def online_cpus(node: Snapshot) -> int:
    return node.files.get("stat", b"").count(b"\ncpu")


def disturbance(
    node: Mapping[str, float | None],
    instances: Iterable[Mapping[str, float | None]],
    own_cpu_seconds: float,
    seconds: float,
    cpus: int,
) -> dict[str, float | None]:
    """Return the shares of a node's CPU time that went to others than the instances; None for an unknown
    share.

    node: difference of the node's counters.
    instances: difference of the counters of each instance.
    own_cpu_seconds: CPU time of this process. It does not include ranks, which only cgroups count.
    seconds, cpus: wall time and number of CPUs. A share is relative to their product.

    other_cpu_share: CPU time of other processes: busy time of the node, minus that of all instances and of
        this process. None if an instance has no counter of its CPU time.
    steal_share: time that the hypervisor gave to others.
    share_resolution: resolution of both shares.
    """
    whole = seconds * cpus
    if whole <= 0:
        return {"other_cpu_share": None, "steal_share": None, "share_resolution": None}
    busy, steal = node.get("busy"), node.get("steal")
    used = [counters.get("cpu") for counters in instances]
    known = [cpu for cpu in used if cpu is not None]
    other = None
    if busy is not None and len(known) == len(used):
        other = max(0.0, busy - sum(known) - own_cpu_seconds) / whole
    return {
        "other_cpu_share": other,
        "steal_share": steal / whole if steal is not None else None,
        "share_resolution": _COARSEST_TICK * cpus / whole,
    }


def flags(disturbance: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return 'disturbed: ...' with the share, if a share exceeds its limit by more than its resolution.

    The limits are 2 % for other processes and 1 % for steal. An unavailable share gives no flag; it is None
    in the record.
    """
    resolution = disturbance.get("share_resolution") or 0.0
    found = []
    for name, limit, what in (
        ("other_cpu_share", OTHER_CPU_LIMIT, "other processes"),
        ("steal_share", STEAL_LIMIT, "steal"),
    ):
        share = disturbance.get(name)
        if share is not None and share - resolution > limit:
            found.append(f"disturbed: {what} {share * 100:.1f} % of the CPU")
    return tuple(found)
