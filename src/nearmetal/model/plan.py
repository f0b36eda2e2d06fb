"""What will be run: blocks of trials in an order drawn from the seed, and when the results are looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GrowingLooks:
    """Looks after 8, 12, 18, 27, ... blocks, each 1.5 times as many as the one before; no number of blocks
    has to be known beforehand.

    closing: numbers of the blocks after which a time budget or a block limit ended the run, ascending. Each
    adds one closing look."""

    closing: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExpectedLooks:
    """The schedule of results directories made before November 2026: looks after 2N/3, N, 1.5 N, ... blocks.

    expected: N, the number of blocks that the rehearsal expected."""

    expected: int


Schedule = GrowingLooks | ExpectedLooks
"""When the results are looked at. It is fixed before the first block that counts."""

GROWING = GrowingLooks()
"""The schedule of every new run."""


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
    """The blocks of a study.

    schedule: when the results are looked at.
    sides: what every block holds, by arm and whether it is the A/A run of the arm.
    blocks: those drawn so far, for whoever wants to see them; a run draws one at a time.
    started: Unix seconds when the command that began the run was started; None if that was not recorded."""

    seed: int
    schedule: Schedule
    sides: frozenset[tuple[str, bool]]
    blocks: tuple[Block, ...]
    started: float | None = None
