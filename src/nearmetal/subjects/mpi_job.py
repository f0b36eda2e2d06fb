"""The launch of an MPI program over the instances of a running arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..host import cgroups
from ..launchers import HostSlots, Launch, MpiJob
from ..meters.groups import MeteredArm
from ..model.study import Transport
from ..node.running_arm import RunningArm
from ..node.software import from_tree
from .profiles import profile_directory
from .rank_argv import Report, rank_argv, storage_of_ranks


@dataclass(frozen=True, kw_only=True)
class MpiLaunch:
    """How an MPI program is launched over the instances of an arm.

    argv: tokens, for the machine.
    launch: of the launcher.
    profiles: directory into which the ranks write their profiles; None if the study asks for none.
    """

    argv: tuple[str, ...]
    launch: Launch
    profiles: Path | None


def interface_of(arm: RunningArm) -> str:
    """The network interface of the ranks: the attachment between instances, the loopback inside one."""
    network = arm.trial.network
    return "lo" if len(arm.instances) == 1 or network is None else network.seats[0].interface


def mpi_launch(
    metered: MeteredArm,
    program: Sequence[str],
    *,
    measured: bool,
    forward: Sequence[str] = (),
    directory: Path | None = None,
    exit_codes: Sequence[int] = (0,),
) -> MpiLaunch:
    """How an MPI program is launched over the instances of an arm; the trial's record gets the transport.

    measured: have nm-rank report where each rank is and what it used. Our own kernels report themselves.
    forward: names of variables of the program's own.
    directory: where it runs.
    exit_codes: of a rank that ended well.
    """
    arm, node, trial = metered.running, metered.running.node, metered.running.trial
    software = arm.software
    profiles = profile_directory(trial.directory) if node.study.design.profile else None
    rank = rank_argv(
        software.tools,
        node.cpus(arm.trial.arm),
        program,
        report=Report(directory=trial.directory, events=metered.events, exit_codes=exit_codes)
        if measured
        else None,
        storage=storage_of_ranks(arm.volumes, arm.placement.tasks),
        directory=directory,
        profile=profiles,
    )
    launch = software.mpi.launch(_job(arm, rank, forward))
    trial.found.transport = dict(launch.transport)
    return MpiLaunch(argv=tuple(_words(arm, launch)), launch=launch, profiles=profiles)


def _words(arm: RunningArm, launch: Launch) -> list[str]:
    """Tokens for the machine: mpirun runs in the only instance, or in the hub of the network."""
    node, software, network = arm.node, arm.software, arm.trial.network
    if len(arm.instances) == 1 or network is None:
        return arm.instances[0].command(launch.argv)
    enter = [software.tools / "nm-box", "enter", "--pid", "0", "--label", node.label]
    for group in cgroups.unique(node.launcher_groups):
        enter += ["--cgroup", str(group)]
    if software.image is None:
        return [*enter, "--", *network.hub_command(launch.argv)]
    place = node.launchers[software.image.name, network.hub_netns]
    return [*enter, "--", *place.command(launch.argv)]


def _job(arm: RunningArm, argv: Sequence[str], forward: Sequence[str]) -> MpiJob:
    """Over several instances: by TCP from daemons in each of them; by shared memory from one daemon, the
    ranks of which enter their instances on their own."""
    place, network, software = arm.placement, arm.trial.network, arm.software
    alone = MpiJob(
        argv=tuple(argv),
        box=software.tools / "nm-box",
        ranks=place.ranks,
        transport=arm.transport,
        interface=interface_of(arm),
        scratch=str(arm.trial.directory),
        single_copy=arm.node.study.design.single_copy,
        shared_memory=str(arm.shared_memory or ""),
        forward=tuple(forward),
        yields=place.oversubscribe,
    )
    if len(arm.instances) == 1 or network is None:
        return alone
    if arm.transport is Transport.SHM:
        enter = (software.tools / "nm-box", "by-rank", _agent_map(arm), str(place.tasks))
        return replace(alone, argv=(*enter, *argv), entering=True, hub_interface=network.hub_interface)
    return replace(
        alone,
        hosts=tuple(HostSlots(host=hostname, slots=place.tasks) for hostname in arm.hostnames),
        agent=arm.ssh or _agent(arm),
        hub_interface=network.hub_interface,
        hub_address=network.hub_address,
    )


def _agent_map(arm: RunningArm) -> str:
    path = arm.trial.directory / "agents"
    path.write_text("".join(f"{from_tree(arm.software, i.agent_line)}\n" for i in arm.instances))
    return str(path)


def _agent(arm: RunningArm) -> tuple[str, ...]:
    agent = arm.trial.directory / "agent"
    if not agent.is_symlink():
        # By a name without a space, which mpirun would take for the end of a word; seen in the instances
        # too, where its daemons look for it.
        agent.symlink_to(arm.software.tools / "nm-box")
    return str(agent), _agent_map(arm)
