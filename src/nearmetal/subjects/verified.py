"""Programs that verify their own memory after their instance has been restored or moved (kernels/keeper)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..environments import Tools
from ..errors import TrialFailedError
from ..lifecycle import CopyRound, PhaseTimes
from .progress import ProgramProgress, read_progress

LEAST_PASSES = 2
"""Number of times that a program must verify all its memory after a restore."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """One checkpoint and its restoration.

    pause: longest time between two steps of the program, in seconds.
    stopped: seconds from the stop at the source to the next step of the program.
    size: bytes of the files from which it was restored.
    sent: bytes that went from the source to the destination, in files or over a connection.
    rounds: number of times that memory was copied while the program ran.
    copied: one entry for each of these rounds.
    behind: seconds by which the program is behind its own pace; None if its pace is not known.
    passes: number of times that it has verified all its memory afterwards.
    node: name of the other emulated node to which it went; empty if it stayed at its place.
    """

    phases: PhaseTimes
    pause: float
    stopped: float
    size: int
    sent: int
    rounds: int = 0
    copied: tuple[CopyRound, ...] = ()
    behind: float | None = None
    passes: int = 0
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class VerifiedProgram:
    """A program of one or several processes that verify themselves.

    records: of its processes.
    """

    argv: tuple[str, ...]
    records: tuple[Path, ...]

    def progress(self) -> ProgramProgress:
        """Return the progress of the slowest process, and the mistakes of all processes together."""
        every = [read_progress(record) for record in self.records]
        return ProgramProgress(
            steps=min(one.steps for one in every),
            passes=min(one.passes for one in every),
            wrong=sum(one.wrong for one in every),
            gap=max(one.gap for one in every),
            strange=sum(one.strange for one in every),
        )

    def last_step(self) -> float:
        """Return when its last step was, in seconds of CLOCK_REALTIME."""
        return max(record.stat().st_mtime for record in self.records)


def require_right(moved: ProgramProgress, log: Path) -> None:
    """Check that a program found its memory as it was, and that no other copy of it ran.

    Raises TrialFailedError.
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
    """Return nm-keeper.

    memory: bytes that it holds.
    dirtied: how many of them it writes to, and bytes of pages per second (0: as fast as it can); None if it
        writes to all of them all the time.
    ring: its rank, the port of the job and the addresses of all ranks, if it is one of a job.
    """
    words = (tools / "nm-keeper", str(memory), str(record), *map(str, dirtied or ()), *ring)
    return VerifiedProgram(argv=words, records=(record,))
