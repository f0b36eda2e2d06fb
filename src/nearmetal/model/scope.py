"""Scopes of counters: the object that a group of counters belongs to, and the part of a trial that it covers.

Scopes are the keys of TrialRecord.counters, of TrialRecord.network and of samples."""

from __future__ import annotations

from functools import cache
from typing import Final

# Kinds of scopes; counters of other packages' backends may have kinds of their own.
INSTANCE = "instance"
"""The control groups of an instance, or its network namespace."""
GUEST = "guest"
"""Counters of a virtual machine's own kernel."""
VCPU = "vcpu"
"""The threads that run a virtual machine's CPUs, as the host sees them."""
EXITS = "exits"
"""Number of exits of a virtual machine to its hypervisor."""
TIMED = "timed"
"""The timed slices or runs of one workload, summed over the instances and ranks of an arm."""

_RUNS = "runs"


class Scope:
    """The object and the time that a group of counters covers. All fields are final.

    Records and samples contain its text, str(scope): 'node', 'instance.<host name>', 'timed.<workload>' or
    'runs.<workload>.instance.<host name>'.

    kind: one of the kinds above, or the kind of one of the scopes below.
    name: the host name of an instance, or the workload for TIMED; empty if there is only one object of the
        kind.
    runs: the workload whose timed runs the counters cover; empty if they cover the whole trial, or if the
        kind is TIMED.
    """

    # Not a dataclass: msgspec converts keys of a JSON object to a type by a hook only if the type is none.
    __slots__ = ("_text", "kind", "name", "runs")

    def __init__(self, *, kind: str, name: str = "", runs: str = "") -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.runs: Final = runs
        own = f"{kind}.{name}" if name else kind
        self._text: Final = f"{_RUNS}.{runs}.{own}" if runs else own

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def place(self) -> str:
        """Name of the scope for a report: the host name of an instance; for other scopes, their text."""
        return self.name if self.kind == INSTANCE and not self.runs else self._text

    def over_runs(self, workload: str) -> Scope:
        """Return the same scope over the timed runs of a workload only."""
        return Scope(kind=self.kind, name=self.name, runs=workload)

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


NODE = Scope(kind="node")
"""The whole machine, including other programs."""
HUB = Scope(kind="hub")
"""The bridge between instances, and the host's ends of their links."""
RANKS = Scope(kind="ranks")
"""Bytes that the ranks sent to each other by TCP."""
BESIDE = Scope(kind="beside")
"""The companion of an arm's instances."""
