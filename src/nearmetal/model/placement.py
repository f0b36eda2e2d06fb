"""Placements: nodes, the instances on them and the tasks in those."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Pinning(StrEnum):
    """Which CPUs a rank may use: its own, those of its instance, or all."""

    RANK = "rank"
    INSTANCE = "instance"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class NodeLink:
    """What joins emulated nodes, at either end of each one's link.

    rate: B/s.
    delay: seconds one way.
    queue: bytes that wait for their turn before further ones are dropped.
    """

    rate: float = 1e9 / 8
    delay: float = 50e-6
    queue: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Placement:
    """nodes x instances per node x tasks per instance; cpus: the CPU of each rank, by rank; oversubscribe:
    ranks may share CPUs, and MPI yields the CPU while it waits. More nodes than one are emulated: network
    namespaces with CPUs of their own, joined by links."""

    name: str
    nodes: int = 1
    instances: int
    tasks: int
    cpus: tuple[int, ...] = ()
    link: NodeLink = field(default_factory=NodeLink)
    pinning: Pinning = Pinning.RANK
    oversubscribe: bool = False

    @property
    def emulated(self) -> bool:
        """Whether its nodes are stand-ins for machines that are not there."""
        return self.nodes > 1

    @property
    def all_instances(self) -> int:
        """On all nodes together."""
        return self.nodes * self.instances

    @property
    def ranks(self) -> int:
        return self.all_instances * self.tasks
