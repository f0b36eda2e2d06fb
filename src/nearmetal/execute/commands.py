"""A user's own program in a standing arm, measured from inside by nm-rank."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import TrialFailedError
from ..model.record import RankPlace, Row
from ..model.study import CommandWorkload
from ..workloads.command import parse
from .session import Session
from .standing import Standing, launch_of


def run_command(session: Session, s: Standing, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run it once; raises TrialFailedError when it does not end, or ends with an error."""
    tools = session.machine.tools
    cpus = ",".join(map(str, session.cpus(s.arm)))
    if workload.mpi:
        argv = launch_of(session, s, workload.argv, wrap_ranks=True)
        env = {**workload.env, **(s.launch.env if s.launch else {})}
    else:
        # One process of its own, on the CPUs of the first instance.
        own = ",".join(map(str, session.cpus(s.arm)[: s.arm.placement.tasks]))
        report = s.directory / "place.0.json"
        argv = s.instances[0].command(
            [
                tools / "nm-rank",
                "--cpus",
                cpus,
                "--all",
                own,
                "--places",
                str(s.directory),
                "--",
                *workload.argv,
            ]
        )
        env = dict(workload.env)
        report.unlink(missing_ok=True)
    done = session.machine.host.run(argv, timeout=workload.time_limit, env=env)
    (s.log / f"{workload.name}.stdout.txt").write_text(done.stdout)
    (s.log / f"{workload.name}.stderr.txt").write_text(done.stderr)
    if not done.ok:
        raise TrialFailedError(
            f"{workload.name} ended with {done.returncode}: {done.last_words()}", where=str(s.log)
        )
    s.places = _places(s.directory)
    return parse(workload, done.stdout, wall=done.seconds, user=None, system=None, max_rss=None)


def _places(directory: Path) -> tuple[RankPlace, ...]:
    out = []
    for path in sorted(directory.glob("place.*.json")):
        d = json.loads(path.read_text())
        out.append(
            RankPlace(
                rank=d["rank"], host=d["host"], cpus=tuple(d["affinity"]), namespaces=dict(d["namespaces"])
            )
        )
    return tuple(out)
