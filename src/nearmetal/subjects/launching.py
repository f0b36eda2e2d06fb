"""One launch of a program in a running arm: run whole, measured by nm-rank beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..errors import TrialFailedError
from ..launchers import verify_places
from ..meters.groups import MeteredArm
from ..model.profile import RankProfile
from ..node.guests import into_guests, out_of_guests
from ..node.running_arm import RunningArm
from ..workloads.protocol import RankReport
from .failures import end_younger, failure, require_nothing_left, write_logs
from .mpi_job import mpi_launch
from .profiles import read_profiles
from .rank_argv import Report, rank_argv
from .reports import forget_reports, instance_walls, read_reports
from .staging import KEPT

CLOCKS_APART = 0.02
"""Share by which CPU time may be beyond wall time: they come from two clocks."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that is launched over the instances of an arm.

    name: of the workload.
    argv: tokens, no shell.
    mpi: one rank for each task, else one process on all CPUs of the first instance, for it may have threads.
    directory: where it runs, the same path in every instance, None for any.
    exit_codes: of a run that ended well.
    time_limit: seconds.
    """

    name: str
    argv: tuple[str, ...]
    mpi: bool
    time_limit: float
    env: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    exit_codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A launch that ended well. reports, profiles: one for each rank, the latter where they were asked for.
    Time to wait is the slowest rank's, memory the largest's; CPU time is spent by all together."""

    stdout: str
    stderr: str
    reports: tuple[RankReport, ...]
    profiles: tuple[RankProfile, ...]

    @property
    def wall(self) -> float:
        return max(r.wall for r in self.reports)

    @property
    def user(self) -> float:
        return sum(r.user for r in self.reports)

    @property
    def system(self) -> float:
        return sum(r.system for r in self.reports)

    @property
    def max_rss(self) -> int:
        return max(r.max_rss for r in self.reports)

    @property
    def parts(self) -> dict[str, float] | None:
        """What the wall time of the slowest rank is made of, save what lies before MPI_Init and from
        MPI_Finalize on; None without profiles."""
        if not self.profiles:
            return None
        slowest = self.profiles[max(range(len(self.reports)), key=lambda rank: self.reports[rank].wall)]
        return {"comm": slowest.communication, "compute": slowest.compute, "init": slowest.init}

    @property
    def accounts(self) -> dict[str, float] | None:
        """The same by the kernel: its own code, system calls, and neither (waiting). None of a program whose
        threads took more CPU time than passed."""
        slowest = max(self.reports, key=lambda r: r.wall)
        wait = slowest.wall - slowest.user - slowest.system
        if wait < -CLOCKS_APART * slowest.wall:
            return None
        return {"user": slowest.user, "system": slowest.system, "wait": max(0.0, wait)}


def run_program(metered: MeteredArm, program: Program) -> Ran:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    arm, trial = metered.running, metered.running.trial
    words = _words(metered, program)
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    forget_reports(trial.directory, arm.placement.ranks)
    own = () if program.directory is None else (program.directory,)
    into_guests(arm.guests, trial.directory, own)
    done = arm.node.machine.host.run(
        words.argv,
        timeout=program.time_limit,
        env=words.env,
        # Its connections go when it ends: what a run of less than a second did to them, only counters tell.
        each_second=partial(check_network, metered),
        most=KEPT,
    )
    write_logs(trial, program.name, done.stdout, done.stderr)
    if done.returncode != os.EX_OK:
        end_younger(arm, begin)
        raise failure(
            arm,
            program.name,
            done,
            program=program.argv[0],
            limit=program.time_limit,
            exit_codes=program.exit_codes,
        )
    further = own if words.profiles is None else (words.profiles, *own)
    out_of_guests(arm.guests, trial.directory, arm.placement.tasks, further)
    reports = read_reports(trial.directory, arm.placement.ranks if program.mpi else 1)
    require_nothing_left(trial, program.name, reports)
    metered.inside.run(program.name, reports)
    profiles: tuple[RankProfile, ...] = ()
    if program.mpi:
        record_places(arm, program.name, reports)
        if words.profiles is not None:
            profiles = tuple(p.whole() for p in read_profiles(words.profiles, len(reports)))
            trial.found.profile[program.name] = profiles
    else:
        trial.found.places = tuple(r.place for r in reports)
    return Ran(stdout=done.stdout, stderr=done.stderr, reports=tuple(reports), profiles=profiles)


def record_places(arm: RunningArm, name: str, reports: Sequence[RankReport]) -> list[float]:
    """Check where the ranks of a program ran, and keep the seconds of each instance, which are returned.

    name: of the workload.

    Raises TrialFailedError.
    """
    found = arm.trial.found
    found.places = tuple(r.place for r in reports)
    verify_places(found.places, arm.placement, arm.node.cpus(arm.trial.arm), arm.hostnames)
    walls = instance_walls(reports, arm.placement.tasks)
    found.phases |= {f"{name}.instance.{i}": wall for i, wall in enumerate(walls)}
    return walls


def check_network(metered: MeteredArm) -> None:
    """Called once a second while a program runs. It looks at the transport of the ranks until something was
    seen.

    Raises TrialFailedError, which ends the program, if the network is gone that it waits for, or if its ranks
    use another transport than the study asks for.
    """
    trial = metered.running.trial
    network = trial.network
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(gone, where=str(trial.log))
    if metered.network is not None:
        metered.network.look()
    if metered.transport.launched and metered.transport.seen is None:
        metered.transport.look(connected=False)


@dataclass(frozen=True, kw_only=True)
class _Words:
    """How a program is started: tokens, variables, and the directory of its ranks' profiles if there is
    any."""

    argv: Sequence[str]
    env: Mapping[str, str]
    profiles: Path | None = None


def _words(metered: MeteredArm, program: Program) -> _Words:
    arm = metered.running
    if program.mpi:
        launch = mpi_launch(
            metered,
            program.argv,
            measured=True,
            forward=tuple(program.env),
            directory=program.directory,
            exit_codes=program.exit_codes,
        )
        metered.transport.launched = True
        env = {**program.env, **launch.launch.env}
        return _Words(argv=launch.argv, env=env, profiles=launch.profiles)
    first = {cpu for cpus in arm.node.cpus(arm.trial.arm)[: arm.placement.tasks] for cpu in cpus}
    rank = rank_argv(
        arm.software.tools,
        [sorted(first)],
        program.argv,
        report=Report(directory=arm.trial.directory, events=metered.events, exit_codes=program.exit_codes),
        storage=[v.path for v in arm.volumes[:1]],
        directory=program.directory,
    )
    return _Words(argv=arm.instances[0].command(rank), env=program.env)
