"""Computes how many rounds a run can still make and how long they take, and whether a time budget is long
enough for the looks at which verdicts are given. No I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.design import Design
from ..model.looks import first_looks
from ..model.plan import GrowingLooks, Schedule
from ..model.study import Study
from ..plan import LOOKS
from ..report.text import plural
from ..units import show_clock

LONGER = "--time"
"""The option that gives a run a longer time budget."""
SLACK = 1.1
"""Factor by which a recommended time budget exceeds the estimate."""


RECENT = 8
"""Number of last rounds from which the ratio of actual to planned duration is computed."""
UNLIMITED = 1000
"""A limit of at least this many rounds is ignored when the duration of a run is estimated."""


class Pace:
    """The ratio of the actual to the planned duration of the last rounds.

    They differ because the time between rounds is not planned, and because arms drop out.
    """

    def __init__(self) -> None:
        self._rounds: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def saw(self, planned: float, seconds: float) -> None:
        """Record a round that was planned to take `planned` seconds and took `seconds`."""
        self._rounds.append((planned, seconds))

    def lengths(self, planned: Sequence[float]) -> list[float]:
        """Return the planned durations of rounds in seconds, corrected by the last rounds."""
        known = sum(length for length, _ in self._rounds)
        factor = sum(seconds for _, seconds in self._rounds) / known if known > 0 else 1.0
        return [factor * length for length in planned]


@dataclass(frozen=True, kw_only=True)
class RemainingRounds:
    """The rounds that remain in a run, if no verdict ends it earlier.

    rounds: number of remaining rounds.
    seconds: their total duration.
    """

    rounds: int
    seconds: float


def rest_of(design: Design, lengths: Sequence[float], *, done: int, elapsed: float) -> RemainingRounds | None:
    """Return the number of rounds that the limits of a run still allow, and their total time. Return None if
    the run has no limit.

    lengths: seconds of one round in each stage of the run. A stage ends at each of LOOKS, and the last one at
        the block limit.
    done: number of rounds done, including those before a resumption.
    elapsed: seconds of the time budget that are used up.
    """
    left = math.inf if design.max_time is None else design.max_time - elapsed
    if math.isinf(left) and design.max_blocks >= UNLIMITED:
        return None
    rounds, seconds = 0, 0.0
    for end, length in zip((*LOOKS, design.max_blocks), lengths, strict=True):
        most = min(end, design.max_blocks) - done - rounds
        fit = math.inf if length <= 0 else (left - seconds) / length
        number = max(0, most if fit >= most else math.floor(fit))
        rounds, seconds = rounds + number, seconds + number * length
        if number < most:
            break
    return RemainingRounds(rounds=rounds, seconds=seconds)


def rest_note(rest: RemainingRounds, *, done: int, elapsed: float) -> str:
    """Return a note that announces the remaining rounds and their time. It is shown when the duration of the
    first round is known.

    rest: has at least one round.
    """
    rounds = plural(rest.rounds, "more round" if done else "round")
    each = rest.seconds / rest.rounds
    return (
        f"about {rounds} of {each:.3g} s, {show_clock(elapsed + rest.seconds)} in all; "
        "fewer if every figure is decided before, more if decided environments drop out"
    )


def two_looks(study: Study, schedule: Schedule) -> tuple[int, int]:
    """Return the numbers of blocks at the first two looks that can give a verdict."""
    design = study.design
    named = max(1, len(study.comparisons()) * len(set(design.primary)))
    first, second = first_looks(schedule, (1 - design.confidence) / named, 2)
    return max(first, design.min_blocks), max(second, design.min_blocks)


def no_verdict(study: Study, schedule: Schedule) -> str | None:
    """Return a note for the user if max_blocks ends a run before its first look, else None. This can only
    happen if the machines of each round are drawn at random, which makes the first look late."""
    first = schedule.first if isinstance(schedule, GrowingLooks) else 0
    most = study.design.max_blocks
    if most >= first:
        return None
    return (
        f"{first} rounds are needed before the first verdict, since the machines of each round are drawn and "
        f"each must have been in a set; max_blocks is {most}; next: max_blocks: {first}, or fewer machines"
    )


def too_short(
    study: Study,
    schedule: Schedule,
    *,
    spent: float,
    done: int,
    block_seconds: float,
    longer: str = LONGER,
) -> str | None:
    """Return a note for the user if the time budget is too short for two looks, else None. The note suggests
    a sufficient budget.

    spent: seconds of the budget that are already used up.
    done: number of blocks done, including those before a resumption.
    block_seconds: seconds of one block.
    longer: the option that gives a longer budget, with which the suggestion begins.
    """
    limit = study.design.max_time
    first, second = two_looks(study, schedule)
    needed = spent + max(0, second - done) * block_seconds
    if limit is None or needed <= limit or study.design.max_blocks < second or block_seconds <= 0:
        return None
    holds = done + max(0, math.floor((limit - spent) / block_seconds))
    does = f"about {plural(holds, 'round')} of {block_seconds:.1f} s will be done within the"
    if not holds:
        does = f"the first round of {block_seconds:.1f} s lasts longer than the rest of the"
    return (
        f"{does} time budget of {show_clock(limit)}; "
        f"verdicts are given after {first} rounds, then after {second}; "
        f"{longer} {math.ceil(needed * SLACK)}s is enough for both"
    )
