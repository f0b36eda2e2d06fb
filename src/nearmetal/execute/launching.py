"""One launch of a program in a standing arm: run whole, measured by nm-rank beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..errors import TrialFailedError
from ..launchers import verify_places
from ..model.profile import RankProfile
from ..workloads.protocol import RankReport, told_by_program, told_error
from .copies import instance_walls
from .network_watch import look_at_network
from .profiles import read_profiles
from .reports import read_reports
from .session import Session
from .standing import Standing, cpu_list, launch_of
from .transport_watch import TransportWatch


@dataclass(frozen=True, kw_only=True)
class Program:
    """name: of the workload; argv: tokens, no shell; mpi: one rank for each task, else one process on all
    CPUs of the first instance, for it may have threads; directory: where it runs, the same path in every
    instance, None for any; time_limit: seconds."""

    name: str
    argv: tuple[str, ...]
    mpi: bool
    time_limit: float
    env: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None


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


def run_program(session: Session, s: Standing, program: Program) -> Ran:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    argv, env = _words(session, s, program)
    done = session.machine.host.run(
        argv,
        timeout=program.time_limit,
        env=env,
        cwd=Path.cwd(),
        # Its connections go when it ends: what a run of less than a second did to them, only counters tell.
        each_second=partial(look_at_network, session, s),
    )
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text:
            s.log.mkdir(parents=True, exist_ok=True)
            (s.log / f"{program.name}.{name}.txt").write_text(text)
    if done.returncode != os.EX_OK:
        words = told_error(done.stderr) or (told_by_program(done.stderr) if program.mpi else None)
        raise TrialFailedError(
            f"{program.name} ended with {done.returncode}: {words or done.last_words()}",
            where=str(s.log),
            remedy=f"raise time_limit above {program.time_limit:g} s" if done.returncode == 124 else "",
        )
    reports = read_reports(s.directory, s.arm.placement.ranks if program.mpi else 1)
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
            session, s, program.argv, measured=True, forward=tuple(env), directory=program.directory
        )
        assert s.launch is not None
        s.transport = s.transport or TransportWatch(s)
        return argv, env | dict(s.launch.env)
    pinned = ["--cpus", cpu_list([session.instance_cpus(s.arm, 0)]), "--report", str(s.directory)]
    if s.volumes:
        pinned += ["--storage", str(s.volumes[0].path)]
    if program.directory is not None:
        pinned += ["--directory", str(program.directory)]
    rank = [session.software_of(s.arm).tools / "nm-rank", *pinned, "--", *program.argv]
    return s.instances[0].command(rank), env
