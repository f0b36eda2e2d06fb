"""Estimates how long a study will take, before anything is measured. The rehearsal replaces the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.design import LEAST_SLICES
from ..model.study import Arm, Attachment, Study, Transport
from ..plan import FIXED_FROM, VERIFIED_EVERY, block_length, late_lengths
from ..subjects.contract import Cost
from ..subjects.registry import subjects_of

PREPARATION, COLD_START = 1.5, 0.25
"""Seconds that a run takes before its rehearsal, and that each arm takes longer in the rehearsal."""
UNTIL_DECIDED, VALUES_UNTIL_DECIDED = 36, 144
"""Number of blocks after which containers, and the baseline against itself, usually have their verdicts; if
the study sets how many slices or runs are in a block, number of slices or runs in all these blocks."""
BOOT, EMULATED_BOOT = 2.5, 2.2
"""Seconds from the start of a guest to its end, without work: run by the processor, and emulated."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The estimated duration of a study.

    blocks: number of blocks that fit into the time budget, 0 if not even the rehearsal does;
        until_decided() without a budget.
    least_blocks: the same if no comparison is decided early. Later blocks are then longer.
    block_seconds: seconds of one block.
    rehearsal_seconds: seconds until the end of block 0.
    late_blocks: number of those blocks that follow the first look, if arms drop out there.
    late_seconds: seconds of one of them.
    done: number of blocks that were done before.
    measured: whether an earlier run measured these times.
    """

    blocks: int
    least_blocks: int
    block_seconds: float
    rehearsal_seconds: float
    late_blocks: int = 0
    late_seconds: float = 0.0
    done: int = 0
    measured: bool = False

    @property
    def seconds(self) -> float:
        early = (self.blocks - self.late_blocks) * self.block_seconds
        return self.rehearsal_seconds + early + self.late_blocks * self.late_seconds

    @property
    def least_seconds(self) -> float:
        """Seconds until the run has one more block."""
        return self.rehearsal_seconds + self.block_seconds

    def mean_seconds(self, blocks: int) -> float:
        late = min(self.late_blocks, max(0, blocks - FIXED_FROM)) if self.late_blocks else 0
        return ((blocks - late) * self.block_seconds + late * self.late_seconds) / blocks


@dataclass(frozen=True, kw_only=True)
class BlockCosts:
    """What a block takes, in seconds.

    beside: all but its slices.
    slices: its slices: as many as the study says, or else LEAST_SLICES of each kernel; in a block after the
        first look that was measured, as many as were run.
    """

    beside: float
    slices: float

    @property
    def seconds(self) -> float:
        return self.beside + self.slices


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """What a run takes, in seconds.

    rehearsal: until the end of block 0.
    block: a block with all arms.
    late: a block after the first look, if arms drop out there; None if none does.
    until: number of blocks after which everything is decided; None if more are needed than fit. If it
        was measured and arms drop out, a number between it and until_decided() is expected.
    """

    rehearsal: float
    block: BlockCosts
    late: BlockCosts | None = None
    until: int | None = None


def until_decided(study: Study) -> int:
    """Return the number of blocks after which everything is expected to be decided.

    A block's value is the noisier, the fewer slices of a kernel or runs of a program are in it.
    """
    design = study.design
    numbers = [design.slices] if study.kernels and design.slices else []
    numbers += [design.runs] if any(w.program for w in study.workloads) else []
    return max(FIXED_FROM, math.ceil(VALUES_UNTIL_DECIDED / min(numbers))) if numbers else UNTIL_DECIDED


def estimate(study: Study, measured: RunCosts | None = None) -> RunEstimate:
    """Estimate the duration of a run from its costs.

    measured: the costs of an earlier run of this study; None to estimate them.
    """
    costs = measured or estimated_costs(study)
    design, own_length = study.design, costs.block.slices > 0 and study.design.slices is None
    left = None if design.max_time is None else max(0.0, design.max_time - costs.rehearsal)
    block = costs.block.seconds
    if own_length:
        block = max(block, block_length(costs.block.beside, left))
    # The first block is run even if it ends late, but not if the rehearsal ends late.
    usual = until_decided(study)
    blocks = usual if left is None else max(1, math.floor(left / block)) if left else 0
    most = min(design.max_blocks, costs.until or design.max_blocks)
    late_blocks, late = 0, 0.0
    if costs.late is not None and blocks > FIXED_FROM:
        late = costs.late.seconds
        fit = blocks if left is None else FIXED_FROM + math.floor((left - FIXED_FROM * block) / late)
        if costs.until is not None:  # the noise of an hour determines when the last comparison is decided
            most = min(design.max_blocks, round(math.sqrt(costs.until * usual)))
        blocks = max(FIXED_FROM, min(fit, most))
        late_blocks = blocks - FIXED_FROM
    least = blocks
    if left is not None and own_length and costs.late is None and blocks > FIXED_FROM:
        rest = left - FIXED_FROM * block
        least = min(blocks, FIXED_FROM + math.floor(rest / late_lengths(block, rest)[0]))
    return RunEstimate(
        blocks=min(blocks, most),
        least_blocks=min(least, most),
        block_seconds=block,
        rehearsal_seconds=costs.rehearsal,
        late_blocks=late_blocks,
        late_seconds=late,
        measured=measured is not None,
    )


def estimated_costs(study: Study) -> RunCosts:
    """Estimate the costs of a run from the numbers of arms, kernels and slices, and from the estimates of
    applications. A run of a user's command counts as its usual_time.

    Arms that differ from their baselines in kind are decided at the first look; see _lasting(). Later blocks
    do not start them: they compare what is left, and the baseline with itself, until that is decided too.
    """
    arms = study.arms()
    once, verification, _ = _together(_costs(study, arms))
    kept = _lasting(study)
    drops = len(kept) < len(arms)
    return RunCosts(
        rehearsal=PREPARATION + once + verification + COLD_START * len(arms),
        block=_block_costs(study, arms),
        late=_block_costs(study, [a for a in arms if a.name in kept]) if drops else None,
        until=until_decided(study) if drops else None,
    )


def _block_costs(study: Study, arms: Sequence[Arm]) -> BlockCosts:
    design = study.design
    once, verification, each = _together(_costs(study, arms))
    verified = 1.0 if design.profile else 1 / VERIFIED_EVERY
    return BlockCosts(
        beside=once + verification * verified + each * (1 + design.warm_up),
        slices=each * (design.slices or LEAST_SLICES),
    )


def _costs(study: Study, arms: Sequence[Arm]) -> list[Cost]:
    """Return the costs of arms in a block, which runs the first baseline twice."""
    again = [a for a in arms if a.environment.name == study.design.baselines[0]]
    return [_cost(study, arm) for arm in [*arms, *again]]


def _lasting(study: Study) -> frozenset[str]:
    """Return the names of the arms that are expected to run after the first look.

    An emulated guest differs so much from everything else, and messages on one kind of path from those on
    another, that these comparisons are decided by then. An arm goes on only if it is also compared with one
    of its kind, or if it is one of the first baseline, which is compared with itself.
    """
    arms = {a.name: a for a in study.arms()}
    kinds = {
        name: ((g := a.environment.guest) is not None and g.emulated, _path(a)) for name, a in arms.items()
    }
    needed = {
        name for c in study.comparisons() if kinds[c.arm] == kinds[c.baseline] for name in (c.arm, c.baseline)
    }
    compared = {c.arm for c in study.comparisons()}
    return frozenset(n for n in arms if n in needed or n not in compared)


def _path(arm: Arm) -> tuple[object, ...]:
    """Return the kind of the path on which an arm's messages go: their transport, and within one node
    what forwards them. Links between emulated nodes take longer than anything else on the way."""
    if arm.placement.ranks == 1:
        return ()
    if arm.transport is not Transport.TCP or arm.placement.emulated:
        return (arm.transport,)
    attachment = arm.environment.attachment
    if arm.placement.instances == 1 or not attachment.seated:
        return (arm.transport, "loopback")
    return (arm.transport, attachment if attachment is Attachment.OVS else "")


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
