"""Placements: nodes, instances per node and tasks per instance."""

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
    """Each emulated node's link to the others; the settings apply at both ends.

    rate: B/s.
    delay: seconds one way.
    queue: bytes that may wait before further ones are dropped.
    """

    rate: float = 1e9 / 8
    delay: float = 50e-6
    queue: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Placement:
    """nodes x instances per node x tasks per instance.

    cpus: the CPU of each rank, by rank.
    oversubscribe: whether ranks may share CPUs; MPI then yields the CPU while it waits.
    More than one node are emulated: network namespaces with CPUs of their own, joined by links.
    """

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
        """Whether its nodes are emulated."""
        return self.nodes > 1

    @property
    def all_instances(self) -> int:
        """Number of instances on all nodes together."""
        return self.nodes * self.instances

    @property
    def ranks(self) -> int:
        return self.all_instances * self.tasks
