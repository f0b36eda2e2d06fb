"""The MPI launch of a standing arm: how its ranks reach each other, and the tokens that start them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..host import cgroups
from ..host.runtime import shared_memory_directory
from ..launchers import HostSlots, Launch, MpiJob, everywhere
from ..model.image import HOST
from ..model.study import ApplicationWorkload, Arm, CommandWorkload, KernelWorkload, Shared, Transport
from ..workloads.kernels.registry import argument
from .guests import carry_job, trouble
from .job import Job
from .profiles import profile_directory
from .session import Session
from .software import Software, from_tree
from .ssh import ssh_servers
from .standing import Standing
from .starting import slot_of

if TYPE_CHECKING:
    from ..network.build import Network


def _interface(session: Session, standing: Standing) -> str:
    """The network interface of the ranks: the attachment between instances, the loopback inside one."""
    if len(standing.instances) == 1:
        return "lo"
    return session.networks[standing.arm.name, standing.trial.aa].seats[0].interface


def events_of(session: Session) -> list[str]:
    """Tokens for nm-micro and nm-rank: the perf events that the ranks of every arm are to count."""
    return ["--events", ",".join(session.events)] if session.events else []


def cpu_list(cpus: Sequence[Sequence[int]]) -> str:
    """nm-rank's list of the CPUs of each rank: '0,1', or '0+1,2+3'."""
    return ",".join("+".join(map(str, own)) for own in cpus)


def launch_of(
    session: Session,
    standing: Standing,
    program: Sequence[str],
    *,
    measured: bool,
    forward: Sequence[str] = (),
    directory: Path | None = None,
    exit_codes: Sequence[int] = (0,),
) -> list[str]:
    """Tokens that run an MPI program over the instances of a standing arm; sets standing.launch and, where
    the study asks for profiles, standing.profiles.

    measured: have nm-rank report where each rank is and what it used (our own kernels report themselves);
    forward: names of variables of the program's own; directory: where it runs; exit_codes: of a rank that
    ended well.
    """
    arm, software = standing.arm, session.software_of(standing.arm)
    tools = software.tools
    wrapper = [tools / "nm-rank", "--cpus", cpu_list(session.cpus(arm))]
    if standing.volumes:
        paths = [str(v.path) for v in standing.volumes for _ in range(arm.placement.tasks)]
        wrapper += ["--storage", ",".join(paths)]
    if directory is not None:
        wrapper += ["--directory", str(directory)]
    if measured:
        wrapper += ["--report", str(standing.directory), *events_of(session)]
        wrapper += ["--exit-codes", ",".join(map(str, exit_codes))]
    if session.study.design.profile:
        # By nm-rank, so that no launcher and no shell on the way runs with it, and every arm alike.
        standing.profiles = profile_directory(standing.directory)
        wrapper += ["--preload", tools / "libnm-profile.so", "--profile", str(standing.profiles)]
    network = session.networks.get((arm.name, standing.trial.aa))
    job = _mpi_job(session, standing, network, [*wrapper, "--", *program], forward)
    standing.launch = software.mpi.launch(job)
    if len(standing.instances) == 1 or network is None:
        return standing.instances[0].command(standing.launch.argv)
    enter = [tools / "nm-box", "enter", "--pid", "0", "--label", session.label]
    for group in cgroups.unique(session.launcher_groups):
        enter += ["--cgroup", str(group)]
    if software.image is None:
        return [*enter, "--", *network.hub_command(standing.launch.argv)]
    place = session.launchers[software.image.name, network.hub_netns]
    return [*enter, "--", *place.command(standing.launch.argv)]


