"""One arm of one block, standing: what is known of it while its block runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..environments import Guest, Instance
from ..environments.storage import Volume
from ..launchers import Launch
from ..model.plan import TrialSpec
from ..model.profile import RankProfile
from ..model.record import JsonValue, RankPlace
from ..model.study import Arm, KernelWorkload, Workload
from ..subjects.job import Job
from ..workloads.protocol import ReadyLine
from .start_group import Stopped

if TYPE_CHECKING:
    from ..meters.inside import InsideCounters
    from ..meters.instances import EachInstance
    from ..meters.network import NetworkWatch
    from ..meters.transport import TransportWatch
    from .companion import Beside


@dataclass(kw_only=True)
class Standing:
    """One trial of an arm while its block runs; filled in step by step, first the instances, then the job.

    left_out: workloads that the arm does not run in this block, since their comparisons are decided.
    work: directory in which the directories of programs are made, which the instances see too; None where no
        program has a directory.
    requests: number of instances asked for so far.
    reported: whether its ranks may have left reports.
    start_seconds: one per start of the arm's instances in this block, the running ones' last; empty where
        they have no first process.
    start_steps: the steps of each start.
    stops: of instances that were stopped again to measure that.
    guests: the instances that are virtual machines.
    beside: the companion.
    volumes: the storage of each instance; empty where none was asked for.
    profiles: directory into which the ranks of the last launch write their profiles; None where none are
        asked for.
    profile: what they wrote, by workload.
    facts: what applications told of their runs, by workload.
    failure: why the trial failed; empty while it has not.
    ssh: tokens of the client that reaches the instances; empty where an agent does.
    shared_memory: directory of the machine's own /dev/shm for the ranks' segments; None where the instances
        do not see it.
    each: what its instances count over timed runs.
    counted: what came of that, by scope.
    around: the virtual machine that its instances stand in; None while there is none.
    alone: whether no instance of another arm stands in one of its virtual machines, and none of its own in
        one of another arm.
    """

    trial: TrialSpec
    arm: Arm
    left_out: frozenset[str] = frozenset()
    directory: Path
    work: Path | None = None
    log: Path
    requests: int = 0
    reported: bool = False
    start_seconds: list[float] = field(default_factory=list)
    start_steps: list[Mapping[str, float]] = field(default_factory=list)
    stops: list[Stopped] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    guests: tuple[Guest, ...] = ()
    beside: Beside | None = None
    volumes: tuple[Volume, ...] = ()
    kernels: tuple[KernelWorkload, ...] = ()
    job: Job | None = None
    launch: Launch | None = None
    profiles: Path | None = None
    profile: dict[str, tuple[RankProfile, ...]] = field(default_factory=dict)
    facts: dict[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    ready: ReadyLine | None = None
    places: tuple[RankPlace, ...] = ()
    failure: str = ""
    ssh: tuple[str, ...] = ()
    shared_memory: Path | None = None
    watch: NetworkWatch | None = None
    inside: InsideCounters | None = None
    each: EachInstance | None = None
    counted: dict[str, Mapping[str, float | None]] = field(default_factory=dict)
    transport: TransportWatch | None = None
    around: Instance | None = None
    alone: bool = True

    def takes(self, workload: Workload) -> bool:
        """Whether the arm runs this workload in this block."""
        return self.arm.environment.takes(workload.name) and workload.name not in self.left_out

    @property
    def standing_job(self) -> Job:
        """The job of an arm that got as far as launching one."""
        assert self.job is not None
        return self.job
