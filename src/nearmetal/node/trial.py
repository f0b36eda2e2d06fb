"""A trial of a block: its fixed properties, and its results while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ..environments import Instance, InstanceRequest
from ..errors import NearmetalError
from ..lifecycle import PastMove
from ..model.plan import TrialSpec
from ..model.record import JsonValue, RankPlace, Row
from ..model.study import Arm, Workload
from ..model.workloads.profile import RankProfile
from ..network.build import Network
from .arms.seats import slot
from .cpus import cpus_of_instance, cpus_over_nodes, vcpus_of
from .inner_networks import inner_network
from .placement_node import PlacementNode

if TYPE_CHECKING:
    from .node import Node


@dataclass(frozen=True, kw_only=True)
class DiskWrites:
    """Bytes that all processes of one run of a program wrote to disks, and the wall time of the run in
    seconds. Files in memory are not counted."""

    bytes: int
    seconds: float


@dataclass(kw_only=True)
class TrialFindings:
    """The results of a trial so far. They become the trial's record, even if the trial fails.

    failure: why the trial failed; empty as long as it has not failed.
    phases: seconds by step.
    places: where the ranks of the last program ran.
    transport: how the ranks reach each other, as the launcher reports it.
    facts: what applications and guests report about themselves, by workload or interface.
    profile: profile of each rank, by workload.
    pages: by workload, bytes of the ranks' memory in huge pages and in total.
    disk_writes: by workload, disk writes of the last run of each of the user's own programs; only where the
        kernel counts them.
    """

    failure: str = ""
    rows: list[Row] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    places: tuple[RankPlace, ...] = ()
    transport: dict[str, JsonValue] = field(default_factory=dict)
    facts: dict[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    profile: dict[str, tuple[RankProfile, ...]] = field(default_factory=dict)
    pages: dict[str, Mapping[str, float | None]] = field(default_factory=dict)
    disk_writes: dict[str, DiskWrites] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of an arm.

    spec: the trial's identity in its block.
    node: the machine from which its ranks are launched.
    nodes: the nodes of its placement, in the order in which the placement uses them.
    left_out: workloads that the arm does not run in this block, since their comparisons are decided.
    directory: directory of the trial; its instances see it at the same path.
    work: parent of the programs' working directories, which the instances see too; None if no program has a
        directory of its own.
    log: directory for the output of its programs. It is made when the first file is written.
    numbers: counter for new_directory().
    found: results of the trial so far.
    """

    spec: TrialSpec
    arm: Arm
    node: Node
    nodes: tuple[PlacementNode, ...]
    left_out: frozenset[str] = frozenset()
    directory: Path
    work: Path | None = None
    log: Path
    numbers: Iterator[int] = field(default_factory=count)
    found: TrialFindings = field(default_factory=TrialFindings)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def sound(self) -> bool:
        """Whether the trial has not failed so far."""
        return not self.found.failure

    @property
    def slot(self) -> str:
        """The number of the arm among the arms of the run, with 'r' for the A/A arm. It is part of the names
        of everything that the trial creates."""
        return slot(self.node.arms, self.arm.name, self.spec.aa)

    @property
    def network(self) -> Network | None:
        """The network of the instances, with their seats in the order of the nodes; None if they use that of
        their machines.

        A network inside a guest is only planned here. It is built once the guest runs.
        """
        arm, node = self.arm, self.node
        if arm.environment.inside is not None:
            return inner_network(arm, f"{node.label}-{self.slot}")
        network = node.networks.get((arm.name, self.spec.aa))
        if network is None or not arm.placement.node.remote:
            return network
        return replace(network, seats=tuple(network.seats[node.real.nodes.index(n)] for n in self.nodes))

    def start(self, request: InstanceRequest, number: int = 0) -> AbstractContextManager[Instance]:
        """Start an instance of the trial, and stop it on exit. Until then it is one of Node.instances.

        number: index of the instance within the arm, which selects its node.

        Raises UnavailableError or RunError.
        """
        node, place = self.node, self.nodes[number // self.arm.placement.instances % len(self.nodes)]
        backend, tools = node.backends[request.environment.backend], node.software_of(self.arm).tools
        return node.instances.started(place.start(backend, tools, request))

    def cpus_of(self, workload: Workload | None = None) -> tuple[tuple[int, ...], ...]:
        """Return the CPUs that each rank of a workload may use, as the rank sees them: a guest numbers its
        CPUs from 0.

        They are the same for every arm with the same number of ranks and the same pinning.

        workload: None for a program of nearmetal.
        """
        arm, numbers = self.arm, range(self.arm.placement.all_instances)
        ranks = cpus_over_nodes(arm.placement, self.nodes, workload)
        if arm.environment.inside is not None:  # one guest holds all instances
            return vcpus_of(arm, [self.all_cpus for _ in numbers], ranks)
        if self.node.backends[arm.environment.backend].capabilities.virtual:
            return vcpus_of(arm, [self.instance_cpus(i) for i in numbers], ranks)
        return ranks

    @property
    def all_cpus(self) -> tuple[int, ...]:
        """The CPUs of all ranks, by their numbers on the machine that measures."""
        return tuple(sorted({cpu for ranks in self._cpus_of_workloads for cpus in ranks for cpu in cpus}))

    def instance_cpus(self, number: int) -> tuple[int, ...]:
        """Return the CPUs of the ranks of one instance, by their numbers on the machine where the instance
        runs. They are the same in every arm and every block, whichever workloads it runs."""
        return cpus_of_instance(self.arm.placement, self._cpus_of_workloads, number)

    @property
    def _cpus_of_workloads(self) -> list[tuple[tuple[int, ...], ...]]:
        place, workloads = self.arm.placement, self.node.study.workloads
        return [cpus_over_nodes(place, self.nodes, w) for w in (None, *workloads)]

    def takes(self, workload: Workload) -> bool:
        """Return whether the arm runs this workload in this block."""
        return self.arm.environment.takes(workload.name) and workload.name not in self.left_out

    def past_moves(self, workload: Workload) -> list[PastMove]:
        """Return the list of the moves that a workload of this arm has made since the node was opened, in
        this round and in earlier ones, which correct the next predictions. Finished moves are appended to it.

        The A/A arm has the list of the baseline, so that both choose alike.
        """
        return self.node.past_moves.setdefault((self.arm.name, workload.name), [])

    def new_directory(self, name: str) -> Path:
        """Create a directory of this name and a number inside the trial's directory, and return it."""
        directory = self.directory / f"{name}-{next(self.numbers)}"
        directory.mkdir()
        return directory

    def private_directory(self, name: str) -> Path:
        """Create a directory of this name and a number that no instance sees, and return it.

        It is for files that nearmetal writes outside of instances. The root user of an instance cannot put
        links in their places.
        """
        directory = self.private / f"{name}-{next(self.numbers)}"
        directory.mkdir(parents=True)
        return directory

    @property
    def private(self) -> Path:
        """The parent of the directories of private_directory()."""
        return self.directory.with_name(f"{self.directory.name}-private")


class Guard:
    """A context manager that turns a NearmetalError into the failure of a trial. The failed trial takes no
    further part in its block, and the other trials continue.

    A guard can be entered any number of times. It surrounds every slice; a generator-based context manager
    would be ten times slower.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, NearmetalError):
            return False
        self._trial.found.failure = str(error)
        self.failed()
        return True

    def failed(self) -> None:
        """Called once the trial has failed."""
