"""The coordinator of a run: it gives blocks to workers, collects their records, and ends the run when
`decide` returns a reason to stop. It does not know who the workers are, or on which machines they run.

A block is *out* from the time when it is given to a worker until its records have arrived or it is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Protocol

from ...model.plan import NextBlock, blocks_in_order
from ...model.record import Claim, TrialRecord, block_seconds, cause_of, claim_of, unmeasurable
from ...model.result import Analysis
from ...model.study import Study
from ...node.progress import BlockDone, Progress
from ...plan import SlicePlanner, make_block, make_plan
from ...records import GrowingTrials, ResultsDirectory, by_claim, is_whole_attempt, node_state, node_states
from ...records.directory import TRIALS
from ..bounds.measuring import RoofMeter
from ..budget import LONGER, Pace, Rest, rest_note, rest_of, too_short
from ..decide import Clock, RunState, Stop, Verifications, decide
from ..rehearsal import REHEARSAL
from ..running import RunningAnalysis

MAX_ATTEMPTS = 3
"""Number of times that a block may be lost with its worker. The block is then given up, and is missing on
both sides of every comparison."""


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
        self._workers, self._progress, self._roofs = workers, progress, roofs
        self._begin, self._overrun, self._longer = begin, overrun, longer
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
        self._pace = Pace()
        self._reported: set[object] = set()
        self._trials = GrowingTrials(directory.path / TRIALS)
        self._attempts = dict(attempts)
        self._lost = Counter(lost or {})
        self._missing = set(self._plan.missing)
        self._out = dict(out or {})
        self._given: dict[int, tuple[float, NextBlock]] = {}
        self._members = len(make_block(study, REHEARSAL).trials)
        self._parts: dict[Claim, list[TrialRecord]] = {}
        self._whole: dict[int, list[TrialRecord]] = {}
        self._done: set[int] = set()
        self._last = 0  # all blocks up to this one are done or given up
        self._last_seconds = 0.0
        self.walls: dict[int, float] = {}
        self.decided = False
        for _, records in groupby(known, key=lambda record: record.block):
            for claim, found in sorted(by_claim(records).items()):
                self._parts[claim] = found
                self._complete(claim)
        self._resumed = bool(self._done)

    @property
    def _ready(self) -> int:
        """Number of complete blocks before which no block is still to be run. Only these are analysed."""
        return sum(n <= self._last for n in self._done)

    def run(self) -> str:
        """Give out blocks until the run stops, and return why it stopped."""
        if self._roofs is not None:
            self._directory.write_roofs(self._roofs.roofs())
        seconds = 0.0
        # Number of blocks that have ended; when the last block was given, and its planned duration.
        ended, at, planned = 0, 0.0, 0.0
        last = 0
        verify_all, limit = self._resumed, self._study.design.max_time
        # The announcement waits for the first block, which gives a better estimate than the rehearsal, unless
        # the time is too short for that.
        announced = limit is not None and self._elapsed() + 2 * self._planner.block_seconds() > limit
        if announced:
            self._announce(0.0)
        while True:
            verdicts = None
            if self._ready:  # without a block there is nothing to analyse
                if not announced:
                    self._announce(seconds)
                    announced = True
                analysis, fresh = self._running.after(self._trials.now, self._ready)
                if seconds and fresh:
                    self._tell_block(analysis, seconds)
                verdicts = self._running.verdicts(analysis)
            state = RunState(
                verdicts=verdicts,
                done=self._done,
                out=self._out,
                missing=self._missing,
                attempts=self._attempts,
                slices=self._planner.slices(),
                verifications=self._verifications,
                verify_all=verify_all,
            )
            clock = Clock(
                elapsed=self._elapsed(),
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
                self._tell_once(problem, problem)
            if self._roofs is not None and seconds and self._roofs.step(self._elapsed()):
                self._directory.write_roofs(self._roofs.roofs())
            if found is not None and len(self._out) < self._workers.capacity:
                self._ended_at(last, at)
                began, at = at, time.monotonic()
                if ended > 1 and planned:
                    self._pace.saw(planned, at - began)
                planned = self._planner.block_seconds()
                self._give(found, at)
                last = found.block.number
                verify_all = False
                if len(self._out) < self._workers.capacity:
                    planned = 0.0  # blocks overlap, so the time from one to the next is not a duration
                    continue
            for number in self._collect():
                ended += 1
                seconds = self._seconds_of(number)
                if ended == 1:  # its plan was based on the cold rehearsal, and the first analysis follows it
                    self._pace.saw(self._last_seconds, seconds / self._workers.capacity)

    def _give(self, order: NextBlock, at: float) -> None:
        number = order.block.number
        self._attempts[number] = self._out[number] = order.attempt
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
        if number in self._done and self._workers.capacity == 1:
            self.walls[number] = time.monotonic() - at

    def _collect(self) -> list[int]:
        """Take the records that have arrived, and return the numbers of the blocks that they complete."""
        completed = []
        for record in self._workers.records():
            self._tell_failures(record)
            if record.run not in self._workers_known:
                node = node_state(self._directory, record.run)
                if node is not None:
                    self._workers_known.add(record.run)
                    self._running.ran_on(record.run, node)
            claim = claim_of(record)
            self._attempts[record.block] = max(self._attempts.get(record.block, 0), record.attempt)
            self._parts.setdefault(claim, []).append(record)
            if self._complete(claim):
                completed.append(record.block)
        for number, is_loss in self._workers.lost(self._out).items():
            del self._out[number]
            self._given.pop(number, None)
            self._lost[number] += is_loss
            if is_loss:
                self._progress.note(f"round {number} was lost with its worker")
            if self._lost[number] >= MAX_ATTEMPTS:
                self._give_up(number)
        return completed

    def _complete(self, claim: Claim) -> bool:
        """Record a block as done if the records of a claim complete it. Returns whether they do; False if the
        block was done or given up before."""
        number, found = claim.block, self._parts[claim]
        if number < 1 or not is_whole_attempt(found, self._members):
            return False
        for other in [other for other in self._parts if other.block == number]:
            del self._parts[other]  # records of other attempts cannot count any more
        if number in self._done or number in self._missing:
            return False
        self._done.add(number)
        self._out.pop(number, None)
        self._workers.finished(number)
        self._whole[number] = found
        self._advance()
        return True

    def _give_up(self, number: int) -> None:
        self._progress.note(f"round {number} is given up: it was lost {MAX_ATTEMPTS} times")
        self._directory.give_up(number)
        self._missing.add(number)
        for claim in [claim for claim in self._parts if claim.block == number]:
            del self._parts[claim]
        self._running.give_up(number)
        self._workers.finished(number)
        self._advance()

    def _advance(self) -> None:
        """Pass the blocks before which no block is still to be run on to the planner and the verifications,
        in ascending order."""
        last = blocks_in_order(self._done, self._missing)
        for number in range(self._last + 1, last + 1):
            whole = self._whole.pop(number, None)
            if whole is not None:
                given = self._given.get(number)
                slices = (
                    {row.workload: len(row.values) for record in whole for row in record.rows if row.seconds}
                    if given is None
                    else given[1].slices
                )
                self._last_seconds = block_seconds(whole)
                self._planner.saw(slices, whole, self._last_seconds)
                self._verifications.saw(whole)
        self._last = last

    def _wait_for_all(self) -> None:
        """Take back the blocks that no worker has begun, and wait for the others."""
        for number in self._workers.drain():
            self._out.pop(number, None)
        while self._out:
            self._collect()

    def _rest(self) -> Rest | None:
        """Return the rest of the run, or None if it has no limit."""
        lengths = self._pace.lengths(self._planner.lengths())
        return rest_of(self._study.design, lengths, done=len(self._done), elapsed=self._elapsed())

    def _announce(self, seconds: float) -> None:
        """Report how long the run will take, or that the time budget is too short for verdicts.

        seconds: duration of the last block, including the time between blocks; 0 if none was run.
        """
        between = max(0.0, seconds - self._last_seconds) if seconds else 0.0
        short = too_short(
            self._study,
            self._plan.schedule,
            spent=self._elapsed(),
            done=len(self._done),
            block_seconds=(self._planner.block_seconds() + between) / self._workers.capacity,
            longer=self._longer,
        )
        rest = self._rest()
        if short is not None:
            self._progress.note(short)
        elif rest is not None and rest.rounds:
            self._progress.note(rest_note(rest, done=len(self._done), elapsed=self._elapsed()))

    def _stopped(self, stop: Stop) -> str:
        if stop.planned:
            self._directory.close_looks(max((n for n in self._done if n <= self._last), default=0))
        if self._roofs is not None and self._done and self._roofs.complete():
            self._directory.write_roofs(self._roofs.roofs())
        return stop.reason

    def _tell_failures(self, record: TrialRecord) -> None:
        reasons = {(record.arm, "", cause_of(record.reason)): record.reason}
        for r in record.rows:
            reasons[record.arm, r.workload, cause_of(r.reason)] = r.reason and f"{r.workload}: {r.reason}"
        for key, reason in reasons.items():
            if reason and not unmeasurable(reason):
                self._tell_once(key, f"{record.arm} failed: {reason}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _tell_once(self, key: object, text: str) -> None:
        """Report a text only once for each key. Otherwise a workload that always fails would hide all other
        messages."""
        if key not in self._reported:
            self._reported.add(key)
            self._progress.note(text)

    def _tell_block(self, analysis: Analysis, seconds: float) -> None:
        rest = self._rest()
        self._progress.block(
            BlockDone(
                number=analysis.blocks,
                seconds=seconds,
                elapsed=self._elapsed(),
                rounds=None if rest is None else len(self._done) + rest.rounds,
                left=None if rest is None else rest.seconds,
                analysis=analysis,
            )
        )
