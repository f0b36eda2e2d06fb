"""Estimates how long a study will take, before anything is measured. The rehearsal replaces the estimate."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..model.design import LEAST_SLICES
from ..model.study import Arm, Study
from ..plan import FIXED_FROM, VERIFIED_EVERY, block_length, late_lengths
from ..subjects.contract import Cost
from ..subjects.registry import subjects_of

PREPARATION, COLD_START = 1.5, 0.25
"""Seconds that a run takes before its rehearsal, and that each arm takes longer in the rehearsal."""
UNTIL_DECIDED = 40
"""Number of blocks after which containers, and the baseline against itself, usually have their verdicts."""
BOOT, EMULATED_BOOT = 2.5, 3.0
"""Seconds from the start of a guest to its end, without work: run by the processor, and emulated."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The estimated duration of a study.

    blocks: number of blocks that fit into the time budget, 0 if not even the rehearsal does; 40 without a
        budget.
    least_blocks: the same if no comparison is decided early. Later blocks are then longer.
    block_seconds: seconds of one block.
    rehearsal_seconds: seconds until the end of block 0.
    late_blocks: number of those blocks that follow the first look, if emulated guests drop out there.
    late_seconds: seconds of one of them.
    """

    blocks: int
    least_blocks: int
    block_seconds: float
    rehearsal_seconds: float
    late_blocks: int = 0
    late_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        early = (self.blocks - self.late_blocks) * self.block_seconds
        return self.rehearsal_seconds + early + self.late_blocks * self.late_seconds

    def mean_seconds(self, blocks: int) -> float:
        late = min(self.late_blocks, max(0, blocks - FIXED_FROM)) if self.late_blocks else 0
        return ((blocks - late) * self.block_seconds + late * self.late_seconds) / blocks


def estimate(study: Study) -> RunEstimate:
    """Estimate the duration from the numbers of arms, kernels and slices, and from the estimates of
    applications. A run of a user's command counts as one second.

    An emulated guest differs from bare metal so much that the first look decides it. Later blocks do not
    start it: they compare what is left, and the baseline with itself, until that is decided too.
    """
    design = study.design
    arms = study.arms()
    first = [a for a in arms if a.environment.name == design.baselines[0]]
    costs = [_cost(study, arm) for arm in [*arms, *first]]
    once, verification, each = _together(costs)
    rehearsal = PREPARATION + once + verification + COLD_START * len(arms)
    beside = once + verification / VERIFIED_EVERY + each * (1 + design.warm_up)
    block = beside + each * (design.slices or LEAST_SLICES)
    left = None if design.max_time is None else max(0.0, design.max_time - rehearsal)
    if each and design.slices is None:
        block = max(block, block_length(beside, left))
    # The first block is run even if it ends late, but not if the rehearsal ends late.
    blocks = 40 if left is None else max(1, math.floor(left / block)) if left else 0
    kept = _lasting(study)
    if len(kept) < len(arms) and blocks > FIXED_FROM:
        return _with_early_verdicts(study, kept, block=block, rehearsal=rehearsal, left=left)
    least = blocks
    if left is not None and each and design.slices is None and blocks > FIXED_FROM:
        late = left - FIXED_FROM * block
        least = min(blocks, FIXED_FROM + math.floor(late / late_lengths(block, late)[0]))
    return RunEstimate(
        blocks=min(blocks, design.max_blocks),
        least_blocks=min(least, design.max_blocks),
        block_seconds=block,
        rehearsal_seconds=rehearsal,
    )


def _with_early_verdicts(
    study: Study, kept: Collection[str], *, block: float, rehearsal: float, left: float | None
) -> RunEstimate:
    """Return the estimate of a study whose emulated guests drop out at the first look.

    kept: names of the arms that stay until the end.
    block, rehearsal: seconds of a block with all arms, and until the end of block 0.
    left: seconds for all blocks; None without a time budget.
    """
    design = study.design
    arms = [a for a in study.arms() if a.name in kept]
    first = [a for a in arms if a.environment.name == design.baselines[0]]
    once, verification, each = _together([_cost(study, arm) for arm in [*arms, *first]])
    slices = design.slices or LEAST_SLICES
    late = once + verification / VERIFIED_EVERY + each * (1 + design.warm_up + slices)
    most = min(design.max_blocks, UNTIL_DECIDED)
    rest = max(0, most - FIXED_FROM) if left is None else math.floor((left - FIXED_FROM * block) / late)
    number = max(0, min(rest, most - FIXED_FROM))
    blocks = min(design.max_blocks, FIXED_FROM + number)
    return RunEstimate(
        blocks=blocks,
        least_blocks=blocks,
        block_seconds=block,
        rehearsal_seconds=rehearsal,
        late_blocks=max(0, blocks - FIXED_FROM),
        late_seconds=late,
    )


def _lasting(study: Study) -> frozenset[str]:
    """Return the names of the arms that are expected to run after the first look.

    An emulated guest differs so much from everything else that its comparisons with other arms are decided by
    then. It goes on only if it is compared with another emulated guest.
    """
    emulated = {a.name for a in study.arms() if (g := a.environment.guest) is not None and g.emulated}
    decided = {c.arm for c in study.comparisons() if c.arm in emulated and c.baseline not in emulated}
    open_ones = [c for c in study.comparisons() if c.arm not in decided or c.baseline in emulated]
    needed = {name for c in open_ones for name in (c.arm, c.baseline)}
    return frozenset(a.name for a in study.arms() if a.name in needed or a.name not in emulated)


def _together(costs: Sequence[Cost]) -> tuple[float, float, float]:
    """Return the sums of what costs take once, of verifications, and of slices."""
    return (
        sum(c.once for c in costs),
        sum(c.verification for c in costs),
        sum(c.slice for c in costs),
    )


def _cost(study: Study, arm: Arm) -> Cost:
    """Return the cost of one arm in one block, with the boot of its guests. Half of the boot of each further
    guest with CPUs of its own overlaps with the others."""
    taken = [w for w in study.workloads if arm.environment.takes(w.name)]
    own = [subject.cost(workloads, arm, study.design) for subject, workloads in subjects_of(taken)]
    guest = arm.environment.guest
    boot = 0.0 if guest is None else EMULATED_BOOT if guest.emulated else BOOT
    instances, cpus = arm.placement.all_instances, len(set(arm.placement.cpus or ()))
    turns = float(instances) if cpus and cpus < instances else (1 + instances) / 2
    return Cost(
        once=sum(c.once for c in own) + boot * turns,
        verification=sum(c.verification for c in own),
        slice=sum(c.slice for c in own),
    )
