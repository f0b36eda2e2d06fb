"""What the instances of an arm counted over the timed runs of a workload, as figures of its nodes. Pure.

A guest counts by its own kernel; an instance without one has only its control groups, which tell user and
system time but not why it did not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from ..model.record import TrialRecord
from ..model.scope import GUEST, INSTANCE, Scope
from ..model.study import Arm
from .guests import Accounting, GuestCpu, GuestMemory, combined, mean_memory, node_cpu

Counters = Mapping[str, float | None]

CPU = ("user", "system", "wait", "idle", "steal")
"""Shares, in the order of the paper's figures."""
MEMORY = ("committed", "swap", "free", "inactive", "active")
"""committed: bytes; the others shares of it."""
RATES = ("blocks received", "blocks sent", "interrupts", "context switches")
"""A second; blocks in bytes. 'received' is what was read from a device, as the paper says it."""
_SOURCES = ("blocks_in", "blocks_out", "interrupts", "context_switches")
_LAST_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, kw_only=True)
class InstanceFigures:
    """Medians over the trials of an arm; what no trial tells is left out.

    trials: number of trials that told anything.
    kernels: whether each instance counts by a kernel of its own.
    instances: shares of each instance's CPU time by CPU, in their order on a node.
    node: shares of the CPU time of a node (without steal), and 'excess'.
    memory: by MEMORY, of one virtual machine.
    rates: by RATES, summed over the instances of a node.
    mean_rates: by RATES, of one instance.
    run_delay: share of its time for which a vCPU waited for a CPU, as the host counts.
    accounting: CPU time that a virtual machine accounts for, over what its vCPU threads ran.
    clock_ahead, clock_error, clock_drift: seconds, the largest.
    """

    arm: str
    workload: str
    trials: int
    kernels: bool
    instances: tuple[Mapping[str, float], ...] = ()
    node: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    mean_rates: Mapping[str, float] = field(default_factory=dict)
    run_delay: float | None = None
    accounting: float | None = None
    clock_ahead: float | None = None
    clock_error: float | None = None
    clock_drift: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Trial:
    instances: Sequence[Mapping[str, float]]
    node: Mapping[str, float]
    memory: Mapping[str, float]
    rates: Mapping[str, float]
    mean_rates: Mapping[str, float]
    run_delay: float | None
    accounting: float | None
    clocks: Mapping[str, float]


def instance_figures(arm: Arm, workload: str, trials: Iterable[TrialRecord]) -> InstanceFigures | None:
    """None where no trial counted anything over runs of that workload."""
    found, kernels = [], False
    for t in trials:
        own = {of: c for text, c in t.counters.items() if (of := Scope.parse(text)).runs == workload}
        guests = _by_instance(own, GUEST)
        groups = _by_instance(own, INSTANCE)
        if groups or guests:
            kernels = bool(guests)
            found.append(_trial(arm, guests, groups))
    if not found:
        return None
    return InstanceFigures(
        arm=arm.name,
        workload=workload,
        trials=len(found),
        kernels=kernels,
        instances=tuple(
            _medians([t.instances[i] for t in found]) for i in range(min(len(t.instances) for t in found))
        ),
        node=_medians([t.node for t in found]),
        memory=_medians([t.memory for t in found]),
        rates=_medians([t.rates for t in found]),
        mean_rates=_medians([t.mean_rates for t in found]),
        run_delay=_median([t.run_delay for t in found]),
        accounting=_median([t.accounting for t in found]),
        clock_ahead=_largest([t.clocks.get("clock_ahead") for t in found]),
        clock_error=_largest([t.clocks.get("clock_error") for t in found]),
        clock_drift=_largest([t.clocks.get("clock_drift") for t in found]),
    )


def _by_instance(scopes: Mapping[Scope, Counters], kind: str) -> list[Counters]:
    """In the order of their numbers, which end their names."""
    found = [of for of in scopes if of.kind == kind]
    return [scopes[of] for of in sorted(found, key=lambda of: _number(of.name))]


def _number(name: str) -> int:
    found = _LAST_NUMBER.search(name)
    return int(found[1]) if found else 0


def _trial(arm: Arm, guests: Sequence[Counters], groups: Sequence[Counters]) -> _Trial:
    own = guests or groups
    shares = [shares_of(c) if guests else _group_shares(c, arm) for c in own]
    each = arm.placement.instances
    nodes = [range(n, n + each) for n in range(0, len(own), each)]
    memory = [m for c in guests if (m := memory_of(c)) is not None]
    accounts = [_accounting(g, i) for g, i in zip(guests, groups, strict=False)]
    rates = [rates_of(c) for c in own]
    known = [name for name in RATES if all(name in r for r in rates)]
    both = {name: combined([r[name] for r in rates]) for name in known}
    whole = mean_memory(memory) if memory and len(memory) == len(guests) else None
    return _Trial(
        instances=[s for s in shares if s],
        node=_medians([_node([shares[i] for i in node if i < len(own)], own, arm) for node in nodes]),
        memory={"committed": whole.committed, **whole.shares()} if whole is not None else {},
        rates={name: b.sum / len(nodes) for name, b in both.items()},
        mean_rates={name: b.mean for name, b in both.items()},
        run_delay=_mean([_delay(a, c) for a, c in zip(accounts, groups, strict=False)]),
        accounting=_mean([a.ratio if a is not None and a.host > 0 else None for a in accounts]),
        clocks={
            name: max(values, key=abs)
            for name in ("clock_ahead", "clock_error", "clock_drift")
            if (values := [v for c in guests if (v := c.get(name)) is not None])
        },
    )


