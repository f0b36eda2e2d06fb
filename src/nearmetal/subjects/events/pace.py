"""How far a program falls behind its usual pace while its instance is checkpointed or moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...host.replies import read_reply
from ...lifecycle import Phase

LEAST_WORK = 50
"""Units of work that a program must do before its pace counts as known."""
LEAST_BEHIND = 0.05
"""Seconds between two progress lines. A program that is behind by less is recorded as behind by this: the
value cannot be told from zero, and there are no ratios with zero."""
_LINES = 8
"""Number of progress lines that must arrive before a mark is made. Older lines may arrive late after the
instance was stopped, and would give a wrong pace."""
_PATIENCE = 2.0
_LOOK_AGAIN = 0.002
_WRITTEN = '{"written"'


class _ProgressLine(msgspec.Struct, frozen=True):
    """A progress line of nm-probe dirty. written: pages so far."""

    written: int


@dataclass(frozen=True, kw_only=True)
class WorkDone:
    """The amount of work that a program had done at a certain time.

    at: seconds of CLOCK_MONOTONIC.
    work: in units of the program, such as steps or pages.
    """

    at: float
    work: int


def ignore(_: Phase) -> None:
    """Do nothing at the beginning of a phase."""


@dataclass(frozen=True, kw_only=True)
class PhaseTimer:
    """Measures the phases of a checkpoint.

    notify: called at the beginning of each phase.
    seconds: time spent in each phase so far.
    """

    notify: Callable[[Phase], None] = ignore
    seconds: dict[Phase, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Add the duration of the with block to a phase. A phase may occur more than once."""
        begin = time.monotonic()
        self.notify(phase)
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - begin


def pace(begin: WorkDone, end: WorkDone) -> float | None:
    """Return the units of work that a program did per second between two marks; None if it did less than
    LEAST_WORK."""
    work, seconds = end.work - begin.work, end.at - begin.at
    return work / seconds if work >= LEAST_WORK and seconds > 0 else None


def behind(usual: float | None, before: WorkDone, after: WorkDone) -> float | None:
    """Return by how many seconds a program is behind: the time between two marks, minus the time that the
    program would have needed for its work at its usual pace.

    usual: usual pace in units of work per second. If it is None (not known), so is the result.
    """
    return None if usual is None else after.at - before.at - (after.work - before.work) / usual


def marked(output: Path) -> WorkDone:
    """Wait for further progress lines of nm-probe dirty, and return how many pages it has written by then.

    If too few lines arrive within two seconds, the mark is made nevertheless, since such a program hardly
    writes anything.
    output: file with the program's output.
    """
    seen, end = sum(1 for _ in _progress(output)), time.monotonic() + _PATIENCE
    while True:
        written = list(_progress(output))
        now = time.monotonic()
        if len(written) >= seen + _LINES or now > end:
            return WorkDone(at=now, work=written[-1] if written else 0)
        time.sleep(_LOOK_AGAIN)


def written_pages(output: Path) -> int:
    """Return how many pages nm-probe dirty had written at its last progress line."""
    return max(_progress(output), default=0)


def _progress(output: Path) -> Iterator[int]:
    for line in output.read_text().splitlines(keepends=True):
        if line.startswith(_WRITTEN) and line.endswith("\n"):
            yield read_reply(line, _ProgressLine, str(output)).written
