"""How far a program in an instance falls behind its own pace while the instance is checkpointed or moved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..lifecycle import Phase

LEAST_WORK = 50
"""Units of work from which the pace of a program is known."""
LEAST_BEHIND = 0.05
"""Seconds between two progress lines. A program that is behind by less counts as behind by this, since the
difference cannot be told from zero, of which there is no ratio."""
_LINES = 8
"""Progress lines that must arrive before a mark: those of a stopped instance may still be
under way, and the pace is that between two marks."""
_PATIENCE = 2.0
_LOOK_AGAIN = 0.002
_WRITTEN = '{"written"'


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How much a program had done at a time of CLOCK_MONOTONIC, in units of its own."""

    at: float
    work: int


def ignore(_: Phase) -> None:
    """Do nothing at the begin of a phase."""


@dataclass(frozen=True, kw_only=True)
class PhaseTimer:
    """Measures the phases of a checkpoint.

    notify: called at the begin of each phase.
    seconds: spent in each phase so far.
    """

    notify: Callable[[Phase], None] = ignore
    seconds: dict[Phase, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Add the seconds of the body to a phase, which may occur more than once."""
        begin = time.monotonic()
        self.notify(phase)
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - begin


def pace(begin: Mark, end: Mark) -> float | None:
    """Return the units of work that a program does in a second; None if it did too little to know."""
    work, seconds = end.work - begin.work, end.at - begin.at
    return work / seconds if work >= LEAST_WORK and seconds > 0 else None


def behind(usual: float | None, before: Mark, after: Mark) -> float | None:
    """Return by how many seconds a program is behind: the time between two marks, less the time that it would
    have taken for its work at its usual pace.

    usual: units of work per second; None if it is not known, and then neither is the result.
    """
    return None if usual is None else after.at - before.at - (after.work - before.work) / usual


def marked(output: Path) -> Mark:
    """Wait for progress lines of nm-probe dirty, and return how many pages it has written by then.

    Without further lines the mark is made after two seconds: the program writes hardly anything.
    """
    seen, end = sum(1 for _ in _progress(output)), time.monotonic() + _PATIENCE
    while True:
        written = list(_progress(output))
        now = time.monotonic()
        if len(written) >= seen + _LINES or now > end:
            return Mark(at=now, work=written[-1] if written else 0)
        time.sleep(_LOOK_AGAIN)


def written_pages(output: Path) -> int:
    """Return how many pages nm-probe dirty had written at its last progress line."""
    return max(_progress(output), default=0)


def _progress(output: Path) -> Iterator[int]:
    for line in output.read_text().splitlines(keepends=True):
        if line.startswith(_WRITTEN) and line.endswith("\n"):
            yield int(json.loads(line)["written"])
