"""A user's own program in a standing arm: run whole, measured by nm-rank beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..errors import TrialFailedError
from ..launchers import verify_places
from ..model.profile import RankProfile
from ..model.record import Row
from ..model.study import CommandWorkload
from ..workloads.command import parse
from ..workloads.protocol import RankReport, told_by_program, told_error
from .copies import instance_walls, run_copies
from .network_watch import look_at_network
from .profiles import read_profiles
from .reports import read_reports
from .session import Session
from .standing import Standing, cpu_list, launch_of
from .transport_watch import TransportWatch


def run_command(session: Session, s: Standing, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    if workload.per_task:
        return run_copies(session, s, workload)
    env = dict(workload.env)
    program = workload.argv_on(s.arm.placement.ranks)
    if workload.mpi:
        argv = launch_of(session, s, program, measured=True, forward=tuple(workload.env))
        assert s.launch is not None
        env |= s.launch.env
        s.transport = s.transport or TransportWatch(s)
    else:
        # One process without MPI: on all CPUs of the first instance, for it may have threads.
        pinned = ["--cpus", cpu_list([session.instance_cpus(s.arm, 0)]), "--report", str(s.directory)]
        if s.volumes:
            pinned += ["--storage", str(s.volumes[0].path)]
        rank = [session.software_of(s.arm).tools / "nm-rank", *pinned, "--", *program]
        argv = s.instances[0].command(rank)
    done = session.machine.host.run(
        argv,
        timeout=workload.time_limit,
        env=env,
        cwd=Path.cwd(),
        # Its connections go when it ends: what a run of less than a second did to them, only counters tell.
        each_second=partial(look_at_network, session, s),
    )
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text:
            s.log.mkdir(parents=True, exist_ok=True)
            (s.log / f"{workload.name}.{name}.txt").write_text(text)
    if done.returncode == os.EX_OK:
        reports = read_reports(s.directory, s.arm.placement.ranks if workload.mpi else 1)
        s.places = tuple(r.place for r in reports)
        if workload.mpi:
            hosts = tuple(i.hostname for i in s.instances)
            verify_places(s.places, s.arm.placement, session.cpus(s.arm), hosts)
            walls = instance_walls(reports, s.arm.placement.tasks)
            s.phases |= {f"{workload.name}.instance.{i}": v for i, v in enumerate(walls)}
        profiles: tuple[RankProfile, ...] = ()
        if workload.mpi and s.profiles is not None:
            profiles = tuple(p.whole() for p in read_profiles(s.profiles, len(reports)))
            s.profile[workload.name] = profiles
        # Time to wait is the slowest rank's, memory the largest's; CPU time is spent by all together.
        return parse(
            workload,
            done.stdout,
            wall=max(r.wall for r in reports),
            user=sum(r.user for r in reports),
            system=sum(r.system for r in reports),
            max_rss=max(r.max_rss for r in reports),
            parts=_parts(reports, profiles) if profiles else None,
        )
    words = told_error(done.stderr) or (told_by_program(done.stderr) if workload.mpi else None)
    raise TrialFailedError(
        f"{workload.name} ended with {done.returncode}: {words or done.last_words()}",
        where=str(s.log),
        remedy=f"raise time_limit above {workload.time_limit:g} s" if done.returncode == 124 else "",
    )


def _parts(reports: Sequence[RankReport], profiles: Sequence[RankProfile]) -> dict[str, float]:
    """What the wall time of the slowest rank is made of, save what lies before MPI_Init and from MPI_Finalize
    on."""
    slowest = profiles[max(range(len(reports)), key=lambda rank: reports[rank].wall)]
    return {"comm": slowest.communication, "compute": slowest.compute, "init": slowest.init}
