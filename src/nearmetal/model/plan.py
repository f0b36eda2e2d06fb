"""What will be run: blocks of trials in an order drawn from the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Work = Mapping[str, Mapping[int, int]]
"""Units of work in a slice, by kernel workload and number of ranks: the same for every arm."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One instance set of one arm in one block. id: '<block>.<arm>' with '.aa' behind the A/A arm's;
    aa: this is the second run of the baseline; arm: name of the arm."""

    id: str
    block: int
    position: int
    arm: str
    aa: bool


@dataclass(frozen=True, kw_only=True)
class Block:
    """Every arm once and the first baseline twice, in the order in which they are started.
    slice_seed: seed of the order of slices inside the block."""

    number: int
    trials: tuple[TrialSpec, ...]
    slice_seed: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The blocks of a study. expected_blocks: N of the look schedule, fixed before data; sides: what every
    block holds, by arm and whether it is the A/A run of it; blocks: those drawn so far, for whoever wants to
    see them (a run draws one at a time)."""

    seed: int
    expected_blocks: int
    sides: frozenset[tuple[str, bool]]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class NextBlock:
    """What is run next, and how.

    block: the trials in the order in which they start; arms that are left out are not among them.
    attempt: counts from 1; a torn block is run again as a whole.
    slices: number of slices by kernel workload.
    work: units of work in each of them.
    left_out: by arm, the workloads that it does not run because their comparisons are decided.
    verified: by arm, the kernel workloads that run in full with their verification; the others are warmed up
        by one discarded slice.
    """

    block: Block
    attempt: int
    slices: Mapping[str, int]
    work: Work
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    verified: Mapping[str, frozenset[str]]

    def runs(self, arm: str, workload: str) -> bool:
        """Whether an arm of the block runs this workload."""
        return workload not in self.left_out.get(arm, frozenset())

    def verifies(self, arm: str, workload: str) -> bool:
        """Whether an arm verifies this kernel workload in the block."""
        return workload in self.verified.get(arm, frozenset())
