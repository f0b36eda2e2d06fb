"""Finds which CPUs share a core, a socket or a NUMA node, from files in /sys that the hwloc library reads
too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Host, text_of

_CPU = "/sys/devices/system/cpu/cpu{}/topology/{}"
_NODE = "/sys/devices/system/node/{}"


@dataclass(frozen=True, kw_only=True)
class CpuTopology:
    """The CPUs of the machine and their order.

    order: the CPUs in the order in which ranks take them: one thread of every core first, socket by socket
        and NUMA node by NUMA node, then the further threads in the same order.
    adjacent: the CPUs with the threads of a core beside each other, socket by socket and NUMA node by NUMA
        node.
    cores: number of cores to which the CPUs belong.
    """

    order: tuple[int, ...]
    adjacent: tuple[int, ...]
    cores: int


def topology(host: Host, cpus: Sequence[int]) -> CpuTopology:
    """Return the topology of these CPUs. If the kernel does not report it, one socket of cores without
    threads is assumed."""
    nodes = _nodes(host)
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(cpus):
        siblings = ranges(text_of(host, _CPU.format(cpu, "thread_siblings_list"))) or (cpu,)
        cores.setdefault(siblings, []).append(cpu)
    places = {
        cpu: (thread, (_package(host, cpu), nodes.get(cpu, 0), own[0], cpu))
        for own in cores.values()
        for thread, cpu in enumerate(own)
    }
    return CpuTopology(
        order=tuple(sorted(places, key=places.__getitem__)),
        adjacent=tuple(sorted(places, key=lambda cpu: places[cpu][1])),
        cores=len(cores),
    )


def ranges(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs: '0-2,8' gives (0, 1, 2, 8). Any other text gives an empty result."""
    out: list[int] = []
    for part in text.strip().split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            return ()
        out += range(int(low), int(high or low) + 1)
    return tuple(out)


def _package(host: Host, cpu: int) -> int:
    text = text_of(host, _CPU.format(cpu, "physical_package_id")).strip()
    return int(text) if text.isdigit() else 0


def _nodes(host: Host) -> dict[int, int]:
    """Return the NUMA node of each CPU."""
    online = ranges(text_of(host, _NODE.format("online")))
    return {c: n for n in online for c in ranges(text_of(host, _NODE.format(f"node{n}/cpulist")))}
