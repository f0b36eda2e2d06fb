"""One launch of a program in a running arm. The program runs as a whole, and nm-rank measures it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ...errors import TrialFailedError
from ...host.caller import NO_INPUT
from ...launchers import verify_places
from ...meters.groups import MeteredArm
from ...model.study import CommandWorkload
from ...model.workloads.profile import RankProfile
from ...node.arms.running_arm import RunningArm
from ...node.guests import into_guests, out_of_guests
from ...node.trial import Trial
from ...workloads.protocol import RankReport
from .failures import end_younger, failure, require_nothing_left, write_logs
from .mpi_job import ProgramLaunch, mpi_launch
from .profiles import read_profiles
from .rank_argv import Report, rank_argv
from .reports import forget_reports, instance_walls, read_reports
from .staging import KEPT

CLOCKS_APART = 0.02
"""Tolerance for CPU time exceeding wall time, as a fraction. The two are read from different clocks."""


@dataclass(frozen=True, kw_only=True)
class LaunchedProgram:
    """A program that is launched over the instances of an arm.

    argv: command line, without a shell.
    mpi: True for one rank for each task; False for one process on all CPUs of the first instance, since it
        may have threads.
    cpus: CPUs of each rank, as the rank sees them.
    directory: working directory, at the same path in every instance; None if it does not matter.
    exit_codes: exit statuses of a successful run.
    time_limit: time limit in seconds.
    reads: whether it gets the standard input of the caller, or an empty one.
    """

    name: str
    argv: tuple[str, ...]
    mpi: bool
    cpus: Sequence[Sequence[int]]
    time_limit: float
    env: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    exit_codes: tuple[int, ...] = (0,)
    reads: bool = False


def launched_program(workload: CommandWorkload, trial: Trial, directory: Path | None) -> LaunchedProgram:
    """Return a user's own program as it is launched in a trial, in a directory of its own if it has one."""
    return LaunchedProgram(
        name=workload.name,
        argv=workload.argv_on(trial.arm.placement.ranks),
        mpi=workload.mpi and not workload.per_task,
        cpus=trial.cpus_of(workload),
        env=workload.env,
        directory=directory,
        exit_codes=workload.exit_codes,
        time_limit=workload.time_limit,
        reads=True,
    )


@dataclass(frozen=True, kw_only=True)
class ProgramOutput:
    """The output and reports of a successful launch.

    reports: one for each rank.
    profiles: one for each rank; empty if the study requests none.
    """

    stdout: str
    stderr: str
    reports: tuple[RankReport, ...]
    profiles: tuple[RankProfile, ...]

    @property
    def parts(self) -> dict[str, float] | None:
        """Seconds that the slowest rank spent in communication, in computation and in MPI_Init; None without
        profiles. Time before MPI_Init and from the beginning of MPI_Finalize on is not included."""
        if not self.profiles:
            return None
        slowest = self.profiles[max(range(len(self.reports)), key=lambda rank: self.reports[rank].wall)]
        return {"comm": slowest.communication, "compute": slowest.compute, "init": slowest.init}

    @property
    def accounts(self) -> dict[str, float] | None:
        """Seconds of the slowest rank's wall time by Linux's accounts: user time, system time, and the rest
        (waiting).

        None for a program whose threads took more CPU time than wall time.
        """
        slowest = max(self.reports, key=lambda r: r.wall)
        wait = slowest.wall - slowest.user - slowest.system
        if wait < -CLOCKS_APART * slowest.wall:
            return None
        return {"user": slowest.user, "system": slowest.system, "wait": max(0.0, wait)}


