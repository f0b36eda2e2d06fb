"""The launch of an MPI program over the instances of a running arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...host import cgroups
from ...launchers import HostSlots, Launch, MpiJob, fixed_names
from ...meters.groups import MeteredArm
from ...model.study import Transport
from ...node.arms.running_arm import RunningArm
from ...node.software import from_tree
from .profiles import profile_directory
from .rank_argv import Report, rank_argv, storage_of_ranks, variable_argv


@dataclass(frozen=True, kw_only=True)
class ProgramLaunch:
    """The launch of a program over the instances of an arm.

    argv: command line to run on the machine.
    env: environment variables of that command; None for one that is removed.
    profiles: directory into which the ranks write their profiles; None if the study does not request any.
    """

    argv: Sequence[str]
    env: Mapping[str, str | None]
    profiles: Path | None = None


def interface_of(arm: RunningArm) -> str:
    """Return the name of the network interface that the ranks use: that of their instances' network, or
    loopback if there is only one instance."""
    if len(arm.instances) == 1:
        return "lo"
    network = arm.trial.network
    return arm.node.real.interface if network is None else network.seats[0].interface


def mpi_launch(
    metered: MeteredArm,
    program: Sequence[str],
    *,
    cpus: Sequence[Sequence[int]],
    measured: bool,
    forward: Sequence[str] = (),
    directory: str | Path | None = None,
    exit_codes: Sequence[int] = (0,),
) -> ProgramLaunch:
    """Return the launch of an MPI program over the instances of an arm, and record its transport.

    cpus: CPUs of each rank, as the rank sees them.
    measured: whether nm-rank reports where each rank runs and which resources it used. The built-in kernels
        report this themselves.
    forward: names of the program's own environment variables, which mpirun passes to the ranks.
    directory: working directory.
    exit_codes: exit statuses of a successful rank.
    """
    arm, node, trial = metered.running, metered.running.node, metered.running.trial
    software = arm.software
    profiles = profile_directory(trial.directory) if node.study.design.profile else None
    variables = {n: v for n, v in software.config.env.items() if n not in {*forward, *fixed_names((n,))}}
    rank = rank_argv(
        software.tools,
        cpus,
        program,
        report=Report(directory=trial.directory, events=metered.events, exit_codes=exit_codes)
        if measured
        else None,
        storage=storage_of_ranks(arm.volumes, arm.placement.tasks),
        directory=directory,
        profile=profiles,
        variables=variables,
        caller=node.caller.state if measured else "",
        # The daemons of mpirun start ranks in /.
        here=node.caller.directory if measured and not _without_hub(arm) else "",
    )
    launch = software.mpi.launch(_job(arm, rank, forward))
    if variables:
        # mpirun needs them too, but the programs of the machine that start it in the image must not get them.
        setting = [software.tools / "nm-rank", "--rank", "0", *variable_argv(variables), "--"]
        launch = replace(launch, argv=(*setting, *launch.argv))
    trial.found.transport = dict(launch.transport)
    return ProgramLaunch(argv=_words(arm, launch), env=launch.env, profiles=profiles)


def _words(arm: RunningArm, launch: Launch) -> list[str]:
    """Return the command line to run on the machine.

    If there is only one instance, mpirun runs in it. Otherwise it runs in the hub of the network, which may
    be inside a guest; or on this machine, if the instances are on other machines without a network of
    nearmetal.
    """
    node, software, network = arm.node, arm.software, arm.trial.network
    if _without_hub(arm):
        return arm.instances[0].command(launch.argv)
    argv = launch.argv if network is None else network.hub_command(launch.argv)
    if (guest := arm.guest_around) is not None:
        return guest.command(argv)
    enter = [software.tools / "nm-box", "enter", "--pid", "0", "--label", node.label]
    for group in cgroups.unique(node.launcher_groups):
        enter += ["--cgroup", str(group)]
    if software.image is not None and network is not None:
        argv = node.launchers[software.image.name, network.hub_netns].command(launch.argv)
    return [*enter, "--", *argv]


def _without_hub(arm: RunningArm) -> bool:
    """Return whether mpirun runs in the first instance, since it reaches all ranks from there."""
    return len(arm.instances) == 1 or (arm.trial.network is None and not arm.placement.node.remote)


def _job(arm: RunningArm, argv: Sequence[str], forward: Sequence[str]) -> MpiJob:
    """Return the job for the launcher.

    Over several instances, TCP ranks are started by a daemon in each instance. Ranks that share memory are
    started by one daemon, and each enters its instance itself.
    """
    place, software = arm.placement, arm.software
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
    if _without_hub(arm):
        return alone
    hub = arm.trial.network or arm.node.real
    if arm.transport is Transport.SHM:
        enter = (software.tools / "nm-box", "by-rank", _agent_map(arm), str(place.tasks))
        return replace(alone, argv=(*enter, *argv), entering=True, hub_interface=hub.hub_interface)
    return replace(
        alone,
        hosts=tuple(HostSlots(host=hostname, slots=place.tasks) for hostname in arm.hostnames),
        agent=arm.ssh or _agent(arm),
        hub_interface=hub.hub_interface,
        hub_address=hub.hub_address,
    )


def _agent_map(arm: RunningArm) -> str:
    lines = arm.inner_lines or [from_tree(arm.software, i.agent_line) for i in arm.instances]
    path = arm.trial.private_directory("agents") / "agents"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def _agent(arm: RunningArm) -> tuple[str, ...]:
    # The daemons inside the instances need the agent at the same path too. It is one of the tools, so they
    # cannot change what mpirun runs on the machine.
    agent = Path(arm.software.tools / "agent")
    if " " in str(agent):  # where mpirun splits words
        agent = arm.trial.directory / "agent"
        if not agent.is_symlink():
            agent.symlink_to(arm.software.tools / "nm-box")
    return str(agent), _agent_map(arm)
