"""Finds differences between the machines of a cluster in their provenances. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.record import section

UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class NodeDifference:
    """A fact that is not the same on all nodes.

    what: name of the fact.
    values: for each value, the names of the nodes that have it. The most common value comes first.
    """

    what: str
    values: Mapping[str, tuple[str, ...]]


def node_facts(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a machine that are compared between nodes, as short texts by name."""
    return {name: _shown(read(provenance)) for name, read in _FACTS.items()}


def differences(facts: Mapping[str, Mapping[str, str]]) -> tuple[NodeDifference, ...]:
    """Return the facts that differ between nodes, in the order of the facts.

    facts: facts of each node by name; a fact that a node lacks is UNKNOWN.
    """
    found = []
    for what in dict.fromkeys(name for own in facts.values() for name in own):
        by_value: dict[str, list[str]] = {}
        for node, own in facts.items():
            by_value.setdefault(own.get(what, UNKNOWN), []).append(node)
        if len(by_value) > 1:
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            found.append(NodeDifference(what=what, values={v: tuple(nodes) for v, nodes in ordered}))
    return tuple(found)


def alike(facts: Mapping[str, Mapping[str, str]], found: tuple[NodeDifference, ...]) -> dict[str, str]:
    """Return the facts that all nodes share, with their values."""
    differing = {d.what for d in found}
    first = next(iter(facts.values()), {})
    return {what: value for what, value in first.items() if what not in differing}


def _of(*path: str) -> Callable[[Mapping[str, Any]], object]:
    def read(provenance: Mapping[str, Any]) -> object:
        found: Any = provenance
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    return read


def _memory(provenance: Mapping[str, Any]) -> object:
    size = section(provenance, "memory").get("bytes")
    return f"{size / 2**30:.3g} GiB" if isinstance(size, int) else size


def _cpus(provenance: Mapping[str, Any]) -> object:
    usable = section(provenance, "cpu").get("usable")
    return str(len(usable)) if isinstance(usable, list) else usable


def _cache(provenance: Mapping[str, Any]) -> object:
    size = section(provenance, "cpu").get("last_level_bytes")
    return f"{size / 2**20:.4g} MiB" if isinstance(size, int) else size


def _mitigations(provenance: Mapping[str, Any]) -> object:
    known = provenance.get("mitigations")
    if not isinstance(known, Mapping) or "unavailable" in known:
        return known
    states = {n: str(state).partition(";")[0].removeprefix("Mitigation: ") for n, state in known.items()}
    words = (f"{name}: {state}" for name, state in states.items() if state != "Not affected")
    return ", ".join(words) or "none needed"


def _flags(provenance: Mapping[str, Any]) -> object:
    flags = section(provenance, "cpu").get("flags")
    if not isinstance(flags, list):
        return flags
    return " ".join(str(f) for f in flags if re.match(r"avx|sse4_2|sve|amx", str(f)))


_FACTS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "kernel": _of("kernel", "release"),
    "kernel build": _of("kernel", "version"),
    "kernel options": _of("kernel", "command_line"),
    "CPU model": _of("cpu", "model"),
    "microcode": _of("cpu", "microcode"),
    "CPUs": _cpus,
    "last-level cache": _cache,
    "vector units": _flags,
    "clock source": _of("settings", "clock_source"),
    "governor": _of("settings", "governor"),
    "turbo": _of("settings", "turbo"),
    "SMT": _of("settings", "smt"),
    "huge pages": _of("settings", "transparent_hugepages"),
    "NUMA balancing": _of("settings", "numa_balancing"),
    "mitigations": _mitigations,
    "machine": _of("hypervisor", "product"),
    "memory": _memory,
    "MPI": _of("versions", "mpi"),
    "C compiler": _of("versions", "c_compiler"),
    "libc": _of("versions", "libc"),
    "distribution": _of("distribution"),
    "control groups": _of("cgroup"),
    "Python": _of("versions", "python"),
    "nearmetal": _of("versions", "nearmetal"),
}
"""How each compared fact is read from a provenance."""


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"not known: {value.get('unavailable', 'no value')}"
    return str(value).strip() or "none" if value is not None else UNKNOWN
