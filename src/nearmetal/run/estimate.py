"""Estimates how long a study will take, before anything is measured. The rehearsal replaces the estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.design import LEAST_SLICES
from ..model.study import Study
from ..plan import FIXED_FROM, VERIFIED_EVERY, block_length, late_length
from ..subjects.registry import subjects_of

PREPARATION, COLD_START = 1.5, 0.25
"""Seconds that a run takes before its rehearsal, and that each arm takes longer in the rehearsal."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The estimated duration of a study.

    blocks: number of blocks that fit into the time budget; 40 without a budget.
    least_blocks: the same if no comparison is decided early. Later blocks are then longer.
    block_seconds: seconds of one block.
    rehearsal_seconds: seconds until the end of block 0.
    """

    blocks: int
    least_blocks: int
    block_seconds: float
    rehearsal_seconds: float

    @property
    def seconds(self) -> float:
        return self.rehearsal_seconds + self.blocks * self.block_seconds


def estimate(study: Study) -> RunEstimate:
    """Estimate the duration from the numbers of arms, kernels and slices. A run of a user's command counts as
    one second."""
    design = study.design
    arms = study.arms()
    first = [a for a in arms if a.environment.name == design.baselines[0]]
    costs = [
        subject.cost(workloads, arm, design)
        for arm in [*arms, *first]
        for subject, workloads in subjects_of([w for w in study.workloads if arm.environment.takes(w.name)])
    ]
    beside = sum(c.once for c in costs)
    verification = sum(c.verification for c in costs)
    each = sum(c.slice for c in costs)
    rehearsal = PREPARATION + beside + verification + COLD_START * len(arms)
    beside += verification / VERIFIED_EVERY + each * (1 + design.warm_up)
    block = beside + each * (design.slices or LEAST_SLICES)
    left = None if design.max_time is None else max(0.0, design.max_time - rehearsal)
    if each and design.slices is None:
        block = max(block, block_length(beside, left))
    blocks = 40 if left is None else max(1, math.floor(left / block))
    least = blocks
    if left is not None and each and design.slices is None and blocks > FIXED_FROM:
        late = left - FIXED_FROM * block
        least = min(blocks, FIXED_FROM + math.floor(late / late_length(block, late)))
    return RunEstimate(
        blocks=min(blocks, design.max_blocks),
        least_blocks=min(least, design.max_blocks),
        block_seconds=block,
        rehearsal_seconds=rehearsal,
    )
