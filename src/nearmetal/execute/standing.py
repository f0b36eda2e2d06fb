"""One arm of one block, standing: its fresh instances, its MPI launch, its commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..environments import Backend, Instance, InstanceRequest
from ..environments.storage import Volume
from ..errors import TrialFailedError, UnavailableError
from ..host import cgroups
from ..host.namespaces import same_namespace
from ..host.runtime import shared_memory_directory
from ..launchers import HostSlots, Launch, MpiJob, everywhere
from ..model.image import HOST
from ..model.plan import TrialSpec
from ..model.profile import RankProfile
from ..model.record import JsonValue, RankPlace
from ..model.study import (
    ApplicationWorkload,
    Arm,
    Attachment,
    CommandWorkload,
    KernelWorkload,
    Shared,
    Starts,
    Transport,
)
from ..workloads.applications import application, choices
from ..workloads.kernels import argument
from ..workloads.protocol import ReadyLine
from .guests import carry_job, trouble
from .job import Job
from .profiles import profile_directory
from .seats import hostname, slot
from .session import Session
from .software import Software, from_tree
from .ssh import ssh_servers
from .storage import bound, make_inside, volumes
from .together import Group, Start, Stopped, started

if TYPE_CHECKING:
    from ..network.build import Network
    from .companion import Beside
    from .each_instance import EachInstance
    from .inside import Inside
    from .network_watch import NetworkWatch
    from .transport_watch import TransportWatch
#: What is fresh in every instance; the rest of an image is the machine's own.
FRESH = (Path("/tmp"), Path("/run"), Path("/dev/shm"))


@dataclass(kw_only=True)
class Standing:
    """Mutable while its block runs: instances first, then the job. work: where the directories of programs
    are made, seen by the instances too, None where none has any; requests: made so far; start_seconds: one
    per start of this arm's instances in this block, the standing ones' last, start_steps its steps; stops: of
    those that were stopped again as a subject; volumes: the storage of each instance, empty where none was
    asked for; profiles: where the ranks of the last launch write theirs, None where none are asked for;
    profile: what they wrote, by workload; facts: what applications told, by
    workload; ssh: tokens of the client that reaches the instances, empty where
    an agent does; shared_memory: a directory of the machine's own /dev/shm for the ranks' segments, None
    where the instances do not see it; each, counted: what its instances count over timed runs, and what came
    of it by scope."""

    trial: TrialSpec
    arm: Arm
    directory: Path
    work: Path | None = None
    log: Path
    requests: int = 0
    start_seconds: list[float] = field(default_factory=list)
    start_steps: list[Mapping[str, float]] = field(default_factory=list)
    stops: list[Stopped] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
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
    inside: Inside | None = None
    each: EachInstance | None = None
    counted: dict[str, Mapping[str, float | None]] = field(default_factory=dict)
    transport: TransportWatch | None = None

    @property
    def standing_job(self) -> Job:
        """The job of an arm that got as far as launching one."""
        assert self.job is not None
        return self.job


@contextmanager
def start_instances(
    session: Session, standing: Standing, *, time_stop: bool = False
) -> Iterator[tuple[Instance, ...]]:
    """Fresh instances of an arm; adds the time from the request to the first instruction of the last one to
    standing.start_seconds and, with time_stop, that of their stop to standing.stops."""
    backend = session.backends[standing.arm.environment.backend]
    requests = [_request(session, standing, i) for i in range(standing.arm.placement.all_instances)]
    together = session.study.design.starts is Starts.TOGETHER
    with (
        volumes(session, standing.arm.environment, backend, requests) as standing.volumes,
        started(
            _starts(session, backend, standing.arm, bound(requests, standing.volumes)),
            together=together,
            time_stop=time_stop,
        ) as own,
    ):
        make_inside(session.machine.host, own.instances, standing.volumes)
        for instance in own.instances:
            _verify_shared(standing.arm, instance)
        standing.start_seconds.append(max(own.seconds))
        standing.start_steps.append(own.steps)
        standing.phases |= {f"start.{k}": v for k, v in own.instances[-1].phases.items()}
        standing.phases |= {f"start.instance.{i}": v for i, v in enumerate(own.seconds)}
        yield own.instances
    if own.stopped is not None:
        standing.stops.append(own.stopped)


def _verify_shared(arm: Arm, instance: Instance) -> None:
    """Raises UnavailableError where an instance has a namespace of its own that it was to share."""
    for kind in arm.environment.share:
        if not same_namespace(instance.pid, kind.value):
            raise UnavailableError(
                f"environment {arm.environment.name}: {arm.environment.backend} gave {instance.hostname} "
                f"a namespace of its own ({kind.value})",
                remedy="take share out of the environment, or use the backend namespaces as root",
            )


def _starts(session: Session, backend: Backend, arm: Arm, requests: Sequence[InstanceRequest]) -> list[Start]:
    host, tools = session.machine.host, session.software_of(arm).tools
    return [partial(backend.start, host, tools, request) for request in requests]


@contextmanager
def idle_instances(session: Session, standing: Standing, count: int) -> Iterator[Group]:
    """So many further instances of an arm, side by side, with no seat on a network and nothing to do."""
    backend = session.backends[standing.arm.environment.backend]
    requests = [_idle_request(session, standing, i) for i in range(count)]
    with started(_starts(session, backend, standing.arm, requests), together=True) as own:
        yield own


def _idle_request(session: Session, standing: Standing, number: int) -> InstanceRequest:
    place = number % standing.arm.placement.all_instances
    asked = _request(session, standing, place, name=f"idle{number}")
    if asked.seat is None:
        return asked
    alone = Attachment.NONE if asked.environment.attachment.seated else asked.environment.attachment
    return replace(asked, seat=None, environment=replace(asked.environment, attachment=alone))


def _request(
    session: Session, standing: Standing, number: int, *, name: str | None = None
) -> InstanceRequest:
    """What one instance of a standing arm is asked to be, with a scratch directory of its own. number: its
    place among the arm's; name: ends its label and its host name, the number where none is given."""
    arm = standing.arm
    software = session.software_of(arm)
    network = session.networks.get((arm.name, standing.trial.aa))
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(gone, remedy="what removed it? the network is not built anew within a run")
    label, hostname, scratch = request_name(session, standing, name or str(number))
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=arm.environment,
        cpus=session.instance_cpus(arm, number),
        seat=network.seats[number] if network is not None else None,
        binds=(
            standing.directory,
            *((standing.work,) if standing.work is not None else ()),
            software.tools.directory,
            *((session.ssh.directory,) if session.ssh else ()),
            *_hidden_programs(session, arm),
        ),
        scratch=scratch,
        tree=software.tree,
        user_namespace=session.user_namespace,
        base=session.bases.get(arm.environment.name),
    )


