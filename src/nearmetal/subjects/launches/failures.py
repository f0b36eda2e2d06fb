"""Failures of a program's run: the error message and remedy, its logs, and the processes that it left
running."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import TrialFailedError
from ...host import Completed, cgroups
from ...host.processes import labelled as processes
from ...host.processes.bounded import shortened
from ...host.processes.failure import CANNOT_START, TIMED_OUT, describe_end, find_error_line, find_message
from ...node.arms.running_arm import RunningArm
from ...node.guests import trouble
from ...node.trial import Trial
from ...workloads.protocol import RankReport
from .remedies import GUEST_ENDED, FailedRun, end_remedy, start_remedy
from .reports import found_reports

if TYPE_CHECKING:
    from .launching import LaunchedProgram

#: Characters of each output stream of a run that are kept on disk.
LOGGED = 1 << 20


def write_logs(trial: Trial, name: str, stdout: str, stderr: str) -> None:
    """Write the output of a run to <name>.stdout.txt and <name>.stderr.txt in the trial's log directory.

    Long output is cut in the middle. No file is written for empty output.
    """
    for stream, text in (("stdout", stdout), ("stderr", stderr)):
        if text:
            trial.log.mkdir(parents=True, exist_ok=True)
            (trial.log / f"{name}.{stream}.txt").write_text(shortened(text, LOGGED))


def place_of_logs(trial: Trial) -> str:
    """Return the directory of a trial's logs; '' if nothing was written there."""
    return str(trial.log) if trial.log.is_dir() else ""


def timed_out(trial: Trial, name: str, limit: float) -> TrialFailedError:
    """Return the error of a program that was ended because its time limit had passed."""
    return TrialFailedError(
        f"{name} did not end within {limit:g} s, its time_limit",
        where=place_of_logs(trial),
        remedy="raise time_limit, or read in its log what it waits for",
    )


def failure(arm: RunningArm, program: LaunchedProgram, done: Completed) -> TrialFailedError:
    """Return the error of a run that failed."""
    name, exit_codes = program.name, program.exit_codes
    if done.returncode == TIMED_OUT and done.seconds >= program.time_limit:
        return timed_out(arm.trial, name, program.time_limit)
    environment, node = arm.environment, arm.node
    run = FailedRun(
        argv=program.argv,
        mpi=arm.placement.ranks if program.mpi else 0,
        directory=None if program.directory is not None else Path.cwd(),
        environment=environment,
        virtual=node.backends[environment.backend].capabilities.virtual or environment.inside is not None,
        works_by_hand=name in node.works_by_hand,
        head=_head(node.machine.host.which(program.argv[0])),
    )
    where = place_of_logs(arm.trial)
    error = find_error_line(done.stderr)
    if error is not None and f" {CANNOT_START}" in error.what:
        return TrialFailedError(f"{name}: {error.what}", where=where, remedy=start_remedy(run, error.what))
    bad = [r for r in found_reports(arm.trial.directory, arm.placement.ranks) if r.status not in exit_codes]
    ranks = f"rank {bad[0].place.rank} " if bad and arm.placement.ranks > 1 else ""
    message = find_message(done.stderr) or find_message(done.stdout) or "it printed no message"
    gone = trouble(arm.guests)
    words = gone or (str(error) if error is not None else message)
    status = bad[0].status if bad else done.returncode
    remedy = GUEST_ENDED if gone else end_remedy(run, status, f"{done.stderr}\n{words}")
    return TrialFailedError(
        f"{name}: {ranks}{describe_end(status, exit_codes)}: {words}", where=where, remedy=remedy
    )


def _head(program: str | None) -> bytes:
    """Return the first bytes of a program; empty if it is not there or cannot be read."""
    if program is None:
        return b""
    try:
        fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 256)
    finally:
        os.close(fd)


def require_nothing_left(trial: Trial, name: str, reports: Sequence[RankReport]) -> None:
    """Raise TrialFailedError if a program ended before a process that it had started. The time that its work
    takes is then unknown."""
    left = [process for r in reports for process in r.left]
    if left:
        raise TrialFailedError(
            f"{name} ended and left {', '.join(dict.fromkeys(left))} running, which was ended: how long its"
            " work takes is not known",
            where=place_of_logs(trial),
            remedy="let it run in the foreground, and wait for what it starts",
        )


def end_younger(arm: RunningArm, begin: float) -> None:
    """End the processes that a failed run left in the arm's instances, because other arms may still be
    measured.

    begin: start of the run, in seconds of CLOCK_BOOTTIME. Older processes are left alone.
    """
    for instance in arm.instances:
        groups = cgroups.unique(instance.cgroups)
        if groups:
            pids = cgroups.members(cgroups.with_children(groups))
        else:
            pids = set(processes.labelled(partial(str.__eq__, instance.label)))
        processes.kill_younger(pids - processes.ancestors(os.getpid()), begin)
