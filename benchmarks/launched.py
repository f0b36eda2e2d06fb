"""Launches of programs by mpirun, pinned and measured by nm-rank as in nearmetal."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nearmetal.host import Completed
from nearmetal.launchers import MpiJob
from nearmetal.model.study import Transport
from nearmetal.node.machine import Machine
from nearmetal.run.kernel_run import rank_cpus
from nearmetal.subjects.launches.rank_argv import Report, rank_argv
from nearmetal.workloads.protocol import RankReport, parse_report

LIMIT = 3600.0


def launched(
    machine: Machine,
    scratch: Path,
    ranks: int,
    program: Sequence[str | Path],
    *,
    directory: Path | None = None,
    env: Mapping[str, str] | None = None,
    failed_well: str = "",
) -> tuple[Completed, tuple[RankReport, ...]]:
    """Launch a program with one CPU for each rank and shared memory between ranks. Return its result and the
    reports of nm-rank. A failure ends the benchmark.

    directory: working directory.
    failed_well: text in the output of a run whose error status is accepted.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as here:
        rank = rank_argv(
            machine.tools,
            rank_cpus(machine.cpus, ranks, 1),
            [*map(str, program)],
            report=Report(directory=Path(here)),
            directory=directory,
        )
        job = MpiJob(
            argv=tuple(rank),
            box=machine.tools / "nm-box",
            ranks=ranks,
            transport=Transport.SHM,
            interface="lo",
            scratch=here,
        )
        launch = machine.mpi.launch(job)
        done = machine.host.run(launch.argv, env=dict(env or {}) | dict(launch.env), timeout=LIMIT)
        if not done.ok and not (failed_well and failed_well in done.stdout):
            words = " ".join(map(str, program))
            raise SystemExit(f"{words}: {done.failure()}")
        files = (Path(here) / f"rank.{r}.json" for r in range(ranks))
        return done, tuple(parse_report(file.read_text()) for file in files)
