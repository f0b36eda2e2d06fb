"""A user's own program in a standing arm: run whole, measured by nm-rank beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TrialFailedError
from ..launchers import verify_places
from ..model.record import RankPlace, Row
from ..model.study import CommandWorkload
from ..workloads.command import parse
from .session import Session
from .standing import Standing, launch_of


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a program used. wall: of the slowest rank; user, system: seconds of all ranks together; max_rss:
    bytes of the largest rank."""

    wall: float
    user: float
    system: float
    max_rss: int


def run_command(session: Session, s: Standing, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run it once; raises TrialFailedError when it does not end in time, or ends with an error."""
    env = dict(workload.env)
    if workload.mpi:
        argv = launch_of(session, s, workload.argv, measured=True)
        assert s.launch is not None
        env |= s.launch.env
    else:
        # One process without MPI: on all CPUs of the first instance, for it may have threads.
        own = "+".join(map(str, session.cpus(s.arm)[: s.arm.placement.tasks]))
        reports = ["--places", str(s.directory), "--usage", str(s.directory)]
        rank = [session.machine.tools / "nm-rank", "--cpus", own, *reports, "--", *workload.argv]
        argv = s.instances[0].command(rank)
    done = session.machine.host.run(argv, timeout=workload.time_limit, env=env, cwd=Path.cwd())
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text:
            s.log.mkdir(parents=True, exist_ok=True)
            (s.log / f"{workload.name}.{name}.txt").write_text(text)
    if done.returncode == os.EX_OK:
        ranks = range(s.arm.placement.ranks if workload.mpi else 1)
        s.places = tuple(_place(_report(s.directory, "place", r)) for r in ranks)
        if workload.mpi:
            hosts = tuple(i.hostname for i in s.instances)
            verify_places(s.places, s.arm.placement, session.cpus(s.arm), hosts)
        used = _usage([_report(s.directory, "usage", r) for r in ranks])
        return parse(
            workload, done.stdout, wall=used.wall, user=used.user, system=used.system, max_rss=used.max_rss
        )
    raise TrialFailedError(
        f"{workload.name} ended with {done.returncode}: {done.last_words()}",
        where=str(s.log),
        remedy=f"raise time_limit above {workload.time_limit:g} s" if done.returncode == 124 else "",
    )


def _report(directory: Path, kind: str, rank: int) -> dict[str, Any]:
    """What nm-rank wrote of one rank in this run: it ends with an error where it cannot write."""
    try:
        found: dict[str, Any] = json.loads((directory / f"{kind}.{rank}.json").read_bytes())
    except (OSError, ValueError) as e:
        raise TrialFailedError(f"rank {rank} did not report its {kind}: {e}", where=str(directory)) from e
    return found


def _place(d: dict[str, Any]) -> RankPlace:
    return RankPlace(
        rank=d["rank"], host=d["host"], cpus=tuple(d["affinity"]), namespaces=dict(d["namespaces"])
    )


def _usage(ranks: Sequence[dict[str, Any]]) -> Usage:
    return Usage(
        wall=max(float(r["wall"]) for r in ranks),
        user=sum(float(r["user"]) for r in ranks),
        system=sum(float(r["system"]) for r in ranks),
        max_rss=max(int(r["max_rss"]) for r in ranks),
    )
