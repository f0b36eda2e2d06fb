"""Reports the course of a run: how long it will take, blocks that have ended, and failures."""

from __future__ import annotations

import time

from ...model.plan import Schedule
from ...model.record import TrialRecord, cause_of, unmeasurable
from ...model.result import Analysis
from ...model.study import Study
from ...node.progress import BlockDone, Progress
from ...plan import SlicePlanner
from ..budget import LONGER, Pace, RemainingRounds, rest_note, rest_of, too_short


class RunReporter:
    """Reports the course of one run, each note once.

    pace: the ratio of the actual to the planned duration of blocks.
    """

    def __init__(
        self,
        study: Study,
        schedule: Schedule,
        planner: SlicePlanner,
        progress: Progress,
        *,
        begin: float,
        longer: str = LONGER,
    ) -> None:
        """begin: monotonic seconds from which the time budget counts.
        longer: the option that gives the run a longer budget, for a note.
        """
        self.pace = Pace()
        self._study, self._schedule, self._planner = study, schedule, planner
        self._progress, self._begin, self._longer = progress, begin, longer
        self._reported: set[object] = set()

    def elapsed(self) -> float:
        """Return the seconds of the time budget that are used up."""
        return time.monotonic() - self._begin

    def note(self, text: str) -> None:
        self._progress.note(text)

    def note_once(self, key: object, text: str) -> None:
        """Report a text only once for each key. Otherwise a workload that always fails would hide all other
        messages."""
        if key not in self._reported:
            self._reported.add(key)
            self._progress.note(text)

    def note_failures(self, record: TrialRecord) -> None:
        reasons = {(record.arm, "", cause_of(record.reason)): record.reason}
        for r in record.rows:
            reasons[record.arm, r.workload, cause_of(r.reason)] = r.reason and f"{r.workload}: {r.reason}"
        for key, reason in reasons.items():
            if reason and not unmeasurable(reason):
                self.note_once(key, f"{record.arm} failed: {reason}")

    def announce(self, *, done: int, between: float, capacity: int) -> None:
        """Report how long the run will take, or that the time budget is too short for verdicts.

        done: number of blocks done.
        between: seconds between two blocks.
        capacity: number of blocks that may run at the same time.
        """
        short = too_short(
            self._study,
            self._schedule,
            spent=self.elapsed(),
            done=done,
            block_seconds=(self._planner.block_seconds() + between) / capacity,
            longer=self._longer,
        )
        rest = self._rest(done)
        if short is not None:
            self._progress.note(short)
        elif rest is not None and rest.rounds:
            self._progress.note(rest_note(rest, done=done, elapsed=self.elapsed()))

    def block(self, analysis: Analysis, seconds: float, *, done: int) -> None:
        """Report a block that has ended.

        seconds: its duration.
        done: number of blocks done.
        """
        rest = self._rest(done)
        self._progress.block(
            BlockDone(
                number=analysis.blocks,
                seconds=seconds,
                elapsed=self.elapsed(),
                rounds=None if rest is None else done + rest.rounds,
                left=None if rest is None else rest.seconds,
                analysis=analysis,
            )
        )

    def _rest(self, done: int) -> RemainingRounds | None:
        """Return the rest of the run, or None if it has no limit."""
        lengths = self.pace.lengths(self._planner.lengths())
        return rest_of(self._study.design, lengths, done=done, elapsed=self.elapsed())
