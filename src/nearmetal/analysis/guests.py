"""What several instances of a node used, as figures of the node: the arithmetic of the 2009 paper on two
virtual machine scenarios (Tikotekar et al., section 4). Pure.

Where the paper's printed figures do not follow from its own formulas, docs/method.md says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GuestCpu:
    """Shares of the time of a guest's own CPUs, as its kernel counts them; they add up to 1. cpus: how many
    it has."""

    user: float
    system: float
    wait: float
    idle: float
    steal: float
    cpus: int = 1

    @property
    def rest(self) -> float:
        return self.wait + self.idle + self.steal


@dataclass(frozen=True, kw_only=True)
class NodeCpu:
    """Shares of the time of a node's CPUs. excess: busy time that the guests count beyond what the node has,
    as those do that see no steal (emulated ones, for instance); then nothing is left to be idle."""

    user: float
    system: float
    wait: float
    idle: float
    excess: float = 0.0


def node_cpu(guests: Sequence[GuestCpu], cpus: int = 1) -> NodeCpu:
    """cpus: of the node, which the guests share. Raises ValueError for no guest.

    User and system are real time, for steal is taken out of them, so they add up. Wait and idle of a guest
    hold time in which another ran: what the node has left beside the busy time is split as wait stands to
    wait + idle + steal of the guests. The paper's node has one CPU.
    """
    if not guests:
        raise ValueError("no guest")
    user, system, wait, rest = (
        math.fsum(g.cpus * part for g, part in zip(guests, parts, strict=True)) / cpus
        for parts in zip(*((g.user, g.system, g.wait, g.rest) for g in guests), strict=True)
    )
    left = 1 - user - system
    waited = max(left, 0.0) * (wait / rest if rest > 0 else 0.0)
    return NodeCpu(
        user=user, system=system, wait=waited, idle=max(left, 0.0) - waited, excess=max(-left, 0.0)
    )


@dataclass(frozen=True, kw_only=True)
class GuestMemory:
    """Bytes, mean over a run.

    total: that the guest's kernel manages (MemTotal).
    swap: used.
    """

    total: float
    free: float
    inactive: float
    active: float
    swap: float

    @property
    def committed(self) -> float:
        """The paper's formula (1): available memory + swap committed - free memory."""
        return self.total + self.swap - self.free

    def shares(self) -> dict[str, float]:
        """Swap, free, inactive and active as shares of what is committed; they need not add up to 1, for the
        kernel's own memory is in none of them."""
        parts = {"swap": self.swap, "free": self.free, "inactive": self.inactive, "active": self.active}
        return {name: value / self.committed for name, value in parts.items()}


def mean_memory(guests: Sequence[GuestMemory]) -> GuestMemory:
    """Of one guest, as the paper has it: the mean of its guests. Raises ValueError for no guest."""
    if not guests:
        raise ValueError("no guest")
    n = len(guests)
    return GuestMemory(
        total=math.fsum(g.total for g in guests) / n,
        free=math.fsum(g.free for g in guests) / n,
        inactive=math.fsum(g.inactive for g in guests) / n,
        active=math.fsum(g.active for g in guests) / n,
        swap=math.fsum(g.swap for g in guests) / n,
    )


@dataclass(frozen=True, kw_only=True)
class Both:
    """Of a quantity that guests count apart (blocks, interrupts, context switches; a second): the node's sum,
    and the mean of one guest. The paper adds blocks up and takes the mean of the others."""

    sum: float
    mean: float


def combined(rates: Sequence[float]) -> Both:
    """Raises ValueError for none."""
    if not rates:
        raise ValueError("no guest")
    total = math.fsum(rates)
    return Both(sum=total, mean=total / len(rates))


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """A guest's own account of CPU time against the host's.

    guest: seconds its kernel counts as busy.
    host: seconds that its vCPU threads ran.
    delay: seconds that they waited for a CPU, which a guest without a clock of the hypervisor's does not see
        as steal.
    steal: what it saw. None: not told.
    """

    guest: float
    host: float
    delay: float | None
    steal: float | None

    @property
    def ratio(self) -> float:
        """How much of what the host spent on the guest its own kernel counts; 1: both agree."""
        return self.guest / self.host if self.host > 0 else math.nan
