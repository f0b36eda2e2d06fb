"""Estimates how long a study will take, before anything is measured. The rehearsal replaces the estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.design import LEAST_SLICES
from ..model.environments.guest import StartFrom
from ..model.study import Arm, Study
from ..plan import FIXED_FROM, VERIFIED_EVERY, block_length, late_length
from ..subjects.contract import Cost
from ..subjects.registry import subjects_of

PREPARATION, COLD_START = 1.5, 0.25
"""Seconds that a run takes before its rehearsal, and that each arm takes longer in the rehearsal."""
BOOT, RESTORE = 2.0, 0.5
"""Seconds until a guest answers, by a boot and from a checkpoint."""
EMULATION, EMULATED_BOOT = 12.0, 3.0
"""How many times longer work takes in an emulated guest, and its boot."""


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
        _in_guest(arm, subject.cost(workloads, arm, design), own_instances=subject.own_instances)
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


def _in_guest(arm: Arm, cost: Cost, *, own_instances: bool) -> Cost:
    """Return the cost of a subject in an arm of guests: their boots, and slower work if they are emulated.

    own_instances: whether the subject starts its own instances, so that its cost includes their starts.
    """
    guest = arm.environment.guest
    if guest is None or own_instances:
        return cost
    slower, boot_slower = (EMULATION, EMULATED_BOOT) if guest.emulated else (1.0, 1.0)
    boot = RESTORE if guest.start is StartFrom.RESTORED else BOOT
    return Cost(
        once=cost.once * slower + boot * boot_slower * arm.placement.all_instances,
        verification=cost.verification * slower,
        slice=cost.slice,
    )
