"""How long a study will take, guessed before anything was measured; the rehearsal replaces the guess."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.design import LEAST_SLICES
from ..model.study import (
    ApplicationWorkload,
    Arm,
    CommandWorkload,
    Design,
    Event,
    EventSubject,
    KernelWorkload,
    Study,
    Transport,
)
from ..plan import VERIFIED_EVERY, block_length

#: Seconds on a machine of the early 2020s: an MPI launch, a slice by transport, one start of an instance.
LAUNCH, START = 0.12, 0.004
SLICE = {Transport.SHM: 0.0015, Transport.TCP: 0.005}
#: Seconds of one full verified run, by class, of the slowest of our kernels.
VERIFY = {"S": 0.1, "W": 0.4, "A": 3.0, "B": 60.0}
COMMAND = 1.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long a study takes.

    blocks: as many as the time budget holds; 40 without one.
    block_seconds: of one block.
    rehearsal_seconds: of block 0.
    """

    blocks: int
    block_seconds: float
    rehearsal_seconds: float

    @property
    def seconds(self) -> float:
        return self.rehearsal_seconds + self.blocks * self.block_seconds


def _event_seconds(w: EventSubject, arm: Arm, design: Design) -> float:
    once = 1 if w.event is Event.EXEC or w.event is Event.DENSITY else arm.placement.all_instances
    return w.count_in(design) * once * START


def estimate(study: Study) -> Estimate:
    """From counts of arms, kernels and slices; a user's command counts as one second."""
    design = study.design
    arms = study.arms()
    first = [a for a in arms if a.environment.name == design.baselines[0]]
    beside = verify = each = 0.0
    for arm in [*arms, *first]:
        taken = [w for w in study.workloads if arm.environment.takes(w.name)]
        kernels = [w for w in taken if isinstance(w, KernelWorkload)]
        commands = sum(isinstance(w, CommandWorkload | ApplicationWorkload) for w in taken)
        beside += sum(_event_seconds(w, arm, design) for w in taken if isinstance(w, EventSubject))
        beside += LAUNCH if kernels else 0.0
        beside += commands * (design.runs + design.warm_up) * COMMAND
        verify += sum(VERIFY.get(str(w.params.get("class")), 0.05) for w in kernels)
        each += len(kernels) * SLICE[arm.transport]
    rehearsal = beside + verify
    beside += verify / VERIFIED_EVERY + each * (1 + design.warm_up)
    block = beside + each * (design.slices or LEAST_SLICES)
    left = None if design.max_time is None else max(0.0, design.max_time - rehearsal)
    if each and design.slices is None:
        block = max(block, block_length(beside, left))
    blocks = 40 if left is None else max(1, math.floor(left / block))
    return Estimate(blocks=min(blocks, design.max_blocks), block_seconds=block, rehearsal_seconds=rehearsal)