def shares_of(c: Counters) -> dict[str, float]:
    """Of the time that a kernel counted on all its CPUs; empty where it does not tell."""
    parts = {
        "user": _sum(c, "user", "nice"),
        "system": _sum(c, "system", "irq", "softirq"),
        "wait": c.get("iowait"),
        "idle": c.get("idle"),
        "steal": c.get("steal"),
    }
    known = {name: value for name, value in parts.items() if value is not None}
    whole = sum(known.values())
    return {k: v / whole for k, v in known.items()} if len(known) == len(parts) and whole > 0 else {}


def _group_shares(c: Counters, arm: Arm) -> dict[str, float]:
    """User and system time of a control group, of the time of its instance's CPUs."""
    seconds = c.get("seconds")
    parts = {name: c.get(name) for name in ("user", "system")}
    known = {name: value for name, value in parts.items() if value is not None}
    if not seconds or len(known) < len(parts):
        return {}
    return {name: value / seconds / instance_cpus(arm) for name, value in known.items()}


def _node(shares: Sequence[Mapping[str, float]], own: Sequence[Counters], arm: Arm) -> dict[str, float]:
    if not shares or not all(shares):
        return {}
    cpus = node_cpus(arm)
    if "idle" not in shares[0]:
        each = instance_cpus(arm)
        return {name: sum(s[name] for s in shares) * each / cpus for name in ("user", "system")}
    guests = [GuestCpu(**s, cpus=instance_cpus(arm)) for s in shares]
    found = node_cpu(guests, cpus)
    names = ("user", "system", "wait", "idle", "excess")
    return {name: getattr(found, name) for name in names}


def instance_cpus(arm: Arm) -> int:
    """CPUs that an instance of the arm has: those of its ranks."""
    place = arm.placement
    return len(set(place.cpus[: place.tasks])) if place.cpus else place.tasks


def node_cpus(arm: Arm) -> int:
    """CPUs that the instances of a node have together."""
    place = arm.placement
    ranks = place.instances * place.tasks
    return len(set(place.cpus[:ranks])) if place.cpus else ranks


def memory_of(c: Counters) -> GuestMemory | None:
    """Of a kernel; None where it does not tell."""
    names = ("memory_total", "memory_free", "memory_inactive", "memory_active", "swap_total", "swap_free")
    total, free, inactive, active, swap, unused = (c.get(name) for name in names)
    if total is None or free is None or inactive is None or active is None:
        return None
    used = swap - unused if swap is not None and unused is not None else 0.0  # a kernel without swap
    return GuestMemory(total=total, free=free, inactive=inactive, active=active, swap=used)


def rates_of(c: Counters) -> dict[str, float]:
    """By RATES, those that are told."""
    seconds = c.get("seconds")
    if not seconds:
        return {}
    return {
        name: value / seconds
        for name, source in zip(RATES, _SOURCES, strict=True)
        if (value := c.get(source)) is not None
    }


def _accounting(guest: Counters, machine: Counters) -> Accounting | None:
    busy, host = guest.get("busy"), machine.get("vcpu")
    if busy is None or host is None:
        return None
    return Accounting(guest=busy, host=host, delay=machine.get("vcpu_delay"), steal=guest.get("steal"))


def _delay(a: Accounting | None, machine: Counters) -> float | None:
    """Of the time that its vCPUs wanted to run."""
    if a is None or a.delay is None or a.host + a.delay <= 0:
        return None
    return a.delay / (a.host + a.delay)


def _sum(c: Counters, *names: str) -> float | None:
    known = [v for name in names if (v := c.get(name)) is not None]
    return sum(known) if known else None


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of what every row tells."""
    names = [name for name in rows[0] if all(name in r for r in rows)] if rows else []
    return {name: median(r[name] for r in rows) for name in names}


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _median(values: Iterable[float | None]) -> float | None:
    own = _known(values)
    return median(own) if own else None


def _mean(values: Iterable[float | None]) -> float | None:
    own = _known(values)
    return fmean(own) if own else None


def _largest(values: Iterable[float | None]) -> float | None:
    own = _known(values)
    return max(own, key=abs) if own else None
