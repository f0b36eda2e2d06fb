"""The CPUs of ranks and instances by pinning, and with more ranks than CPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.model.environments.guest import GuestSettings
from nearmetal.model.environments.placement import NodeKind
from nearmetal.model.plan import TrialSpec, nodes_of_block
from nearmetal.model.study import (
    Arm,
    Attachment,
    CommandWorkload,
    Environment,
    KernelWorkload,
    Pinning,
    Placement,
    Workload,
)
from nearmetal.node.cpus import count_cpus, cpus_of_instance, cpus_of_ranks, cpus_over_nodes
from nearmetal.node.node import Node
from nearmetal.node.placement_node import PlacementNode
from nearmetal.node.real_nodes import NodeSet
from nearmetal.node.trial import Trial
from nearmetal.subjects.launches.rank_argv import cpu_list


def node_of(cpus: tuple[int, ...]) -> PlacementNode:
    host: Any = None
    return PlacementNode(local=host, cpus=cpus, adjacent=tuple(sorted(cpus)))


ORDER = (0, 2, 1, 3)
"""As the topology gives it: cores 0 and 2 before their second threads."""
NODE = node_of(ORDER)


HALVES = {"instances": 2, "tasks": 2, "pinning": Pinning.INSTANCE}


@pytest.mark.parametrize(
    ("more", "ranks", "instances"),
    [
        ({"instances": 2, "tasks": 1}, ((0,), (2,)), ((0,), (2,))),
        ({"instances": 1, "tasks": 2}, ((0,), (2,)), ((0, 2),)),
        ({"instances": 2, "tasks": 1, "cpus": (3, 1)}, ((3,), (1,)), ((3,), (1,))),
        (HALVES, ((0, 2),) * 2 + ((1, 3),) * 2, ((0, 2), (1, 3))),
        ({"instances": 2, "tasks": 1, "pinning": Pinning.NONE}, ((0, 1, 2, 3),) * 2, ((0, 1, 2, 3),) * 2),
        (
            {"instances": 2, "tasks": 3, "oversubscribe": True},
            ((0,), (2,), (1,), (3,), (0,), (2,)),
            ((0, 1, 2), (0, 2, 3)),
        ),
    ],
)  # fmt: skip
def test_cpus_of_ranks_and_instances(
    more: dict[str, Any], ranks: tuple[Any, ...], instances: tuple[Any, ...]
) -> None:
    place = Placement(name="p", **more)
    assert cpus_of_ranks(place, NODE) == ranks
    assert tuple(cpus_of_instance(place, [ranks], n) for n in range(place.instances)) == instances


OWN = CommandWorkload(name="own", argv=("./app",))
TRIAD = KernelWorkload(name="triad", kernel="triad", params={})
MPI, COPIES = replace(OWN, mpi=True), replace(OWN, per_task=True)


@pytest.mark.parametrize(
    ("more", "workload", "ranks"),
    [
        ({"instances": 1, "tasks": 1}, OWN, ((0, 1, 2, 3),)),
        ({"instances": 2, "tasks": 1}, OWN, ((0, 1, 2, 3),) * 2),
        ({"instances": 1, "tasks": 1}, MPI, ((0, 1, 2, 3),)),
        ({"instances": 2, "tasks": 1}, MPI, ((0, 1), (2, 3))),
        ({"instances": 1, "tasks": 2}, COPIES, ((0, 1), (2, 3))),
        ({"instances": 1, "tasks": 3}, MPI, ((0,), (2,), (1,))),
        ({"instances": 1, "tasks": 2}, None, ((0,), (2,))),
        ({"instances": 1, "tasks": 1, "cpus_per_task": 2}, OWN, ((0, 2),)),
        ({"instances": 1, "tasks": 1, "cpus_per_task": 2}, None, ((0, 2),)),
        ({"instances": 1, "tasks": 1, "cpus": (1, 3)}, MPI, ((1, 3),)),
        ({"instances": 2, "tasks": 1, "cpus": (3, 1, 0, 2)}, None, ((1, 3), (0, 2))),
        ({"instances": 2, "tasks": 1, "cpus": (3, 1)}, MPI, ((3,), (1,))),
        ({"instances": 1, "tasks": 5, "oversubscribe": True}, MPI, ((0,), (2,), (1,), (3,), (0,))),
    ],
)
def test_ranks_of_a_users_program_share_all_cpus_unless_the_placement_says_how_many(
    more: dict[str, Any], workload: CommandWorkload | None, ranks: tuple[Any, ...]
) -> None:
    assert cpus_of_ranks(Placement(name="p", **more), NODE, workload) == ranks


def test_an_instance_has_the_cpus_of_each_of_its_workloads() -> None:
    place = Placement(name="p", instances=2, tasks=1)
    ranks = [cpus_of_ranks(place, NODE, w) for w in (None, MPI)]
    assert [cpus_of_instance(place, ranks, n) for n in (0, 1)] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("more", "guest", "workload", "count"),
    [
        ({"instances": 2, "tasks": 1}, None, MPI, 4),
        ({"instances": 2, "tasks": 1}, None, TRIAD, 2),
        ({"instances": 1, "tasks": 2, "pinning": Pinning.NONE}, None, TRIAD, 4),
        ({"instances": 1, "tasks": 1}, GuestSettings(vcpus=2), OWN, 2),
    ],
)
def test_how_many_cpus_an_environment_has_is_counted_for_each_workload(
    more: dict[str, Any], guest: GuestSettings | None, workload: Workload, count: int
) -> None:
    environment = Environment(name="e", backend="x", placements=("p",), guest=guest)
    arm = Arm(environment=environment, placement=Placement(name="p", **more))
    assert count_cpus(arm, [NODE], workload) == count


def test_the_list_for_nm_rank() -> None:
    assert cpu_list(((0,), (2, 3))) == "0,2+3"


@pytest.mark.parametrize(("nodes", "tasks", "pinning"), list(product((1, 2, 3, 4), (1, 2, 3), Pinning)))
def test_emulated_nodes_divide_the_cpus_of_their_machine(nodes: int, tasks: int, pinning: Pinning) -> None:
    place = Placement(name="p", nodes=nodes, instances=1, tasks=tasks, pinning=pinning, oversubscribe=True)
    node: Any = SimpleNamespace(machine=SimpleNamespace(host=None, cpus=ORDER, adjacent=()))
    own = Node.nodes_of(node, place, 1)
    assert len(own) == nodes
    assert cpus_over_nodes(place, own) == cpus_of_ranks(place, NODE)


@dataclass(frozen=True)
class Machine:
    name: str


@dataclass(frozen=True)
class Network:
    seats: tuple[str, ...]


def test_a_trial_runs_on_the_machines_that_are_drawn_for_its_block() -> None:
    machines: Any = tuple(Machine(name) for name in "abc")
    place = Placement(name="p", nodes=2, instances=1, tasks=1, node_kind=NodeKind.MACHINE)
    environment = Environment(name="e", backend="native", attachment=Attachment.HOST, placements=("p",))
    arm = Arm(environment=environment, placement=place)
    network: Any = Network(seats=("seat of a", "seat of b", "seat of c"))
    node: Any = SimpleNamespace(
        study=SimpleNamespace(design=SimpleNamespace(nodes=SimpleNamespace(draw=True), seed=4)),
        real=NodeSet(nodes=machines),
        networks={(arm.name, False): network},
    )
    for block in range(4):
        order = nodes_of_block(max(block, 1), "abc", 4)
        trial = Trial(
            spec=TrialSpec(id="t", block=block, position=0, arm=arm.name, aa=False),
            arm=arm,
            node=node,
            nodes=Node.nodes_of(node, place, block),
            directory=Path("/d"),
            log=Path("/l"),
        )
        nodes: Any = trial.nodes
        found: Any = trial.network
        assert [n.name for n in nodes] == list(order[:2])
        assert found.seats == tuple(f"seat of {name}" for name in order[:2])
    node.study.design.nodes.draw = False
    assert Node.nodes_of(node, place, 3) == machines[:2]
