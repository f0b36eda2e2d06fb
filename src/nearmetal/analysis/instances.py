"""Computes figures of nodes from the counters of their instances over the timed runs of a workload. No I/O.

The counters of a guest come from its own kernel. An instance without a kernel of its own has only its control
groups; these count user and system time, but not why the instance did not run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from ..model.record import Counters, RankPlace, TrialRecord
from ..model.scope import GUEST, INSTANCE, Scope
from ..model.study import Arm
from .guests import GuestCpu, GuestMemory, mean_memory, node_cpu

CPU = ("user", "system", "wait", "idle", "steal")
"""Shares of CPU time, in the order of the paper's figures."""
MEMORY = ("committed", "swap", "free", "inactive", "active")
"""committed is in bytes; the others are shares of it."""
RATES = ("blocks received", "blocks sent", "interrupts", "context switches")
"""Rates per second, by the names of the paper: blocks 'received' were read from a device, blocks 'sent' were
written. Both are in bytes per second."""
_SOURCES = ("blocks_in", "blocks_out", "interrupts", "context_switches")
_LAST_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, kw_only=True)
class InstanceFigures:
    """Medians over the trials of an arm. A value that was not counted is missing or None.

    trials: number of trials with counters of instances.
    kernels: whether the instances are guests, whose own kernels count.
    instances: for each instance, in the order of their numbers, the shares of its CPU time with the keys of
        CPU; an empty mapping for an instance that was not counted. () if none was counted.
    node: shares of the CPU time of a node, with the keys of CPU without 'steal', and 'excess'.
    memory: memory of one virtual machine, with the keys of MEMORY.
    rates: rates with the keys of RATES, summed over the instances of a node.
    mean_rates: rates with the keys of RATES, mean of one instance.
    run_delay: time that the vCPUs waited for a CPU as a share of the time that they ran or waited, as the
        host counts it.
    accounting: CPU time that a virtual machine's kernel counts as busy, divided by the time that its vCPU
        threads ran on the host.
    clock_ahead: how far the clock of a virtual machine is ahead of the machine's, in seconds.
    clock_error: uncertainty of such an offset, in seconds.
    clock_drift: change of the offset of the monotonic clocks during a trial, in seconds. Each of these three
        is the value with the largest magnitude over all trials and virtual machines.
    clock_rate: rate of the virtual machines' clocks relative to the machine's, minus 1.
    clock_rate_error: uncertainty of that rate.
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
    clock_rate: float | None = None
    clock_rate_error: float | None = None


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
    rates_of_clocks: Sequence[tuple[float, float]]


def instance_figures(arm: Arm, workload: str, trials: Iterable[TrialRecord]) -> InstanceFigures | None:
    """Return the figures of an arm, or None if no trial has counters over timed runs of the workload."""
    found, kernels = [], False
    for t in trials:
        own = {of: c for of, c in t.counters.items() if of.runs == workload}
        guests = _by_instance(own, GUEST)
        groups = _by_instance(own, INSTANCE)
        if groups or guests:
            kernels = bool(guests)
            found.append(_trial(arm, instance_cpus(arm, t.places), guests, groups))
    if not found:
        return None
    # An instance that was not counted in a trial keeps its place, so that the others keep theirs.
    each = [
        _medians([shares for t in found if (shares := t.instances[i])])
        for i in range(min(len(t.instances) for t in found))
    ]
    return InstanceFigures(
        arm=arm.name,
        workload=workload,
        trials=len(found),
        kernels=kernels,
        instances=tuple(each) if any(each) else (),
        node=_medians([t.node for t in found]),
        memory=_medians([t.memory for t in found]),
        rates=_medians([t.rates for t in found]),
        mean_rates=_medians([t.mean_rates for t in found]),
        run_delay=_of_known(median, [t.run_delay for t in found]),
        accounting=_of_known(median, [t.accounting for t in found]),
        clock_ahead=_of_known(_largest, [t.clocks.get("clock_ahead") for t in found]),
        clock_error=_of_known(_largest, [t.clocks.get("clock_error") for t in found]),
        clock_drift=_of_known(_largest, [t.clocks.get("clock_drift") for t in found]),
        clock_rate=_of_known(median, [rate for t in found for rate, _ in t.rates_of_clocks]),
        clock_rate_error=_of_known(median, [error for t in found for _, error in t.rates_of_clocks]),
    )


def _by_instance(scopes: Mapping[Scope, Counters], kind: str) -> list[Counters]:
    """Return the counters of the instances, ordered by the number at the end of their names."""
    found = [of for of in scopes if of.kind == kind]
    return [scopes[of] for of in sorted(found, key=lambda of: _number(of.name))]


def _number(name: str) -> int:
    found = _LAST_NUMBER.search(name)
    return int(found[1]) if found else 0


def _trial(arm: Arm, cpus: int, guests: Sequence[Counters], groups: Sequence[Counters]) -> _Trial:
    own = guests or groups
    shares = [shares_of(c) if guests else _group_shares(c, cpus) for c in own]
    each = arm.placement.instances
    nodes = [range(n, n + each) for n in range(0, len(own), each)]
    memory = [m for c in guests if (m := memory_of(c)) is not None]
    rates = [rates_of(c) for c in own]
    known = {name: [r[name] for r in rates] for name in RATES if all(name in r for r in rates)}
    whole = mean_memory(memory) if memory and len(memory) == len(guests) else None
    return _Trial(
        instances=shares,
        node=_medians([_node([shares[i] for i in node if i < len(own)], arm, cpus) for node in nodes]),
        memory={"committed": whole.committed, **whole.shares()} if whole is not None else {},
        rates={name: sum(each) / len(nodes) for name, each in known.items()},
        mean_rates={name: fmean(each) for name, each in known.items()},
        run_delay=_of_known(fmean, [_delay(c) for c in groups]),
        accounting=_of_known(fmean, [_accounting(g, c) for g, c in zip(guests, groups, strict=False)]),
        clocks={
            name: max(values, key=abs)
            for name in ("clock_ahead", "clock_error", "clock_drift")
            if (values := [v for c in guests if (v := c.get(name)) is not None])
        },
        rates_of_clocks=[rate for c in guests if (rate := _clock_rate(c)) is not None],
    )


def _clock_rate(c: Counters) -> tuple[float, float] | None:
    """Return the rate of a guest's clock relative to the machine's, minus 1, and its uncertainty; None if it
    is not known.

    The rate is the change of the clock's offset divided by the time between the two measurements of the
    offset. Both measurements have the same error, which therefore counts twice.
    """
    drift, error, span = (c.get(name) for name in ("clock_drift", "clock_error", "clock_span"))
    return (drift / span, 2 * error / span) if drift is not None and error is not None and span else None


def shares_of(c: Counters) -> dict[str, float]:
    """Return the shares of the time that a kernel counted on all its CPUs; empty if a counter is missing."""
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


def _group_shares(c: Counters, cpus: int) -> dict[str, float]:
    """Return user and system time of a control group as shares of the time of its instance's CPUs."""
    seconds = c.get("seconds")
    parts = {name: c.get(name) for name in ("user", "system")}
    known = {name: value for name, value in parts.items() if value is not None}
    if not seconds or len(known) < len(parts):
        return {}
    return {name: value / seconds / cpus for name, value in known.items()}


