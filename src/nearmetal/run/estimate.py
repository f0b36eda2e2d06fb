"""Estimates how long a study will take, before anything is measured. The rehearsal replaces the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model.design import LEAST_SLICES
from ..model.study import Arm, Attachment, Study, Transport
from ..plan import FIXED_FROM, VERIFIED_EVERY, block_length, late_lengths
from ..subjects.contract import Cost, slowness
from ..subjects.registry import subjects_of

PREPARATION, COLD_START = 1.5, 0.25
"""Seconds that a run takes before its rehearsal; seconds that each arm takes longer in the rehearsal than in
a later block."""
UNTIL_DECIDED, VALUES_UNTIL_DECIDED = 36, 144
"""UNTIL_DECIDED: usual number of blocks until containers, and the baseline compared with itself, have their
verdicts. VALUES_UNTIL_DECIDED: usual number of slices of a kernel, or runs of a program, in all blocks until
then; used if the study sets how many are in a block."""
UNDERESTIMATE = 1.5
"""Factor by which a block may well take longer than estimated. If the time budget would then end before the
first look, the short blocks after it are not certain."""
BOOT, EMULATED_BOOT = 2.5, 2.2
"""Seconds that a guest takes to boot and shut down, without any work: with hardware virtualisation, and
emulated."""

GUEST_LAUNCH = 1.2
"""Seconds by which each emulated guest after the first delays the start of the kernels' MPI programs, which
all arms start at the same time."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The estimated duration of a study.

    blocks: number of blocks that fit into the time budget, 0 if not even the rehearsal does;
        until_decided() without a budget.
    least_blocks: number of blocks that fit if no comparison is decided early, so that later blocks are
        longer; less than `blocks` only if this may well happen.
    block_seconds: seconds of one block up to the first look.
    rehearsal_seconds: seconds until the end of block 0.
    late_blocks: how many of `blocks` follow the first look, if arms drop out there; 0 if none does.
    late_seconds: seconds of one late block.
    done: number of blocks that were done before, if the run is resumed.
    measured: whether the times come from an earlier run of this study.
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
        """Seconds until the run has completed one more block."""
        return self.rehearsal_seconds + self.block_seconds

    def mean_seconds(self, blocks: int) -> float:
        late = min(self.late_blocks, max(0, blocks - FIXED_FROM)) if self.late_blocks else 0
        return ((blocks - late) * self.block_seconds + late * self.late_seconds) / blocks


@dataclass(frozen=True, kw_only=True)
class BlockCosts:
    """Duration of a block, in seconds.

    beside: everything except the slices.
    slices: the slices. Their number is the one in the study, or else LEAST_SLICES of each kernel. In measured
        blocks after the first look, it is the number that was run.
    """

    beside: float
    slices: float

    @property
    def seconds(self) -> float:
        return self.beside + self.slices


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """Durations of the parts of a run.

    rehearsal: seconds until the end of block 0.
    block: a block with all arms.
    late: a block after the first look, if arms drop out there; None if none does.
    until: number of blocks after which everything is decided; None if it is not known.
    """

    rehearsal: float
    block: BlockCosts
    late: BlockCosts | None = None
    until: int | None = None


def until_decided(study: Study) -> int:
    """Return the number of blocks after which everything is expected to be decided.

    More blocks are needed if each contains few slices of a kernel or runs of a program, because its values
    are then noisier.
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
        # The noise differs from hour to hour, so expect a number between that of the earlier run and the
        # usual one: their geometric mean.
        if costs.until is not None:
            most = min(design.max_blocks, round(math.sqrt(costs.until * usual)))
        blocks = max(FIXED_FROM, min(fit, most))
        late_blocks = blocks - FIXED_FROM
    least = blocks
    if late_blocks and measured is None and left is not None and left < UNDERESTIMATE * FIXED_FROM * block:
        least = min(blocks, math.floor(left / block))
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

    Arms that are not among _lasting() are expected to be decided at the first look. Later blocks run only the
    other arms, until those, and the baseline compared with itself, are decided too.
    """
    arms = study.arms()
    cost = _together(_costs(study, arms))
    kept = _lasting(study)
    drops = len(kept) < len(arms)
    return RunCosts(
        rehearsal=PREPARATION + cost.once + cost.verification + COLD_START * len(arms),
        block=_block_costs(study, arms),
        late=_block_costs(study, [a for a in arms if a.name in kept]) if drops else None,
        until=until_decided(study) if drops else None,
    )


def _block_costs(study: Study, arms: Sequence[Arm]) -> BlockCosts:
    design = study.design
    cost = _together(_costs(study, arms))
    verified = 1.0 if design.profile else 1 / VERIFIED_EVERY
    return BlockCosts(
        beside=cost.once + cost.verification * verified + cost.slice * (1 + design.warm_up),
        slices=cost.slice * (design.slices or LEAST_SLICES),
    )


def _costs(study: Study, arms: Sequence[Arm]) -> list[Cost]:
    """Return the cost of each arm in a block, and that of the guests together. The first baseline is counted
    twice, because it runs twice."""
    again = [a for a in arms if a.environment.name == study.design.baselines[0]]
    every = [*arms, *again]
    launched = [a for a in every if slowness(a) > 1 and a.placement.ranks > 1 and _takes_kernels(study, a)]
    guests = sum(a.placement.instances for a in launched)
    together = Cost(once=GUEST_LAUNCH * max(0, guests - 1))
    return [*(_cost(study, arm) for arm in every), together]


def _takes_kernels(study: Study, arm: Arm) -> bool:
    return any(arm.environment.takes(kernel.name) for kernel in study.kernels)


def _lasting(study: Study) -> frozenset[str]:
    """Return the names of the arms that are expected to run after the first look.

    Two comparisons show such large differences that the first look decides them: of an emulated guest with
    anything else, and of messages on two different kinds of paths. An arm runs longer only if it is also
    compared with an arm of its own kind, or if it belongs to the first baseline, which is compared with
    itself.
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
    """Return the kind of the path that an arm's messages take: the transport and, within one node, the kind
    of network. Between emulated nodes the network does not matter, because their links dominate the time."""
    if arm.placement.ranks == 1:
        return ()
    if arm.transport is not Transport.TCP or arm.placement.node.emulated:
        return (arm.transport,)
    attachment = arm.environment.attachment
    if arm.placement.instances == 1 or not attachment.seated:
        return (arm.transport, "loopback")
    return (arm.transport, attachment if attachment is Attachment.OVS else "")


def _together(costs: Sequence[Cost]) -> Cost:
    """Return the sum of the costs."""
    return Cost(
        once=sum(c.once for c in costs),
        verification=sum(c.verification for c in costs),
        slice=sum(c.slice for c in costs),
    )


def _cost(study: Study, arm: Arm) -> Cost:
    """Return the cost of one arm in one block, including the boot of its guests. If there are at least as
    many CPUs as guests, each guest after the first adds only half of its boot time, since they boot
    together."""
    taken = [w for w in study.workloads if arm.environment.takes(w.name)]
    own = _together([subject.cost(works, arm, study.design) for subject, works in subjects_of(taken)])
    used = any(not subject.own_instances for subject, _ in subjects_of(taken))
    guest = arm.environment.guest if used else None
    boot = 0.0 if guest is None else EMULATED_BOOT if guest.emulated else BOOT
    instances, cpus = arm.placement.all_instances, len(set(arm.placement.cpus or ()))
    turns = float(instances) if cpus and cpus < instances else (1 + instances) / 2
    return replace(own, once=own.once + boot * turns)
