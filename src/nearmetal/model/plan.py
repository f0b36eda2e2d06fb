"""What will be run: blocks of trials in an order drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass


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
