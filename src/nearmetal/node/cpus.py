"""Computes the CPUs that the ranks and the instances of an arm may use. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..model.environments.guest import GuestSettings
from ..model.study import Arm, Pinning, Placement, Workload
from .placement_node import PlacementNode


def cpus_per_rank(place: Placement, usable: int, workload: Workload | None) -> int:
    """Return how many CPUs a rank gets. This is the only place of the rule.

    A placement may say it. Otherwise the ranks of the user's own program share all CPUs, since they may have
    threads. A rank of every other workload has one thread, and the measurement is calibrated with one CPU.

    usable: number of usable CPUs of the machine on which all ranks of the placement run.
    """
    if place.width is not None:
        return place.width
    return max(1, usable // place.ranks) if workload is not None and workload.of_user else 1


def cpus_of_ranks(
    place: Placement, node: PlacementNode, workload: Workload | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank. If the ranks need more CPUs than the node has, CPUs are used repeatedly.

    node: the machine on which all ranks of the placement run.
    workload: the workload of the ranks; None for a workload of nearmetal.
    """
    alone = workload is not None and workload.of_user and workload.processes(place.ranks) == 1
    if place.pinning is Pinning.NONE or (alone and place.width is None):
        return (tuple(sorted(node.cpus)),) * place.ranks
    width = cpus_per_rank(place, len(node.cpus), workload)
    own = place.cpus or _taken(node, place.ranks, width)
    each = [own[first : first + width] for first in range(0, len(own), width)]
    if place.pinning is Pinning.INSTANCE:
        tasks = place.tasks
        each = [
            tuple(cpu for rank in each[first : first + tasks] for cpu in rank)
            for first in range(0, place.ranks, tasks)
            for _ in range(tasks)
        ]
    return tuple(tuple(sorted(set(cpus))) for cpus in each)


def _taken(node: PlacementNode, ranks: int, width: int) -> tuple[int, ...]:
    """Return the CPUs of all ranks, rank by rank. Threads of one core go to the same rank."""
    count, order = ranks * width, node.cpus
    if width == 1 or count > len(order):
        return tuple(order[n % len(order)] for n in range(count))
    chosen = set(order[:count])
    return tuple(cpu for cpu in node.adjacent or sorted(order) if cpu in chosen)


def cpus_over_nodes(
    place: Placement, nodes: Sequence[PlacementNode], workload: Workload | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank of a placement over machines, as the rank's machine numbers them. Emulated
    nodes divide the CPUs of their machine.

    nodes: the nodes of the placement.
    """
    if not place.node.remote:
        return cpus_of_ranks(place, nodes[0], workload)
    own = len(place.cpus) // place.nodes
    return tuple(
        cpus
        for number in range(place.nodes)
        for cpus in cpus_of_ranks(
            replace(place, nodes=1, cpus=place.cpus[number * own : (number + 1) * own]),
            nodes[number],
            workload,
        )
    )


def cpus_of_instance(
    place: Placement, workloads: Iterable[Sequence[Sequence[int]]], number: int
) -> tuple[int, ...]:
    """Return the CPUs of all ranks of one instance, in all workloads.

    workloads: for each workload, the CPUs of each rank of the placement.
    """
    own = slice(number * place.tasks, (number + 1) * place.tasks)
    return tuple(sorted({cpu for ranks in workloads for cpus in ranks[own] for cpu in cpus}))


def count_cpus(arm: Arm, nodes: Sequence[PlacementNode], workload: Workload) -> int:
    """Return how many CPUs the ranks of a workload may use together.

    nodes: the nodes of the arm's placement.
    """
    place, settings = arm.placement, arm.environment.guest
    ranks = cpus_over_nodes(place, nodes, workload)
    own = place.ranks // place.nodes if place.node.remote else place.ranks
    parts = [ranks[first : first + own] for first in range(0, place.ranks, own)]
    count = sum(len({cpu for cpus in part for cpu in cpus}) for part in parts)
    vcpus = None if settings is None else settings.vcpus
    return count if vcpus is None else min(count, vcpus * place.all_instances)


def vcpus_of(
    arm: Arm, instance_cpus: Sequence[Sequence[int]], ranks: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank, as numbered inside its virtual machine.

    instance_cpus: CPUs of the machine, by instance.
    ranks: CPUs of the machine, by rank.
    """
    settings = arm.environment.guest or GuestSettings()
    out = []
    for rank, cpus in enumerate(ranks):
        own = list(instance_cpus[rank // arm.placement.tasks])
        count = settings.vcpus or len(own)
        out.append(tuple(sorted({own.index(c) % count for c in cpus})))
    return tuple(out)
