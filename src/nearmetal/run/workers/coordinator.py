"""The coordinator of a run: it gives blocks to workers, collects their records, and ends the run when
`decide` returns a reason to stop. It does not know who the workers are, or on which machines they run.

A block is *out* from the time when it is given to a worker until its records have arrived or it is lost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from ...model.plan import NextBlock
from ...model.record import TrialRecord, block_seconds
from ...model.study import Study
from ...node.progress import Progress
from ...plan import SlicePlanner, make_block, make_plan
from ...records import GrowingTrials, ResultsDirectory, node_state, node_states
from ...records.directory import TRIALS
from ..bounds.measuring import RoofMeter
from ..budget import LONGER
from ..decide import Clock, RunState, Stop, Verifications, decide
from ..rehearsal import REHEARSAL
from ..running import RunningAnalysis
from .block_states import MAX_ATTEMPTS, BlockStates
from .reporter import RunReporter


class Workers(Protocol):
    """The workers of a coordinator, all together.

    capacity: number of blocks that may be out at the same time.
    """

    capacity: int

    def give(self, order: NextBlock) -> None:
        """Let a worker run a block."""

    def records(self) -> Iterable[TrialRecord]:
        """Yield the records that have arrived; they are already on disk. If there are none, wait a short
        time."""

    def lost(self, out: Mapping[int, int]) -> Mapping[int, bool]:
        """Return those of the blocks that no worker holds any more, by number. The value is True if the
        worker was lost, and False if it gave the block back.

        out: number of the attempt at each block that is out, by number of the block.
        """

    def finished(self, block: int) -> None:
        """Take note that all records of a block have arrived, or that it was given up."""

    def drain(self) -> Collection[int]:
        """Take back the blocks that no worker has begun, and return their numbers."""

    def problem(self) -> str:
        """Return a problem that does not stop the measurements; '' if there is none."""


class Coordinator:
    """Gives blocks to workers until the stop rule ends the run.

    The attribute walls holds the seconds from the beginning of each block to that of the next, by number of
    the block; it is empty if several blocks run at the same time. The attribute decided says whether the run
    ended because everything was decided.
    """

    def __init__(
        self,
        study: Study,
        directory: ResultsDirectory,
        planner: SlicePlanner,
        workers: Workers,
        progress: Progress,
        *,
        known: Iterable[TrialRecord] = (),
        attempts: Mapping[int, int],
        begin: float,
        overrun: bool = False,
        first_until: float = 0.0,
        longer: str = LONGER,
        roofs: RoofMeter | None = None,
        lost: Mapping[int, int] | None = None,
        out: Mapping[int, int] | None = None,
    ) -> None:
        """known: the records that are on disk already, in ascending order of their blocks.
        attempts: number of the last attempt, by block.
        begin: monotonic seconds from which the time budget counts.
        overrun: let a run whose time is used up continue until its next look.
        first_until: see run.decide.Clock.
        longer: the option that gives the run a longer budget, for a note.
        roofs: measures upper bounds between the blocks; None if the blocks do not run on this machine.
        lost: number of times that each block was lost under an earlier coordinator, by block.
        out: number of the attempt of each block that is out already, by block.
        """
        self._study, self._directory, self._planner = study, directory, planner
        self._workers, self._roofs, self._overrun = workers, roofs, overrun
        self._first_until = first_until
        self._plan = directory.plan()
        nodes = node_states(directory)
        self._running = RunningAnalysis(
            study,
            make_plan(
                study,
                schedule=self._plan.schedule,
                started=self._plan.started,
                missing=self._plan.missing,
                nodes=nodes,
            ),
        )
        self._workers_known = set(nodes)
        self._verifications = Verifications()
        self._reporter = RunReporter(
            study, self._plan.schedule, planner, progress, begin=begin, longer=longer
        )
        self._trials = GrowingTrials(directory.path / TRIALS)
        self._blocks = BlockStates(
            len(make_block(study, REHEARSAL).trials),
            attempts=attempts,
            missing=self._plan.missing,
            lost=lost or {},
            out=out or {},
        )
        self._given: dict[int, tuple[float, NextBlock]] = {}
        self._last_seconds = 0.0
        self.walls: dict[int, float] = {}
        self.decided = False
        for number in self._blocks.load(known):
            self._finish(number)
        self._resumed = bool(self._blocks.done)

    def run(self) -> str:
        """Give out blocks until the run stops, and return why it stopped."""
        if self._roofs is not None:
            self._directory.write_roofs(self._roofs.roofs())
        blocks, reporter, seconds = self._blocks, self._reporter, 0.0
        # Number of blocks that have ended; when the last block was given, and its planned duration.
        ended, at, planned = 0, 0.0, 0.0
        last = 0
        verify_all, limit = self._resumed, self._study.design.max_time
        # The announcement waits for the first block, which gives a better estimate than the rehearsal, unless
        # the time is too short for that.
        announced = limit is not None and reporter.elapsed() + 2 * self._planner.block_seconds() > limit
        if announced:
            self._announce(0.0)
        while True:
            verdicts = None
            if blocks.ready:  # without a block there is nothing to analyse
                if not announced:
                    self._announce(seconds)
                    announced = True
                analysis, fresh = self._running.after(self._trials.now, blocks.ready)
                if seconds and fresh:
                    reporter.block(analysis, seconds, done=len(blocks.done))
                verdicts = self._running.verdicts(analysis)
            state = RunState(
                verdicts=verdicts,
                done=blocks.done,
                out=blocks.out,
                missing=blocks.missing,
                attempts=blocks.attempts,
                slices=self._planner.slices(),
                verifications=self._verifications,
                verify_all=verify_all,
            )
            clock = Clock(
                elapsed=reporter.elapsed(),
                block_seconds=seconds,
                overrun=self._overrun,
                first_until=self._first_until,
            )
            found = decide(self._study, self._plan.work, state, clock)
            if isinstance(found, Stop):
                self._ended_at(last, at)
                self.decided = verdicts is not None and not found.planned
                if found.planned:
                    self._wait_for_all()
                return self._stopped(found)
            if problem := self._workers.problem():
                reporter.note_once(problem, problem)
            if self._roofs is not None and seconds and self._roofs.step(reporter.elapsed()):
                self._directory.write_roofs(self._roofs.roofs())
            if found is not None and len(blocks.out) < self._workers.capacity:
                self._ended_at(last, at)
                began, at = at, time.monotonic()
                if ended > 1 and planned:
                    reporter.pace.saw(planned, at - began)
                planned = self._planner.block_seconds()
                self._give(found, at)
                last = found.block.number
                verify_all = False
                if len(blocks.out) < self._workers.capacity:
                    planned = 0.0  # blocks overlap, so the time from one to the next is not a duration
                    continue
            for number in self._collect():
                ended += 1
                seconds = self._seconds_of(number)
                if ended == 1:  # its plan was based on the cold rehearsal, and the first analysis follows it
                    reporter.pace.saw(self._last_seconds, seconds / self._workers.capacity)

    def _give(self, order: NextBlock, at: float) -> None:
        number = order.block.number
        self._blocks.attempts[number] = self._blocks.out[number] = order.attempt
        self._given[number] = at, order
        self._workers.give(order)

    def _seconds_of(self, number: int) -> float:
        """Return the duration of a block that has just ended, in seconds. It includes the time between blocks
        if one runs after the other."""
        given = self._given.pop(number, None)
        if given is not None and self._workers.capacity == 1:
            return time.monotonic() - given[0]
        return self._last_seconds

    def _ended_at(self, number: int, at: float) -> None:
        """Store the wall time of a block that was given out at monotonic time `at`, if it is done."""
        if number in self._blocks.done and self._workers.capacity == 1:
            self.walls[number] = time.monotonic() - at

    def _collect(self) -> list[int]:
        """Take the records that have arrived, and return the numbers of the blocks that they complete."""
        completed = []
        for record in self._workers.records():
            self._reporter.note_failures(record)
            if record.run not in self._workers_known:
                node = node_state(self._directory, record.run)
                if node is not None:
                    self._workers_known.add(record.run)
                    self._running.ran_on(record.run, node)
            if self._blocks.add(record):
                completed.append(record.block)
                self._finish(record.block)
        for number, is_loss in self._workers.lost(self._blocks.out).items():
            self._given.pop(number, None)
            exhausted = self._blocks.lose(number, is_loss=is_loss)
            if is_loss:
                self._reporter.note(f"round {number} was lost with its worker")
            if exhausted:
                self._give_up(number)
        return completed

    def _give_up(self, number: int) -> None:
        self._reporter.note(f"round {number} is given up: it was lost {MAX_ATTEMPTS} times")
        self._directory.give_up(number)
        self._blocks.give_up(number)
        self._running.give_up(number)
        self._finish(number)

    def _finish(self, number: int) -> None:
        """Take note that a block is done or given up. Pass the blocks before which no block is still to be
        run on to the planner and the verifications, in ascending order."""
        self._workers.finished(number)
        for ready, whole in self._blocks.advance():
            given = self._given.get(ready)
            slices = (
                {row.workload: len(row.values) for record in whole for row in record.rows if row.seconds}
                if given is None
                else given[1].slices
            )
            self._last_seconds = block_seconds(whole)
            self._planner.saw(slices, whole, self._last_seconds)
            self._verifications.saw(whole)

    def _wait_for_all(self) -> None:
        """Take back the blocks that no worker has begun, and wait for the others."""
        for number in self._workers.drain():
            self._blocks.out.pop(number, None)
        while self._blocks.out:
            self._collect()

    def _announce(self, seconds: float) -> None:
        """Report how long the run will take, or that the time budget is too short for verdicts.

        seconds: duration of the last block, including the time between blocks; 0 if none was run.
        """
        between = max(0.0, seconds - self._last_seconds) if seconds else 0.0
        done, capacity = len(self._blocks.done), self._workers.capacity
        self._reporter.announce(done=done, between=between, capacity=capacity)

    def _stopped(self, stop: Stop) -> str:
        done = self._blocks.done
        if stop.planned:
            self._directory.close_looks(max((n for n in done if n <= self._blocks.last), default=0))
        if self._roofs is not None and done and self._roofs.complete():
            self._directory.write_roofs(self._roofs.roofs())
        return stop.reason