def _mpi_job(
    session: Session,
    standing: Standing,
    network: Network | None,
    argv: Sequence[str],
    forward: Sequence[str],
) -> MpiJob:
    """Over several instances: by TCP from daemons in each of them; by shared memory from one daemon, the
    ranks of which enter their instances on their own."""
    arm, tasks = standing.arm, standing.arm.placement.tasks
    software = session.software_of(arm)
    alone = MpiJob(
        argv=tuple(argv),
        box=software.tools / "nm-box",
        ranks=arm.placement.ranks,
        transport=arm.transport,
        interface=_interface(session, standing),
        scratch=str(standing.directory),
        single_copy=session.study.design.single_copy,
        shared_memory=str(standing.shared_memory or ""),
        forward=tuple(forward),
        yields=arm.placement.oversubscribe,
    )
    if len(standing.instances) == 1 or network is None:
        return alone
    if arm.transport is Transport.SHM:
        enter = (software.tools / "nm-box", "by-rank", _agent_map(software, standing), str(tasks))
        return replace(alone, argv=(*enter, *argv), entering=True, hub_interface=network.hub_interface)
    return replace(
        alone,
        hosts=tuple(HostSlots(host=i.hostname, slots=tasks) for i in standing.instances),
        agent=standing.ssh or _agent(software, standing),
        hub_interface=network.hub_interface,
        hub_address=network.hub_address,
    )


def _agent_map(software: Software, standing: Standing) -> str:
    path = standing.directory / "agents"
    path.write_text("".join(f"{from_tree(software, i.agent_line)}\n" for i in standing.instances))
    return str(path)


def _agent(software: Software, standing: Standing) -> tuple[str, ...]:
    agent = standing.directory / "agent"
    if not agent.is_symlink():
        # By a name without a space, which mpirun would take for the end of a word; seen in the instances
        # too, where its daemons look for it.
        agent.symlink_to(software.tools / "nm-box")
    return str(agent), _agent_map(software, standing)


def make_reachable(session: Session, standing: Standing, stack: ExitStack) -> None:
    """What the ranks of a standing arm need beside its instances: a directory for their segments where they
    share the machine's memory, an sshd in each where mpirun is to reach them by ssh. stack: what undoes
    it."""
    arm = standing.arm
    network = session.networks.get((arm.name, standing.trial.aa))
    if arm.transport is Transport.SHM and _has_ranks(session, arm) and _sees_shared_memory(session, arm):
        label = f"{session.label}-{slot_of(session, standing)}"
        standing.shared_memory = stack.enter_context(shared_memory_directory(label))
    several = len(standing.instances) > 1 and arm.transport is Transport.TCP
    if session.ssh is not None and several and network is not None:
        servers = ssh_servers(
            session.machine.host,
            session.ssh,
            standing.instances,
            network.seats,
            directory=standing.directory,
            environment=everywhere(str(standing.directory)),
        )
        standing.ssh = stack.enter_context(servers)


def _has_ranks(session: Session, arm: Arm) -> bool:
    """Whether it runs anything under mpirun."""
    return any(
        isinstance(w, KernelWorkload | ApplicationWorkload) or (isinstance(w, CommandWorkload) and w.mpi)
        for w in session.study.workloads
        if arm.environment.takes(w.name)
    )


def _sees_shared_memory(session: Session, arm: Arm) -> bool:
    """Whether its instances have the machine's own /dev/shm, where a killed rank leaves its segments; a tree
    of an image has its own, under the bare machine too."""
    own = "mnt" in session.backends[arm.environment.backend].capabilities.own or arm.environment.image != HOST
    return not own or Shared.IPC in arm.environment.share


def start_job(session: Session, standing: Standing) -> Job:
    """Launch nm-micro with all kernels of the arm; the caller owns the job and waits for ready()."""
    arm = standing.arm
    standing.log.mkdir(parents=True, exist_ok=True)
    specs = [
        argument(
            w,
            ranks=arm.placement.ranks,
            llc_bytes=session.machine.llc,
            extra=arm.environment.extra_work,
        )
        for w in standing.kernels
    ]
    tokens, interface = str(standing.directory), _interface(session, standing)
    program = [
        session.software_of(arm).tools / "nm-micro",
        *("--tokens", tokens),
        *("--interface", interface),
        *events_of(session),
        *specs,
    ]
    argv = launch_of(session, standing, program, measured=False)
    assert standing.launch is not None
    network = session.networks.get((arm.name, standing.trial.aa))

    def gone() -> str:
        return (network.trouble() if network is not None else "") or trouble(standing)

    job = Job(standing.directory, arm.placement.ranks, standing.log, gone)
    try:
        carry_job(job, standing)
        job.launch(session.machine.host, Launch(argv=tuple(argv), env=standing.launch.env, transport={}))
    except BaseException:
        job.close()
        raise
    return job
