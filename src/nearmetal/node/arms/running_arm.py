"""The running instances of one arm of a block, and what the ranks need to reach them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...environments import EnclosedInstance, Instance, RemoteInstance
from ...environments.storage import Volume
from ...errors import NearmetalError
from ...host.runtime import shared_memory_directory
from ...launchers import everywhere
from ...model.environments.image import HOST
from ...model.study import Arm, Environment, Placement, Shared, Transport
from ..guests import check_networks, guests_among, keep_consoles
from ..node import Node
from ..software import Software
from ..ssh import ssh_servers
from ..trial import Guard, Trial
from .companion import RunningCompanion, companion
from .start_group import Group
from .starting import Surroundings, started_instances


@dataclass(frozen=True, kw_only=True)
class RunningArm:
    """An arm with running instances.

    group: its instances, and how long they took to start.
    volumes: the storage of each instance; empty if the environment does not request any.
    companion: the running companion; None if the environment does not request one.
    lodges_with: ID of the trial whose virtual machine the instances run in. None if they run in none, or in
        one that was booted only for them.
    shared_memory: directory in the machine's own /dev/shm for the segments of the ranks; None if the
        instances do not see it.
    ssh: command line of the client that reaches the instances; empty if an agent reaches them.
    """

    trial: Trial
    group: Group
    volumes: tuple[Volume, ...]
    companion: RunningCompanion | None
    lodges_with: str | None
    shared_memory: Path | None
    ssh: tuple[str, ...]

    @property
    def environment(self) -> Environment:
        return self.trial.arm.environment

    @property
    def placement(self) -> Placement:
        return self.trial.arm.placement

    @property
    def transport(self) -> Transport:
        """The transport of messages between the ranks."""
        return self.trial.arm.transport

    @property
    def node(self) -> Node:
        return self.trial.node

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances in their current state: an instance that was moved has another process."""
        return self.node.instances.of(started.label for started in self.group.instances)

    @property
    def guests(self) -> tuple[RemoteInstance, ...]:
        """The instances that are virtual machines."""
        return guests_among(self.instances)

    @property
    def machines(self) -> tuple[RemoteInstance, ...]:
        """One instance for each virtual machine. Instances in the same virtual machine share its files."""
        return self.guests if self.guest_around is None else self.guests[:1]

    @property
    def guest_around(self) -> Instance | None:
        """The virtual machine that holds all instances; None if they run in none."""
        first = self.instances[0]
        inside = self.environment.inside is not None
        return first.guest if inside and isinstance(first, EnclosedInstance) else None

    @property
    def inner_lines(self) -> list[str]:
        """The lines of the instances in the map file of an 'nm-box agent' that runs in the virtual machine
        around them; empty if there is none."""
        if self.guest_around is None:
            return []
        return [i.inner_agent_line for i in self.instances if isinstance(i, EnclosedInstance)]

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The host names of the instances, as reported by their ranks."""
        return tuple(i.hostname for i in self.instances)

    @property
    def software(self) -> Software:
        return self.node.software_of(self.trial.arm)

    def guard(self) -> RunningGuard:
        """Return a guard (see Guard). If the trial fails, the console output of the guests is kept."""
        return RunningGuard(self)


class RunningGuard(Guard):
    """A Guard that keeps the console output of the guests of an arm if the trial fails."""

    def __init__(self, arm: RunningArm) -> None:
        super().__init__(arm.trial)
        self._arm = arm

    def failed(self) -> None:
        keep_consoles(self._arm.guests, self._arm.instances, self._arm.trial.log)


def arm_around(trial: Trial, arms: Iterable[RunningArm]) -> RunningArm | None:
    """Return the arm in whose virtual machine the instances of a trial run. None if the trial needs no
    virtual machine, or has to boot its own.

    Such an arm of the same block has not failed, its environment is that virtual machine, and its single
    instance has the CPUs that the trial needs. Both arms then run on one kernel, booted once.

    arms: running arms of the block.
    """
    return next(
        (
            a
            for a in arms
            if a.environment.name == trial.arm.environment.inside
            and _holds(a.placement, trial.arm.placement)
            and not a.trial.spec.aa
            and a.trial.sound
        ),
        None,
    )


def _holds(place: Placement, other: Placement) -> bool:
    """Return whether the virtual machine of one placement has the CPUs for the instances of another one."""
    alike = _cpus_of(place) == _cpus_of(other)
    return place.all_instances == 1 and (alike or place.name == other.name)


def _cpus_of(place: Placement) -> tuple[object, ...]:
    return place.ranks, place.cpus, place.cpus_per_task, place.pinning


@contextmanager
def running_arm(trial: Trial, around: RunningArm | None) -> Iterator[RunningArm]:
    """Start the instances of a trial and everything that they need. All of it is stopped on exit.

    around: an arm whose virtual machine the instances run in; None if they run in none, or in one of their
        own.

    Raises RunError, TrialFailedError, UnavailableError.
    """
    environment = trial.arm.environment
    surroundings = Surroundings() if around is None else Surroundings(guest=around.instances[0], alone=False)
    with ExitStack() as stack:
        for node in trial.nodes:
            for directory in (trial.directory, trial.private):
                stack.callback(node.forget, directory)
        group, volumes = stack.enter_context(started_instances(trial, surroundings))
        guests = guests_among(group.instances)
        try:
            trial.found.facts |= check_networks(environment, guests, group.instances, trial.log)
            memory = _shared_memory(trial, stack)
            ssh = _ssh(trial, group, stack)
            beside = environment.beside
            running = RunningArm(
                trial=trial,
                group=group,
                volumes=volumes,
                companion=None
                if beside is None
                else stack.enter_context(companion(trial, beside, group.instances)),
                lodges_with=None if around is None else around.trial.id,
                shared_memory=memory,
                ssh=ssh,
            )
        except NearmetalError:
            keep_consoles(guests, group.instances, trial.log)
            raise
        yield running


def _shared_memory(trial: Trial, stack: ExitStack) -> Path | None:
    """Create a directory for the segments of ranks that share the machine's memory; None if there are
    none."""
    mpi = any(w.mpi for w in trial.node.study.workloads if trial.arm.environment.takes(w.name))
    if trial.arm.transport is not Transport.SHM or not mpi or not _sees_shared_memory(trial.node, trial.arm):
        return None
    return stack.enter_context(shared_memory_directory(f"{trial.node.label}-{trial.slot}"))


def _sees_shared_memory(node: Node, arm: Arm) -> bool:
    """Return whether the arm's instances see the machine's own /dev/shm, where a killed rank leaves its
    segments.

    An image has its own /dev/shm, even with the backend native.
    """
    if arm.placement.node.remote:
        return False
    own = "mnt" in node.backends[arm.environment.backend].capabilities.own or arm.environment.image != HOST
    return not own or Shared.IPC in arm.environment.share


def _ssh(trial: Trial, group: Group, stack: ExitStack) -> tuple[str, ...]:
    """Start an sshd in each instance if mpirun is to reach them by ssh. Returns the command line of the ssh
    client; empty if an agent reaches them."""
    node, network = trial.node, trial.network
    several = len(group.instances) > 1 and trial.arm.transport is Transport.TCP
    if node.ssh is None or not several or network is None:
        return ()
    servers = ssh_servers(
        node.machine.host,
        node.ssh,
        group.instances,
        network.seats,
        directory=trial.directory,
        private=trial.private_directory("ssh"),
        environment=everywhere(str(trial.directory)),
    )
    return stack.enter_context(servers)
