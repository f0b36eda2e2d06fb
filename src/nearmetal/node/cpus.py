"""Computes the CPUs that the ranks and the instances of an arm may use. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.environments.guest import GuestSettings
from ..model.study import Arm, Pinning, Placement


def cpus_of_ranks(place: Placement, usable: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank.

    usable: CPUs in the order in which ranks take them. If there are more ranks than CPUs, the order is
        repeated.
    """
    own = place.cpus or tuple(usable[rank % len(usable)] for rank in range(place.ranks))
    match place.pinning:
        case Pinning.RANK:
            return tuple((cpu,) for cpu in own)
        case Pinning.INSTANCE:
            return tuple(
                tuple(sorted(set(own[first : first + place.tasks])))
                for first in range(0, place.ranks, place.tasks)
                for _ in range(place.tasks)
            )
        case Pinning.NONE:
            return (tuple(sorted(usable)),) * place.ranks


def cpus_over_nodes(place: Placement, usable: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each rank of a placement over machines, as the rank's machine numbers them.

    usable: for each node, its CPUs in the order in which ranks take them.
    """
    own = place.instances * place.tasks
    return tuple(
        cpus
        for number in range(place.nodes)
        for cpus in cpus_of_ranks(
            replace(place, nodes=1, cpus=place.cpus[number * own : (number + 1) * own]), usable[number]
        )
    )


def cpus_of_instance(place: Placement, ranks: Sequence[Sequence[int]], number: int) -> tuple[int, ...]:
    """Return the CPUs of all ranks of one instance.

    ranks: CPUs of each rank of the placement.
    """
    own = ranks[number * place.tasks : (number + 1) * place.tasks]
    return tuple(sorted({cpu for cpus in own for cpu in cpus}))


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
