"""A program that runs once for each task without MPI: all copies wait at a gate and begin at one moment."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from ..errors import TrialFailedError
from ..host import Process
from ..host.helper import wait_readable
from ..launchers import verify_places
from ..model.record import Row, Status
from ..model.study import Better, CommandWorkload
from ..workloads.command import parse
from ..workloads.protocol import RankReport, told_error
from .network_watch import look_at_network
from .reports import io_together, read_reports
from .session import Session
from .standing import Standing, cpu_list, events_of

ARRIVE_LIMIT = 60.0
"""Seconds until all copies must wait at the gate."""


def run_copies(session: Session, s: Standing, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run them once; raises TrialFailedError when one does not end in time, or ends with an error."""
    ranks = range(s.arm.placement.ranks)
    for r in ranks:
        (s.directory / f"rank.{r}.json").unlink(missing_ok=True)
    with _gate(s.directory / "start") as gate:
        copies = [gate.enter_context(_copy(session, s, workload, r, gate.directory)) for r in ranks]
        gate.wait_for(copies)
        gate.release()
        _wait(session, s, workload, copies)
    outputs = [_outputs(s, workload, r) for r in ranks]
    for rank, (copy, (_, stderr)) in enumerate(zip(copies, outputs, strict=True)):
        if (code := copy.poll()) != os.EX_OK:
            raise TrialFailedError(
                f"{workload.name}, copy {rank}, ended with {code}: "
                f"{told_error(stderr) or last_line(stderr) or 'no output'}",
                where=str(s.log),
            )
    reports = read_reports(s.directory, len(ranks))
    if s.inside is not None:
        s.inside.run(workload.name, reports)
    s.places = tuple(r.place for r in reports)
    verify_places(s.places, s.arm.placement, session.cpus(s.arm), tuple(i.hostname for i in s.instances))
    walls = instance_walls(reports, s.arm.placement.tasks)
    s.phases |= {f"{workload.name}.instance.{i}": v for i, v in enumerate(walls)}
    return rows_of_copies(workload, [stdout for stdout, _ in outputs], reports, walls)


def instance_walls(reports: Sequence[RankReport], tasks: int) -> list[float]:
    """Seconds of each instance: until the last of its tasks had ended."""
    return [max(r.wall for r in reports[i : i + tasks]) for i in range(0, len(reports), tasks)]


def rows_of_copies(
    workload: CommandWorkload, outputs: Sequence[str], reports: Sequence[RankReport], walls: Sequence[float]
) -> tuple[Row, ...]:
    """wall: the makespan, from the common begin to the end of the last copy; instance_wall: the median over
    instances; CPU time of all together, memory of the largest; the program's own metrics as medians over its
    copies. A row that one copy failed has failed."""
    each = [
        parse(
            workload,
            text,
            wall=max(walls),
            user=sum(r.user for r in reports),
            system=sum(r.system for r in reports),
            max_rss=max(r.max_rss for r in reports),
            io=io_together(reports),
        )
        for text in outputs
    ]
    rows = [_together(same) for same in zip(*each, strict=True)]
    own = Row(
        workload=workload.name,
        metric="instance_wall",
        unit="s",
        better=Better.LOWER,
        values=(median(walls),),
        status=Status.OK,
    )
    failed = next((r for r in rows if r.verification.get("ok") is False), None)
    if failed is not None:
        own = replace(own, status=Status.FAILED, reason=failed.reason, verification=failed.verification)
    return (*rows, own)


def _together(same: Sequence[Row]) -> Row:
    failed = next((r for r in same if r.status is Status.FAILED), None)
    if failed is not None:
        return failed
    return replace(same[0], values=(median(r.values[0] for r in same),))


class _Gate(ExitStack):
    """Two FIFOs: copies say in one that they are there, and wait for the end of the other."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self._arrived = self._gate = -1

    def make(self) -> None:
        """Raises OSError."""
        self.directory.mkdir()
        self.callback(shutil.rmtree, self.directory)
        for name in ("arrived", "gate"):
            os.mkfifo(self.directory / name, 0o600)
        # Read and write, so that no open() waits: ours, or that of a copy.
        self._arrived = os.open(self.directory / "arrived", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.callback(os.close, self._arrived)
        self._gate = os.open(self.directory / "gate", os.O_RDWR | os.O_CLOEXEC)
        self.callback(self.release)

    def wait_for(self, copies: Sequence[Process]) -> None:
        """Until all are there; also when one has ended before, which is told later."""
        there, deadline = 0, time.monotonic() + ARRIVE_LIMIT
        while there < len(copies) and all(c.poll() is None for c in copies):
            if time.monotonic() > deadline:
                raise TrialFailedError(f"{there} of {len(copies)} copies were ready in {ARRIVE_LIMIT:g} s")
            if wait_readable(self._arrived, 0.1):
                there += len(os.read(self._arrived, 4096))

    def release(self) -> None:
        """Let all begin; harmless when they have."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1


@contextmanager
def _gate(directory: Path) -> Iterator[_Gate]:
    with _Gate(directory) as gate:
        gate.make()
        yield gate


@contextmanager
def _copy(
    session: Session, s: Standing, workload: CommandWorkload, rank: int, gate: Path
) -> Iterator[Process]:
    """One copy, in the instance of its rank; ended on leaving."""
    s.log.mkdir(parents=True, exist_ok=True)
    tools, place = session.software_of(s.arm).tools, s.arm.placement
    rank_argv = [tools / "nm-rank", "--rank", str(rank), "--gate", str(gate), "--report", str(s.directory)]
    rank_argv += ["--cpus", cpu_list(session.cpus(s.arm)), *events_of(session)]
    if s.volumes:
        rank_argv += ["--storage", ",".join(str(v.path) for v in s.volumes for _ in range(place.tasks))]
    argv = s.instances[rank // place.tasks].command([*rank_argv, "--", *workload.argv_on(place.ranks)])
    stdout, stderr = _files(s, workload, rank)
    for file in (stdout, stderr):
        file.unlink(missing_ok=True)
    process = session.machine.host.start(
        argv, stdout=stdout, stderr=stderr, env=dict(workload.env), cwd=Path.cwd()
    )
    try:
        yield process
    finally:
        process.kill()


def _wait(session: Session, s: Standing, workload: CommandWorkload, copies: Sequence[Process]) -> None:
    deadline = time.monotonic() + workload.time_limit
    for copy in copies:
        while copy.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TrialFailedError(
                    f"{workload.name} ran longer than its time_limit",
                    where=str(s.log),
                    remedy=f"raise time_limit above {workload.time_limit:g} s",
                )
            try:
                copy.wait(min(left, 1.0))
            except TimeoutError:
                look_at_network(session, s)


def _files(s: Standing, workload: CommandWorkload, rank: int) -> tuple[Path, Path]:
    return s.log / f"{workload.name}.{rank}.stdout.txt", s.log / f"{workload.name}.{rank}.stderr.txt"


def _outputs(s: Standing, workload: CommandWorkload, rank: int) -> tuple[str, str]:
    stdout, stderr = (f.read_text(errors="replace") for f in _files(s, workload, rank))
    return stdout, stderr


def last_line(text: str) -> str:
    """The last line with something on it, at most 300 characters."""
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "")
