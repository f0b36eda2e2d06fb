"""One launch of a program in a standing arm: run whole, measured by nm-rank beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..launchers import verify_places
from ..meters.network import look_at_network
from ..meters.transport import TransportWatch
from ..model.profile import RankProfile
from ..node.guests import into_guests, out_of_guests
from ..node.node import Session
from ..node.trial import Standing
from ..workloads.protocol import RankReport
from .failures import end_younger, failure, require_nothing_left, write_logs
from .mpi_job import cpu_list, events_of, launch_of
from .profiles import read_profiles
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


def run_program(session: Session, s: Standing, program: Program) -> Ran:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    argv, env = _words(session, s, program)
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    forget_reports(s)
    own = () if program.directory is None else (program.directory,)
    into_guests(s, own)
    done = session.machine.host.run(
        argv,
        timeout=program.time_limit,
        env=env,
        # Its connections go when it ends: what a run of less than a second did to them, only counters tell.
        each_second=partial(look_at_network, session, s),
        most=KEPT,
    )
    write_logs(s, program.name, done.stdout, done.stderr)
    if done.returncode != os.EX_OK:
        end_younger(s, begin)
        raise failure(
            session,
            s,
            program.name,
            done,
            program=program.argv[0],
            limit=program.time_limit,
            exit_codes=program.exit_codes,
        )
    out_of_guests(s, own)
    reports = read_reports(s.directory, s.arm.placement.ranks if program.mpi else 1)
    require_nothing_left(s, program.name, reports)
    if s.inside is not None:
        s.inside.run(program.name, reports)
    s.places = tuple(r.place for r in reports)
    profiles: tuple[RankProfile, ...] = ()
    if program.mpi:
        hosts = tuple(i.hostname for i in s.instances)
        verify_places(s.places, s.arm.placement, session.cpus(s.arm), hosts)
        walls = instance_walls(reports, s.arm.placement.tasks)
        s.phases |= {f"{program.name}.instance.{i}": v for i, v in enumerate(walls)}
        if s.profiles is not None:
            profiles = tuple(p.whole() for p in read_profiles(s.profiles, len(reports)))
            s.profile[program.name] = profiles
    return Ran(stdout=done.stdout, stderr=done.stderr, reports=tuple(reports), profiles=profiles)


def _words(session: Session, s: Standing, program: Program) -> tuple[Sequence[str], dict[str, str]]:
    """Tokens that run it, and the variables of the launch."""
    env = dict(program.env)
    if program.mpi:
        argv = launch_of(
            session,
            s,
            program.argv,
            measured=True,
            forward=tuple(env),
            directory=program.directory,
            exit_codes=program.exit_codes,
        )
        assert s.launch is not None
        s.transport = s.transport or TransportWatch(s)
        return argv, env | dict(s.launch.env)
    first = {cpu for cpus in session.cpus(s.arm)[: s.arm.placement.tasks] for cpu in cpus}
    pinned = ["--cpus", cpu_list([sorted(first)]), "--report", str(s.directory)]
    pinned += events_of(session)
    pinned += ["--exit-codes", ",".join(map(str, program.exit_codes))]
    if s.volumes:
        pinned += ["--storage", str(s.volumes[0].path)]
    if program.directory is not None:
        pinned += ["--directory", str(program.directory)]
    rank = [session.software_of(s.arm).tools / "nm-rank", *pinned, "--", *program.argv]
    return s.instances[0].command(rank), env