def request_name(session: Session, standing: Standing, name: str) -> tuple[str, str, Path]:
    """Label, host name and a new scratch directory of an instance of an arm."""
    own = f"{_slot(session, standing)}-{name}"
    scratch = standing.directory / f"instance-{name}-{standing.requests}"
    standing.requests += 1
    scratch.mkdir()
    return f"{session.label}-{own}", hostname(own), scratch


def _hidden_programs(session: Session, arm: Arm) -> tuple[Path, ...]:
    """Directories of the user's own programs that lie where an instance has directories of its own: with a
    program in bin, what lies beside that, as an interpreter needs it."""
    own = [w for w in session.study.workloads if arm.environment.takes(w.name)]
    named = [w.argv_on(arm.placement.ranks)[0] for w in own if isinstance(w, CommandWorkload)]
    for w in own:
        if isinstance(w, ApplicationWorkload):
            named += application(w.application).needs(choices(w)).programs
    programs = [p for p in map(Path, named) if any(p.is_relative_to(d) for d in FRESH) and p.is_file()]
    return tuple(dict.fromkeys(_around(p) for p in programs))


def _around(program: Path) -> Path:
    above = program.parent.parent
    return above if program.parent.name == "bin" and above not in FRESH else program.parent


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


@contextmanager
def reachable(session: Session, standing: Standing) -> Iterator[None]:
    """What the ranks of a standing arm need beside its instances: a directory for their segments where they
    share the machine's memory, an sshd in each where mpirun is to reach them by ssh."""
    arm = standing.arm
    network = session.networks.get((arm.name, standing.trial.aa))
    with ExitStack() as stack:
        if arm.transport is Transport.SHM and _sees_shared_memory(session, arm):
            label = f"{session.label}-{_slot(session, standing)}"
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
        yield


def _sees_shared_memory(session: Session, arm: Arm) -> bool:
    """Whether its instances have the machine's own /dev/shm, where a killed rank leaves its segments; a tree
    of an image has its own, under the bare machine too."""
    own = "mnt" in session.backends[arm.environment.backend].own or arm.environment.image != HOST
    return not own or Shared.IPC in arm.environment.share


def _slot(session: Session, standing: Standing) -> str:
    return slot(session.arms, standing.arm.name, standing.trial.aa)


def start_job(session: Session, standing: Standing) -> Job:
    """Launch nm-micro with all kernels of the arm; the caller owns the job and waits for ready()."""
    arm = standing.arm
    standing.log.mkdir(parents=True, exist_ok=True)
    specs = [
        argument(
            w,
            transport=arm.transport,
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