def run_program(metered: MeteredArm, program: LaunchedProgram) -> ProgramOutput:
    """Run a program once.

    Raises TrialFailedError if it does not end in time, or ends with an error.
    """
    arm, trial = metered.running, metered.running.trial
    launch = _launch(metered, program)
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    forget_reports(trial.directory, arm.placement.ranks)
    own = () if program.directory is None else (program.directory,)
    into_guests(arm.machines, trial.directory, own)
    with (arm.node.caller.input if program.reads else NO_INPUT).opened() as given:
        done = arm.node.machine.host.run(
            launch.argv,
            timeout=program.time_limit,
            env=launch.env,
            stdin=given,
            # The connections vanish when the program ends. For a run shorter than a second, only the counters
            # remain.
            each_second=partial(check_network, metered),
            most=KEPT,
        )
    write_logs(trial, program.name, done.stdout, done.stderr)
    if done.returncode != os.EX_OK:
        end_younger(arm, begin)
        raise failure(arm, program, done)
    further = own if launch.profiles is None else (launch.profiles, *own)
    out_of_guests(arm.guests, trial.directory, arm.placement.tasks, further)
    reports = read_reports(trial.directory, arm.placement.ranks if program.mpi else 1)
    require_nothing_left(trial, program.name, reports)
    metered.inside.run(program.name, reports)
    profiles: tuple[RankProfile, ...] = ()
    if program.mpi:
        record_places(arm, program.name, reports, program.cpus)
        if launch.profiles is not None:
            profiles = tuple(p.whole() for p in read_profiles(launch.profiles, len(reports)))
            trial.found.profile[program.name] = profiles
    else:
        trial.found.places = tuple(r.place for r in reports)
    return ProgramOutput(stdout=done.stdout, stderr=done.stderr, reports=tuple(reports), profiles=profiles)


def record_places(
    arm: RunningArm, name: str, reports: Sequence[RankReport], cpus: Sequence[Sequence[int]]
) -> list[float]:
    """Record and check on which CPUs the ranks of a program ran. Return for each instance the seconds until
    its last rank ended.

    cpus: required CPUs of each rank.
    Raises TrialFailedError if a rank was not where the study places it.
    """
    found = arm.trial.found
    found.places = tuple(r.place for r in reports)
    verify_places(found.places, arm.placement, cpus, arm.hostnames)
    walls = instance_walls(reports, arm.placement.tasks)
    found.phases |= {f"{name}.instance.{i}": wall for i, wall in enumerate(walls)}
    return walls


def check_network(metered: MeteredArm) -> None:
    """Check the network and the transport of the ranks. Called once a second while a program runs.

    The transport is no longer checked once it has been observed.

    Raises TrialFailedError, which ends the program, if the network no longer exists, or if the ranks use
    a transport other than the study's.
    """
    trial = metered.running.trial
    network = trial.network
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(gone, where=str(trial.log))
    if metered.network is not None:
        metered.network.look()
    if metered.transport.launched and metered.transport.seen is None:
        metered.transport.look(connected=False)


def image_variables(arm: RunningArm, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the image of an arm states (ENV). They override those of the caller, but not
    those of the study.

    own: those of the study.
    """
    return {name: value for name, value in arm.software.config.env.items() if name not in own}


def image_directory(arm: RunningArm, argv: Sequence[str]) -> str | None:
    """Return the directory that the image of an arm states (WORKDIR), for a program without a directory of
    its own.

    None if there is none, or if a word of the command is a file of the caller's directory: the program then
    runs there, as with any image.
    """
    stated = arm.software.config.directory
    return None if not stated or any(word and Path(word).exists() for word in argv) else stated


def _launch(metered: MeteredArm, program: LaunchedProgram) -> ProgramLaunch:
    arm = metered.running
    if program.mpi:
        launch = mpi_launch(
            metered,
            program.argv,
            cpus=program.cpus,
            measured=True,
            forward=tuple(program.env),
            directory=program.directory or image_directory(arm, program.argv),
            exit_codes=program.exit_codes,
        )
        metered.transport.launched = True
        own = {name: value for name, value in program.env.items() if launch.env.get(name) is None}
        return replace(launch, env={**arm.node.caller.variables, **launch.env, **own})
    first = {cpu for cpus in program.cpus[: arm.placement.tasks] for cpu in cpus}
    rank = rank_argv(
        arm.software.tools,
        [sorted(first)],
        program.argv,
        rank=0,  # the caller may be a rank itself
        report=Report(directory=arm.trial.directory, events=metered.events, exit_codes=program.exit_codes),
        storage=[v.path for v in arm.volumes[:1]],
        directory=program.directory or image_directory(arm, program.argv),
        variables=image_variables(arm, program.env),
        caller=arm.node.caller.state,
    )
    env = {**arm.node.caller.variables, **program.env}
    return ProgramLaunch(argv=arm.instances[0].command(rank), env=env)