def _node(shares: Sequence[Mapping[str, float]], arm: Arm, each: int) -> dict[str, float]:
    if not shares or not all(shares):
        return {}
    cpus = node_cpus(arm, each)
    if "idle" not in shares[0]:
        return {name: sum(s[name] for s in shares) * each / cpus for name in ("user", "system")}
    guests = [GuestCpu(**s, cpus=each) for s in shares]
    return dict(vars(node_cpu(guests, cpus)))


def instance_cpus(arm: Arm, places: Sequence[RankPlace]) -> int:
    """Return the number of CPUs of an instance of the arm: those of its ranks, which they have reported."""
    place = arm.placement
    own = {cpu for p in places if p.rank < place.tasks for cpu in p.cpus}
    return len(own) or place.tasks * (place.width or 1)


def node_cpus(arm: Arm, each: int) -> int:
    """Return how many CPUs all instances on one node have together.

    each: number of CPUs of an instance.
    """
    place = arm.placement
    own = place.cpus[: len(place.cpus) // place.nodes]
    return len(set(own)) if own else place.instances * each


def memory_of(c: Counters) -> GuestMemory | None:
    """Return the memory that a kernel has counted, or None if a counter is missing."""
    names = ("memory_total", "memory_free", "memory_inactive", "memory_active", "swap_total", "swap_free")
    total, free, inactive, active, swap, unused = (c.get(name) for name in names)
    if total is None or free is None or inactive is None or active is None:
        return None
    used = swap - unused if swap is not None and unused is not None else 0.0  # a kernel without swap
    return GuestMemory(total=total, free=free, inactive=inactive, active=active, swap=used)


def rates_of(c: Counters) -> dict[str, float]:
    seconds = c.get("seconds")
    if not seconds:
        return {}
    return {
        name: value / seconds
        for name, source in zip(RATES, _SOURCES, strict=True)
        if (value := c.get(source)) is not None
    }


def _accounting(guest: Counters, machine: Counters) -> float | None:
    """Return the time that a guest's kernel counts as busy as a multiple of the time that its vCPUs ran."""
    busy, ran = guest.get("busy"), machine.get("vcpu")
    return busy / ran if busy is not None and ran else None


def _delay(machine: Counters) -> float | None:
    """Return the time that the vCPUs waited for a CPU as a share of the time that they ran or waited. A guest
    without a paravirtual clock does not see this time as steal."""
    ran, waited = machine.get("vcpu"), machine.get("vcpu_delay")
    return waited / (ran + waited) if ran is not None and waited is not None and ran + waited > 0 else None


def _sum(c: Counters, *names: str) -> float | None:
    known = [v for name in names if (v := c.get(name)) is not None]
    return sum(known) if known else None


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in rows[0] if all(name in r for r in rows)] if rows else []
    return {name: median(r[name] for r in rows) for name in names}


def _largest(values: Iterable[float]) -> float:
    return max(values, key=abs)


def _of_known(figure: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Return the figure of the values that are known; None if none is."""
    known = [v for v in values if v is not None]
    return figure(known) if known else None
