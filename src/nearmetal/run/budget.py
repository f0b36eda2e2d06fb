"""Whether a time budget is long enough for the looks at which verdicts are given."""

from __future__ import annotations

import math

from ..model.looks import first_looks
from ..model.plan import Schedule
from ..model.study import Study

SLACK = 1.1
"""Factor by which a recommended time budget exceeds the estimate."""


def two_looks(study: Study, schedule: Schedule) -> tuple[int, int]:
    """Return the numbers of blocks at the first two looks that can give a verdict."""
    design = study.design
    named = max(1, len(study.comparisons()) * len(set(design.primary)))
    first, second = first_looks(schedule, (1 - design.confidence) / named, 2)
    return max(first, design.min_blocks), max(second, design.min_blocks)


def too_short(
    study: Study, schedule: Schedule, *, spent: float, done: int, block_seconds: float
) -> str | None:
    """Return a note for the user if the time budget is too short for two looks, with a budget that is long
    enough; else None.

    spent: seconds of the budget that are used up already.
    done: blocks that are done already, of this run or of those before.
    block_seconds: seconds of one block.
    """
    limit = study.design.max_time
    first, second = two_looks(study, schedule)
    needed = spent + max(0, second - done) * block_seconds
    if limit is None or needed <= limit or study.design.max_blocks < second or block_seconds <= 0:
        return None
    holds = done + max(0, math.floor((limit - spent) / block_seconds))
    rounds = "1 round" if holds == 1 else f"{holds} rounds"
    return (
        f"about {rounds} of {block_seconds:.1f} s will be done within the time budget of {limit:.3g} s; "
        f"verdicts are given after {first} rounds, then after {second}; "
        f"--time {math.ceil(needed * SLACK)}s is enough for both"
    )
