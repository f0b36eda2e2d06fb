"""Combines the CPU time and memory of several instances into figures of their node, without I/O.
docs/method.md names the study whose formulas these are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class GuestCpu:
    """Shares of the time of a guest's own CPUs, as its kernel counts them. The shares add up to 1."""

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
    """Shares of the time of a node's CPUs.

    excess: busy time counted by the guests in excess of the CPU time of the node. It occurs in guests that do
        not see steal, for instance emulated ones. The wait and idle shares are then 0.
    """

    user: float
    system: float
    wait: float
    idle: float
    excess: float = 0.0


def node_cpu(guests: Sequence[GuestCpu], cpus: int = 1) -> NodeCpu:
    """Combine the CPU shares of the guests of a node.

    cpus: number of CPUs of the node, which the guests share; the node of the paper has one.

    User and system time do not include steal, so those of the guests can be added. The wait and idle time of
    a guest include time in which another guest ran. Therefore the time that the node was not busy is divided:
    wait gets the share wait / (wait + idle + steal) of the guests, and idle gets the rest.

    Raises ValueError if there is no guest.
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
    """Memory of a guest in bytes, as means over a run.

    total: memory that the guest's kernel manages (MemTotal).
    """

    total: float
    free: float
    inactive: float
    active: float
    swap: float

    @property
    def committed(self) -> float:
        """Committed memory by formula (1) of the paper: available memory + swap committed - free memory."""
        return self.total + self.swap - self.free

    def shares(self) -> dict[str, float]:
        """Return swap, free, inactive and active memory as shares of the committed memory.

        The shares need not add up to 1, because none of them includes the kernel's own memory.
        """
        parts = {"swap": self.swap, "free": self.free, "inactive": self.inactive, "active": self.active}
        return {name: value / self.committed for name, value in parts.items()}


def mean_memory(guests: Sequence[GuestMemory]) -> GuestMemory:
    """Return the mean over the guests: the paper prints it as the memory of one guest.

    Raises ValueError if there is no guest.
    """
    if not guests:
        raise ValueError("no guest")
    return GuestMemory(**{f.name: fmean(getattr(g, f.name) for g in guests) for f in fields(GuestMemory)})
