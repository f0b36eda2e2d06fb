"""Programs that verify their own memory after their instance has been restored or moved (kernels/keeper)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ...environments import Tools
from ...errors import TrialFailedError
from ...lifecycle import CopyRound, PhaseTimes
from .pace import WorkDone
from .progress import ProgramProgress, read_progress

LEAST_PASSES = 2
"""Number of times that a program must verify all its memory after a restore."""
_GOES_ON = 2.0
"""Seconds to wait for a step of a program that may still run."""
_LOOK_AGAIN = 0.0005


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The results of one checkpoint and restore of an instance with a program.

    pauses: longest time between two steps of each process of the program in seconds, by rank number.
    stopped: seconds from the stop at the source to the next step of the program.
    size: bytes of the files from which the instance was restored.
    sent: bytes that were copied or sent from the source to the destination.
    copied: one entry for each time that memory was copied while the program ran.
    behind: seconds by which the program is behind its usual pace; None if its pace is not known.
    passes: number of times that the program has verified all its memory since the checkpoint.
    node: name of the emulated node to which the instance moved; empty if it stayed on its node.
    """

    phases: PhaseTimes
    pauses: tuple[float, ...]
    stopped: float
    size: int
    sent: int
    copied: tuple[CopyRound, ...] = ()
    behind: float | None = None
    passes: int = 0
    node: str = ""

    @property
    def pause(self) -> float:
        """The longest pause of any process, in seconds."""
        return max(self.pauses)


@dataclass(frozen=True, kw_only=True)
class VerifiedProgram:
    """A program of one or several processes that verify their own memory.

    argv: its command line.
    records: files in which its processes record their progress.
    """

    argv: tuple[str, ...]
    records: tuple[Path, ...]

    def progress(self) -> ProgramProgress:
        """Return the steps and passes of the slowest process, the longest gap of any process, and the sums of
        all errors."""
        every = [read_progress(record) for record in self.records]
        return ProgramProgress(
            steps=min(one.steps for one in every),
            passes=min(one.passes for one in every),
            wrong=sum(one.wrong for one in every),
            gap=max(one.gap for one in every),
            strange=sum(one.strange for one in every),
        )

    def pauses(self) -> tuple[float, ...]:
        """Return the longest time between two steps of each process, in seconds."""
        return tuple(read_progress(record).gap for record in self.records)

    def last_step(self) -> float:
        """Return the time of its last step, in seconds of CLOCK_MONOTONIC."""
        last = max(record.stat().st_mtime for record in self.records)
        return time.monotonic() - (time.time() - last)

    def mark(self) -> WorkDone:
        """Return the number of steps that the program has completed, and the current time."""
        return WorkDone(work=self.progress().steps, at=time.monotonic())

    def goes_on(self, away: float = 0.0) -> bool:
        """Return whether the program takes a step within _GOES_ON seconds.

        away: seconds for which its connections were cut, added to the limit. TCP doubles its retransmission
            timeout, so the next retransmission may come as late again.
        """
        steps, end = self.progress().steps, time.monotonic() + _GOES_ON + away
        while not (on := self.progress().steps > steps) and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)
        return on


def require_right(moved: ProgramProgress, log: Path) -> None:
    """Raise TrialFailedError if a program found a wrong page in its memory, or if another copy of it ran.

    log: directory of logs, for the message.
    """
    if moved.wrong or moved.strange:
        raise TrialFailedError(
            f"after the restore {moved.wrong} pages of the program's memory are wrong, and "
            f"{moved.strange} times another copy had written its record",
            where=str(log),
        )


def keeper(
    tools: Tools,
    memory: int,
    record: Path,
    dirtied: tuple[int, int] | None = None,
    ring: tuple[str, ...] = (),
) -> VerifiedProgram:
    """Return nm-keeper with its command line.

    memory: bytes of memory that it holds.
    record: file in which it records its progress.
    dirtied: how many of these bytes it writes to, and the bytes of pages that it writes per second (0: as
        fast as it can); None if it writes to all of its memory all the time.
    ring: if it is a rank of a TCP job: its rank, the port of the job, and the addresses of all ranks.
    """
    words = (tools / "nm-keeper", str(memory), str(record), *map(str, dirtied or ()), *ring)
    return VerifiedProgram(argv=words, records=(record,))
