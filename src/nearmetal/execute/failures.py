"""How a program's run failed, in words that say where to look; its logs; what it left running."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from functools import partial

from ..errors import TrialFailedError
from ..host import Completed, cgroups, processes
from ..host.bounded import shortened
from ..model.image import HOST
from ..workloads.protocol import RankReport, told_by_program, told_error
from .guests import trouble
from .reports import found_reports
from .session import Session
from .standing import Standing

#: Characters of each stream of a run that stay on disk.
LOGGED = 1 << 20
TIMED_OUT = 124  # what Host.run returns then
_CANNOT_START = " cannot be started: "
#: By what a program says last: what mends it.
_KNOWN = {
    "does not support O_DIRECT": "this storage takes no direct requests: buffered ones (mode: buffered), or "
    "another storage, such as {kind: loop, size: 1 GiB}; of a guest the disk that guest: writable gives it",
    "No space left on device": "a larger storage, or a smaller size",
}


def write_logs(s: Standing, name: str, stdout: str, stderr: str) -> None:
    """Where something was said: <name>.stdout.txt and <name>.stderr.txt, cut in the middle."""
    for stream, text in (("stdout", stdout), ("stderr", stderr)):
        if text:
            s.log.mkdir(parents=True, exist_ok=True)
            (s.log / f"{name}.{stream}.txt").write_text(shortened(text, LOGGED))


def place_of_logs(s: Standing) -> str:
    """'' where nothing was said."""
    return str(s.log) if s.log.is_dir() else ""


def timed_out(s: Standing, name: str, limit: float) -> TrialFailedError:
    """Of a program that had to be ended."""
    return TrialFailedError(
        f"{name} did not end within {limit:g} s, its time_limit",
        where=place_of_logs(s),
        remedy="raise time_limit, or look in its log for what it waits for",
    )


def failure(
    session: Session,
    s: Standing,
    name: str,
    done: Completed,
    *,
    program: str,
    mpi: bool,
    limit: float,
    exit_codes: Sequence[int],
) -> TrialFailedError:
    """Of a run that did not end well. name: of the workload; program: its first token; mpi: by mpirun; limit:
    seconds."""
    if done.returncode == TIMED_OUT and done.seconds >= limit:
        return timed_out(s, name, limit)
    told = told_error(done.stderr)
    if told is not None and _CANNOT_START in told:
        return TrialFailedError(
            f"{name}: {told}", where=place_of_logs(s), remedy=start_remedy(session, s, program, told)
        )
    bad = [r for r in found_reports(s.directory, s.arm.placement.ranks) if r.status not in exit_codes]
    ranks = f"rank {bad[0].place.rank} " if bad and s.arm.placement.ranks > 1 else ""
    last = done.last_words() if (done.stderr + done.stdout).strip() else "it printed nothing"
    words = trouble(s) or told or (told_by_program(done.stderr) if mpi else None) or last
    how = ended_how(bad[0].status if bad else done.returncode, exit_codes)
    remedy = next((mends for said, mends in _KNOWN.items() if said in words), "")
    return TrialFailedError(f"{name}: {ranks}{how}: {words}", where=place_of_logs(s), remedy=remedy)


def start_remedy(session: Session, s: Standing, program: str, told: str) -> str:
    """What to do about a program that is not there, or is none. told: why it could not be started."""
    if os.strerror(errno.EACCES) in told:
        return f"chmod +x {program}, if it is a program; else name what runs it: [python3, {program}]"
    image = s.arm.environment.image
    here = session.machine.host.which(program) is not None
    if image == HOST:
        absolute = program.startswith("/")
        return "" if here else "install it" if absolute else "install it, or name it by its absolute path"
    has = "this machine has it, the image has not: " if here else ""
    return f"{has}add its package to image {image} and build it again, or copy it there by files"


def ended_how(status: int, exit_codes: Sequence[int] = (0,)) -> str:
    """'ended with 3', 'was ended by SIGSEGV'."""
    number = status - 128 if status > 128 else -status
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        allowed = f", not with {' or '.join(map(str, exit_codes))}" if tuple(exit_codes) != (0,) else ""
        return f"ended with {status}{allowed}"


def require_nothing_left(s: Standing, name: str, reports: Sequence[RankReport]) -> None:
    """Raises TrialFailedError where a program ended before its own processes did: its time is not known."""
    left = [process for r in reports for process in r.left]
    if left:
        raise TrialFailedError(
            f"{name} ended and left {', '.join(dict.fromkeys(left))} running, which was ended: how long its"
            " work takes is not known",
            where=place_of_logs(s),
            remedy="let it run in the foreground, and wait for what it starts",
        )


def end_younger(s: Standing, begin: float) -> None:
    """End what a failed run started in the arm's instances and left there, for other arms may still be
    measured. begin: of the run, by CLOCK_BOOTTIME."""
    for instance in s.instances:
        groups = cgroups.unique(instance.cgroups)
        if groups:
            pids = cgroups.members(cgroups.with_children(groups))
        else:
            pids = set(processes.labelled(partial(str.__eq__, instance.label)))
        processes.kill_younger(pids - processes.ancestors(os.getpid()), begin)
