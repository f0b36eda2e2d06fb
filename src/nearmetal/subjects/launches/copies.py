"""Runs of a program without MPI, with one copy for each task. All copies wait at a gate and start at the same
moment."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ...environments import RemoteInstance
from ...errors import TrialFailedError
from ...host import Completed, Process
from ...host.processes.bounded import shortened
from ...host.processes.helper import wait_readable
from ...host.removal import discard_tree
from ...host.untrusted import UntrustedDirectory
from ...meters.groups import MeteredArm
from ...model.change import replace
from ...model.record import Row, Status
from ...model.study import Better, CommandWorkload
from ...model.workloads.programs import INSTANCE_WALL
from ...node.arms.running_arm import RunningArm
from ...node.guests import carry_fifos, into_guests, out_of_guests
from ...node.trial import Trial
from ...workloads.command import parse
from ...workloads.protocol import RankReport
from .failures import LOGGED, end_younger, failure, require_nothing_left, timed_out
from .launching import check_network, image_directory, image_variables, launched_program, record_places
from .rank_argv import Report, rank_argv, storage_of_ranks
from .reports import forget_reports, read_reports, record_disk_writes, resources_of
from .staging import KEPT, compared, own_directory, read_outputs

ARRIVE_LIMIT = 60.0
"""Seconds within which all copies must have reached the gate."""


def run_copies(metered: MeteredArm, workload: CommandWorkload) -> tuple[Row, ...]:
    """Run all copies once, and return their rows (rows_of_copies()).

    Raises TrialFailedError if a copy does not end in time, or ends with an error.
    """
    arm, trial = metered.running, metered.running.trial
    ranks = range(arm.placement.ranks)
    forget_reports(trial.directory, len(ranks))
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    with ExitStack() as stack:
        places = [stack.enter_context(own_directory(trial, workload, f".{r}")) for r in ranks]
        own = [p for p in places if p is not None]
        try:
            with _Gate(trial.directory / "start") as gate:
                gate.make()
                into_guests(arm.machines, trial.directory, own)
                for process in carry_fifos(_fifos(arm.machines, gate.directory)):
                    gate.callback(process.kill)
                copies = [
                    gate.enter_context(_copy(metered, workload, r, gate.directory, places[r])) for r in ranks
                ]
                gate.wait_for(copies)
                gate.release()
                _wait(metered, workload, copies)
            out_of_guests(arm.guests, trial.directory, arm.placement.tasks, own)
            outputs = [_outputs(trial, workload, r, places[r]) for r in ranks]
            for copy, output, place in zip(copies, outputs, places, strict=True):
                if copy.poll() != os.EX_OK:
                    raise _failure(arm, workload, copy, output, place)
        except TrialFailedError:
            end_younger(arm, begin)
            raise
    reports = read_reports(trial.directory, len(ranks))
    require_nothing_left(trial, workload.name, reports)
    metered.inside.run(workload.name, reports)
    record_disk_writes(trial, workload.name, reports)
    walls = record_places(arm, workload.name, reports, trial.cpus_of(workload))
    return rows_of_copies(workload, outputs, reports, walls)


@dataclass(frozen=True, kw_only=True)
class CopyOutput:
    """The output of one copy.

    files, difference: as in workloads.command.parse.
    """

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    difference: str | None = None


def rows_of_copies(
    workload: CommandWorkload,
    outputs: Sequence[CopyOutput],
    reports: Sequence[RankReport],
    walls: Sequence[float],
) -> tuple[Row, ...]:
    """Return the rows of all copies together. A row fails if it failed in one copy.

    The metric `wall` is the time from the common start to the end of the last copy. `instance_wall` is the
    median, over instances, of the time to the end of an instance's last copy. CPU time is the sum over
    copies, memory that of the largest copy. The program's own metrics are medians over copies.

    outputs, reports: one of each copy.
    walls: seconds of each instance until its last copy ended.
    """
    each = [
        parse(
            workload,
            output.stdout,
            resources_of(reports, wall=max(walls)),
            stderr=output.stderr,
            files=output.files,
            difference=output.difference,
        )
        for output in outputs
    ]
    rows = [_together(same) for same in zip(*each, strict=True)]
    own = Row(
        workload=workload.name,
        metric=INSTANCE_WALL,
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
    """Lets all copies start at the same moment, by two FIFOs. Each copy reports its arrival by a byte in one
    FIFO, and waits for end of file on the other."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self._arrived = self._gate = -1

    def make(self) -> None:
        """Create and open the FIFOs. They are closed and removed when the gate is closed.

        Raises OSError if they cannot be created.
        """
        self.directory.mkdir()
        self.callback(discard_tree, self.directory)
        # Opened for reading and writing, so that no open() blocks, here or in a copy.
        own, name = UntrustedDirectory(self.directory.parent), self.directory.name
        self._arrived = own.make_fifo(f"{name}/arrived")
        self.callback(os.close, self._arrived)
        self._gate = own.make_fifo(f"{name}/gate")
        self.callback(self.release)

    def wait_for(self, copies: Sequence[Process]) -> None:
        """Wait until all copies have arrived, or until one has ended, which the caller must report.

        Raises TrialFailedError after ARRIVE_LIMIT.
        """
        there, deadline = 0, time.monotonic() + ARRIVE_LIMIT
        while there < len(copies) and all(c.poll() is None for c in copies):
            if time.monotonic() > deadline:
                raise TrialFailedError(f"{there} of {len(copies)} copies were ready in {ARRIVE_LIMIT:g} s")
            if wait_readable(self._arrived, 0.1):
                there += len(os.read(self._arrived, 4096))

    def release(self) -> None:
        """Let all copies start. Harmless if they have started already."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1


def _fifos(guests: Sequence[RemoteInstance], gate: Path) -> Iterator[tuple[RemoteInstance, Path, bool]]:
    for guest in guests:
        yield guest, gate / "arrived", False
        yield guest, gate / "gate", True


@contextmanager
def _copy(
    metered: MeteredArm, workload: CommandWorkload, rank: int, gate: Path, directory: Path | None
) -> Iterator[Process]:
    """Start one copy in the instance of its rank, and yield its process. It is killed on exit."""
    arm, trial = metered.running, metered.running.trial
    trial.log.mkdir(parents=True, exist_ok=True)
    place = arm.placement
    own = rank_argv(
        arm.software.tools,
        trial.cpus_of(workload),
        workload.argv_on(place.ranks),
        report=Report(directory=trial.directory, events=metered.events, exit_codes=workload.exit_codes),
        rank=rank,
        gate=gate,
        storage=storage_of_ranks(arm.volumes, place.tasks),
        directory=directory or image_directory(arm, workload.argv),
        variables=image_variables(arm, workload.env),
        caller=arm.node.caller.state,
    )
    argv = arm.instances[rank // place.tasks].command(own)
    stdout, stderr = _files(trial, workload, rank)
    for file in (stdout, stderr):
        file.unlink(missing_ok=True)
    env = {**arm.node.caller.variables, **workload.env}
    with arm.node.caller.input.opened() as given:
        process = arm.node.machine.host.start(
            argv, stdout=stdout, stderr=stderr, env=env, cwd=Path.cwd(), stdin=given, most=KEPT
        )
    try:
        yield process
    finally:
        process.kill()


def _wait(metered: MeteredArm, workload: CommandWorkload, copies: Sequence[Process]) -> None:
    deadline = time.monotonic() + workload.time_limit
    for copy in copies:
        while copy.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise timed_out(metered.running.trial, workload.name, workload.time_limit)
            try:
                copy.wait(min(left, 1.0))
            except TimeoutError:
                check_network(metered)


def _files(trial: Trial, workload: CommandWorkload, rank: int) -> tuple[Path, Path]:
    name = f"{workload.name}.{rank}"
    return trial.log / f"{name}.stdout.txt", trial.log / f"{name}.stderr.txt"


def _outputs(trial: Trial, workload: CommandWorkload, rank: int, directory: Path | None) -> CopyOutput:
    """Read the output of a copy. Log files that are too long are shortened on disk."""
    texts = []
    for file in _files(trial, workload, rank):
        texts.append(file.read_text(errors="replace"))
        if len(texts[-1]) > LOGGED:
            file.write_text(shortened(texts[-1], LOGGED))
    stdout, stderr = texts
    return CopyOutput(
        stdout=stdout,
        stderr=stderr,
        files=read_outputs(directory, workload.outputs) if directory is not None else {},
        difference=compared(workload, directory, stdout, stderr),
    )


def _failure(
    arm: RunningArm, workload: CommandWorkload, copy: Process, output: CopyOutput, directory: Path | None
) -> TrialFailedError:
    program = launched_program(workload, arm.trial, directory)
    done = Completed(
        argv=program.argv,
        returncode=copy.poll() or 1,
        stdout=output.stdout,
        stderr=output.stderr,
        seconds=0.0,
    )
    return failure(arm, program, done)
