"""Scopes of counters: the object that a group of counters belongs to, and the part of a trial that it covers.

Scopes are the keys of TrialRecord.counters, of TrialRecord.network and of samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

# Kinds of scopes; counters of other packages' backends may have kinds of their own.
NODE = "node"
"""The whole machine, including other programs."""
INSTANCE = "instance"
"""The control groups of an instance, or its network namespace."""
GUEST = "guest"
"""Counters of a virtual machine's own kernel."""
VCPU = "vcpu"
"""The threads that run a virtual machine's CPUs, as the host sees them."""
EXITS = "exits"
"""Number of exits of a virtual machine to its hypervisor."""
HUB = "hub"
"""The bridge between instances, and the host's ends of their links."""
RANKS = "ranks"
"""Bytes that the ranks sent to each other by TCP."""
BESIDE = "beside"
"""The companion of an arm's instances."""
TIMED = "timed"
"""The timed slices or runs of one workload, summed over the instances and ranks of an arm."""

_RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The object and the time that a group of counters covers.

    Records and samples contain its text, str(scope): 'node', 'instance.<host name>', 'timed.<workload>' or
    'runs.<workload>.instance.<host name>'.

    kind: one of the kinds above.
    name: the host name of an instance, or the workload for TIMED; empty if there is only one object of the
        kind.
    runs: the workload whose timed runs the counters cover; empty if they cover the whole trial, or if the
        kind is TIMED.
    """

    kind: str
    name: str = ""
    runs: str = ""

    def __str__(self) -> str:
        own = f"{self.kind}.{self.name}" if self.name else self.kind
        return f"{_RUNS}.{self.runs}.{own}" if self.runs else own

    @property
    def place(self) -> str:
        """The host name of an instance, or otherwise the text of the scope, for a report."""
        return self.name if self.kind == INSTANCE and not self.runs else str(self)

    def over_runs(self, workload: str) -> Scope:
        """Return the same scope over the timed runs of a workload only."""
        return replace(self, runs=workload)

    @staticmethod
    def timed(workload: str) -> Scope:
        return Scope(kind=TIMED, name=workload)

    @staticmethod
    def instance(host_name: str) -> Scope:
        return Scope(kind=INSTANCE, name=host_name)

    @staticmethod
    @cache
    def parse(text: str) -> Scope:
        """Parse the text of a scope. Every text is valid."""
        kind, _, name = text.partition(".")
        workload, _, rest = name.partition(".")
        if kind == _RUNS and workload and rest:
            return Scope.parse(rest).over_runs(workload)
        return Scope(kind=kind, name=name)
