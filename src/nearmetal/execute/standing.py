"""One arm of one block, standing: its fresh instances, its MPI launch, its commands."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..environments import Instance, InstanceRequest
from ..host import cgroups
from ..launchers import HostSlots, Launch, MpiJob, openmpi_launch
from ..model.plan import TrialSpec
from ..model.record import RankPlace
from ..model.study import Arm, KernelWorkload
from ..workloads.kernels import argument
from ..workloads.protocol import ReadyLine
from .job import Job
from .session import Session


@dataclass(kw_only=True)
class Standing:
    """Mutable while its block runs: instances first, then the job. start_seconds: one per start of this arm's
    instances in this block, the standing ones' last."""

    trial: TrialSpec
    arm: Arm
    directory: Path
    log: Path
    start_seconds: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    kernels: tuple[KernelWorkload, ...] = ()
    job: Job | None = None
    launch: Launch | None = None
    ready: ReadyLine | None = None
    places: tuple[RankPlace, ...] = ()
    failure: str = ""

    @property
    def standing_job(self) -> Job:
        """The job of an arm that got as far as launching one."""
        assert self.job is not None
        return self.job


@contextmanager
def start_instances(session: Session, standing: Standing) -> Iterator[tuple[Instance, ...]]:
    """Fresh instances of an arm, one after the other; adds the time from the first request to the first
    instruction of the last one to standing.start_seconds."""
    arm = standing.arm
    backend = session.backends[arm.environment.backend]
    cpus = session.cpus(arm)
    seats = session.seats.get((arm.name, standing.trial.aa), ())
    out: list[Instance] = []
    with ExitStack() as stack:
        origin = time.monotonic()
        total = 0.0
        for i in range(arm.placement.instances):
            slot = f"{list(session.arms).index(arm.name)}{'r' if standing.trial.aa else ''}-{i}"
            scratch = standing.directory / f"instance-{i}-{len(standing.start_seconds)}"
            scratch.mkdir()
            begin = time.monotonic()
            instance = stack.enter_context(
                backend.start(
                    session.machine.host,
                    session.machine.tools,
                    InstanceRequest(
                        label=f"{session.label}-{slot}",
                        hostname=f"nm{slot}",
                        environment=arm.environment,
                        cpus=tuple(cpus[i * arm.placement.tasks : (i + 1) * arm.placement.tasks]),
                        seat=seats[i] if seats else None,
                        binds=(standing.directory, session.machine.tools.directory),
                        scratch=scratch,
                        user_namespace=session.user_namespace,
                    ),
                )
            )
            total = begin - origin + instance.phases["first_instruction"]
            out.append(instance)
        standing.start_seconds.append(total)
        standing.phases.update({f"start.{k}": v for k, v in out[-1].phases.items()})
        yield tuple(out)


def launch_of(session: Session, standing: Standing, program: Sequence[str], *, measured: bool) -> list[str]:
    """Tokens that run an MPI program over the instances of a standing arm; sets standing.launch.

    measured: have nm-rank report where each rank is and what it used (our own kernels report themselves).
    """
    arm, tools, machine = standing.arm, session.machine.tools, session.machine
    cpus = ",".join(map(str, session.cpus(arm)))
    wrapper = [tools / "nm-rank", "--cpus", cpus]
    if measured:
        wrapper += ["--places", str(standing.directory), "--usage", str(standing.directory)]
    one = len(standing.instances) == 1
    if one:
        job = MpiJob(
            argv=(*wrapper, "--", *program),
            ranks=arm.placement.ranks,
            transport=arm.transport,
            interface="lo",
            scratch=str(standing.directory),
        )
    else:
        assert session.network is not None
        agent_map = standing.directory / "agents"
        agent_map.write_text("".join(f"{i.agent_line}\n" for i in standing.instances))
        job = MpiJob(
            argv=(*wrapper, "--", *program),
            ranks=arm.placement.ranks,
            transport=arm.transport,
            interface=session.seats[arm.name, standing.trial.aa][0].interface,
            scratch=str(standing.directory),
            hosts=tuple(HostSlots(host=i.hostname, slots=arm.placement.tasks) for i in standing.instances),
            agent=(tools / "nm-box", "agent", str(agent_map)),
            hub_interface=session.network.hub_interface,
        )
    standing.launch = openmpi_launch(job, machine.mpirun, machine.mpi)
    if one:
        return standing.instances[0].command(standing.launch.argv)
    assert session.network is not None
    enter = [tools / "nm-box", "enter", "--pid", "0", "--label", session.label]
    for group in cgroups.unique(session.launcher_groups):
        enter += ["--cgroup", str(group)]
    return [*enter, "--", *session.network.hub_command(standing.launch.argv)]


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
    program = [session.machine.tools / "nm-micro", "--tokens", str(standing.directory), *specs]
    argv = launch_of(session, standing, program, measured=False)
    assert standing.launch is not None
    job = Job(standing.directory, arm.placement.ranks, standing.log)
    try:
        job.launch(session.machine.host, Launch(argv=tuple(argv), env=standing.launch.env, transport={}))
    except BaseException:
        job.close()
        raise
    return job
