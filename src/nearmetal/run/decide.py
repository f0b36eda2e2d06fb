"""Decides what a run does next: which block it runs, or why it stops. No I/O.

The reasons to stop are checked in this order: the time budget, if no block is done yet; the measured values;
the number of blocks; the time budget. An interrupt ends a run from outside, independent of this decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from ..model.plan import NextBlock, Work, blocks_in_order
from ..model.record import TrialRecord
from ..model.result import VerdictState
from ..model.study import Arm, Design, Study
from ..plan import VERIFIED_EVERY, make_block
from ..report.text import plural


class Verifications:
    """Tracks which kernels of which arms have been verified since they last ran."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bool, str], bool | None] = {}

    def saw(self, records: Iterable[TrialRecord]) -> None:
        """Record the trials of one whole block. Blocks must be passed in ascending order."""
        for record in records:
            for row in record.rows:
                key = (record.arm, record.aa, row.workload)
                if row.verification:
                    self._last[key] = row.verification.get("ok") is True
                elif self._last.get(key) is not False:  # a failed verification has to be repeated
                    self._last[key] = None

    def covered(self, arm: str, workload: str) -> bool:
        """Return whether all of an arm's measurements of a kernel were followed by a verification that
        passed."""
        return all(ok is True for ok in self._of(arm, workload))

    def failed(self, arm: str, workload: str) -> bool:
        """Return whether the last verification of a kernel in an arm failed."""
        return any(ok is False for ok in self._of(arm, workload))

    def _of(self, arm: str, workload: str) -> list[bool | None]:
        return [ok for (a, _, w), ok in self._last.items() if (a, w) == (arm, workload)]


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The decision to start no further block.

    planned: whether a limit that was set in advance ended the run, not the measured values. Only then may a
        closing look follow (docs/method.md).
    """

    reason: str
    planned: bool


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run before its next block.

    verdicts: None until the first block is done.
    done: numbers of the complete blocks.
    out: numbers of the blocks that workers run or are going to run.
    missing: numbers of the blocks that were given up.
    attempts: number of the last attempt, by block.
    slices: number of slices of each kernel in the next block.
    verifications: verifications in the blocks that are done.
    verify_all: whether the next block verifies every kernel.
    """

    verdicts: VerdictState | None
    done: Collection[int]
    out: Collection[int] = ()
    missing: Collection[int] = ()
    attempts: Mapping[int, int]
    slices: Mapping[str, int]
    verifications: Verifications = field(default_factory=Verifications)
    verify_all: bool = False


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The time of a run.

    elapsed: seconds so far.
    block_seconds: expected duration of the next block.
    overrun: whether a run whose time is used up may go on until its next look.
    first_until: elapsed seconds until which the first block may begin, even if the time is used up.
    """

    elapsed: float
    block_seconds: float
    overrun: bool = False
    first_until: float = 0.0


def decide(study: Study, work: Work, state: RunState, clock: Clock) -> NextBlock | Stop | None:
    """Return the next block or the reason why the run stops; None if it can only wait for blocks that workers
    are running.

    As in the analysis, a block counts only when every earlier block is done or was given up.

    work: units of work in a slice, from the run's plan.
    """
    last = blocks_in_order(state.done, state.missing)
    stop = should_stop(study.design, state.verdicts, sum(n <= last for n in state.done), clock)
    if stop is not None:
        # The first block is run even if it ends after max_time.
        return None if state.verdicts is None and state.out else stop
    taken = {*state.done, *state.out, *state.missing}
    number = next(n for n in count(last + 1) if n not in taken)
    enough = len(state.done) + len(state.out) >= study.design.max_blocks
    if enough and number > max(state.done, default=0):
        return None
    return next_block(
        study,
        number,
        state.attempts.get(number, 0) + 1,
        slices=state.slices,
        work=work,
        settled={} if state.verdicts is None else state.verdicts.settled,
        verifications=state.verifications,
        verify_all=state.verify_all,
    )


def should_stop(design: Design, verdicts: VerdictState | None, blocks: int, clock: Clock) -> Stop | None:
    """Return the reason to stop, or None to continue.

    A run stops when all intervals have the target width, if the study sets one, or otherwise when all
    comparisons have a verdict. It also stops at max_blocks, and when the next block would end after max_time.
    The first block is run even if it would end after max_time. A p value never stops a run.

    verdicts: verdicts of the last analysis, which may not include the last block; None until the first block
        is done.
    blocks: number of blocks done so far.
    """
    limit = design.max_time
    if verdicts is None:
        late = limit is not None and clock.elapsed > max(limit, clock.first_until)
        return Stop(reason=design.time_is_up, planned=False) if late else None
    if verdicts.finished:
        return Stop(reason=verdicts.finished, planned=False)
    if blocks >= design.max_blocks:
        done = f"{plural(design.max_blocks, 'round')} {'is' if design.max_blocks == 1 else 'are'} done"
        return Stop(reason=f"{done}, too few for an interval" if verdicts.unbounded else done, planned=True)
    if limit is not None and clock.elapsed + clock.block_seconds > limit:
        # With overrun the run ends just after a look. The next look would be at 1.5 times as many blocks.
        if clock.overrun and verdicts.looked != blocks:
            return None
        return Stop(reason=design.time_is_up, planned=True)
    return None


def next_block(
    study: Study,
    number: int,
    attempt: int,
    *,
    slices: Mapping[str, int],
    work: Work,
    settled: Mapping[str, frozenset[str]],
    verifications: Verifications,
    verify_all: bool,
) -> NextBlock:
    """Return block `number`.

    Kernel k is verified in every eighth block, when (number + k) mod 8 = 0, and again after a failed
    verification. A kernel whose comparisons are decided is verified once more, and left out of the blocks
    after that. A study with a profile verifies every kernel in every block, because a profile describes the
    full run.

    settled: by arm, the workloads whose comparisons are decided.
    verify_all: verify every kernel, as in the rehearsal and in the first block after a resume.

    Raises ValueError if nothing is left to run.
    """
    left_out = {arm.name: _left_out(study, arm, settled, verifications) for arm in study.arms()}
    verified = {
        arm.name: frozenset(
            w.name
            for k, w in enumerate(study.kernels)
            if verify_all
            or study.design.profile
            or (number + k) % VERIFIED_EVERY == 0
            or w.name in settled.get(arm.name, ())
            or verifications.failed(arm.name, w.name)
        )
        for arm in study.arms()
    }
    gone = [arm.name for arm in study.arms() if left_out[arm.name] >= _workloads(study, arm)]
    return NextBlock(
        block=make_block(study, number, without=gone),
        attempt=attempt,
        slices=slices,
        work=work,
        left_out={name: out for name, out in left_out.items() if out},
        verified=verified,
    )


def _left_out(
    study: Study, arm: Arm, settled: Mapping[str, frozenset[str]], verifications: Verifications
) -> frozenset[str]:
    kernels = {w.name for w in study.kernels}
    return frozenset(
        name
        for name in settled.get(arm.name, frozenset()) & _workloads(study, arm)
        if name not in kernels or verifications.covered(arm.name, name)
    )


def _workloads(study: Study, arm: Arm) -> frozenset[str]:
    return frozenset(w.name for w in study.workloads if arm.environment.takes(w.name))
