"""Placements: numbers of nodes, of instances on each node, and of tasks in each instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ...units import Dimension
from ..keys import (
    COUNT,
    CPU,
    SIZE,
    SOME_TEXT,
    TRUTH,
    WIRE_RATE,
    ListOf,
    key,
    key_made,
    key_or,
    one_of,
    one_word,
    quantity,
)


class Pinning(StrEnum):
    """Which CPUs a rank may use: its own, those of its instance, or all."""

    RANK = "rank"
    INSTANCE = "instance"
    NONE = "none"


class NodeKind(StrEnum):
    """The kind of the nodes of a placement.

    MACHINE: machines that are reached by ssh.
    EMULATED: network namespaces of the machine that measures, with CPUs of their own and links between them.
    LOCAL: the machine that measures. No study file names this kind.
    """

    MACHINE = "machine"
    EMULATED = "emulated"
    LOCAL = "local"

    @property
    def remote(self) -> bool:
        """Whether the instances run on other machines than the one that measures."""
        return self is NodeKind.MACHINE

    @property
    def emulated(self) -> bool:
        """Whether the node is emulated on the measuring machine, not a machine of its own."""
        return self is NodeKind.EMULATED


@dataclass(frozen=True, kw_only=True)
class NodeLink:
    """Settings of the links between emulated nodes, in B/s, seconds and bytes. They apply at both ends."""

    rate: float = key_or(
        1000000000.0 / 8,
        WIRE_RATE,
        "rate of each direction of each node's link",
        "1 Gbit/s",
        usual="1 Gbit/s",
        always=True,
    )
    delay: float = key_or(
        5e-05,
        quantity(Dimension.TIME, 0, 10),
        "one-way delay from node to node, in addition to the time of forwarding",
        "50 us",
        always=True,
    )
    queue: int = key_or(
        1 << 20,
        SIZE,
        "bytes that may wait at an end of a link; further packets are dropped",
        "8 kB",
        always=True,
    )


@dataclass(frozen=True, kw_only=True)
class RealNodes:
    """The machines that are the nodes of the placements; see inventory.load_inventory().

    names: the nodes to use; () for all nodes of the inventory.
    """

    inventory: str = field(
        metadata=key(
            SOME_TEXT,
            "where they are listed: a YAML file, an Ansible inventory, slurm, slurm:PARTITION or"
            " ldap://HOST/BASE",
            "hosts.yaml",
        )
    )
    names: tuple[str, ...] = key_or(
        (), ListOf(SOME_TEXT), "nodes of the inventory, in this order", ["node1", "node2"], usual="all"
    )
    draw: bool = key_or(
        False,
        TRUTH,
        "draw the nodes of each round from these, so that a slow node or link shows; otherwise the first ones"
        " in every round",
        True,
    )
    interface: str = key_or(
        "eth0",
        SOME_TEXT,
        "network interface of the nodes by which ranks reach each other",
        "ib0",
        always=True,
    )


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Numbers of nodes, of instances on each node, and of tasks in each instance.

    node_kind: set by nearmetal when it makes several nodes. None in a study that has not run, and in older
        results, in which several nodes were always emulated.
    """

    name: str
    nodes: int = key_or(
        1,
        COUNT,
        "nodes; more than one are emulated, unless the design names machines (nodes): network"
        " namespaces with CPUs of their own, joined by links, and labelled so in every table and figure",
        2,
    )
    link: NodeLink = key_made(
        NodeLink, NodeLink, "links of emulated nodes", {"rate": "1 Gbit/s", "delay": "50 us"}
    )
    instances: int = field(metadata=key(COUNT, "instances on each node", 1, 2))
    tasks: int = field(metadata=key(COUNT, "MPI ranks in each instance", 2, 1))
    cpus: tuple[int, ...] = key_or(
        (),
        ListOf(CPU),
        "the CPUs of the ranks, by rank, equally many for each; chosen alike for all environments if omitted,"
        " one for each core first, socket by socket",
        [0, 1],
    )
    cpus_per_task: int | None = key_or(
        None,
        COUNT,
        "CPUs of each rank; if omitted, the ranks of your own programs share all CPUs, and those of kernels"
        " and applications have one each",
        2,
    )
    pinning: Pinning = key_or(
        Pinning.RANK,
        one_of(Pinning),
        "a rank may use its own CPU (rank), those of its instance, or all of them (none)",
        "instance",
        always=True,
    )
    oversubscribe: bool = key_or(
        False, TRUTH, "more ranks than CPUs: they take turns, and MPI yields while it waits", True
    )
    node_kind: NodeKind | None = key_or(
        None,
        one_word((NodeKind.MACHINE, NodeKind.EMULATED), NodeKind),
        "what its nodes are; written by nearmetal, into the study of a results directory",
        "emulated",
    )

    @property
    def node(self) -> NodeKind:
        """The kind of its nodes."""
        return self.node_kind or (NodeKind.EMULATED if self.nodes > 1 else NodeKind.LOCAL)

    @property
    def all_instances(self) -> int:
        """Number of instances on all nodes."""
        return self.nodes * self.instances

    @property
    def ranks(self) -> int:
        return self.all_instances * self.tasks

    @property
    def width(self) -> int | None:
        """Number of CPUs of each rank, if the placement says it."""
        return self.cpus_per_task or len(self.cpus) // self.ranks or None
