"""The plan of a run: blocks of trials in an order drawn from the seed, and the times of the analyses."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

Work = Mapping[str, Mapping[int, int]]
"""Units of work in a slice, by kernel workload and number of ranks. They are the same for every arm."""


@dataclass(frozen=True, kw_only=True)
class GrowingLooks:
    """Looks after 8, 12, 18, 27, ... blocks, each at 1.5 times as many blocks as the one before. The total
    number of blocks need not be known in advance.

    closing: block numbers at which a time budget or a block limit ended the run, ascending. Each adds one
        closing look.
    first: if sets of machines are drawn, the number of blocks after which every machine has been in a set;
        else 0. There is no look with fewer blocks, because its interval would not be about all machines.
    """

    closing: tuple[int, ...] = ()
    first: int = 0


@dataclass(frozen=True, kw_only=True)
class ExpectedLooks:
    """The schedule of results directories made before November 2026: looks after 2N/3, N, 1.5 N, ... blocks.

    expected: N, the number of blocks that the rehearsal expected."""

    expected: int


Schedule = GrowingLooks | ExpectedLooks
"""When the results are analysed. It is fixed before the first block that counts."""

GROWING = GrowingLooks()
"""The schedule of every new run."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One trial: the instances of one arm in one block.

    id: '<block>.<arm>', with '.aa' appended for the A/A arm.
    aa: whether this is the second run of the baseline.
    """

    id: str
    block: int
    position: int
    arm: str
    aa: bool


@dataclass(frozen=True, kw_only=True)
class Block:
    """A round: a trial of every arm, and a second one of the first baseline, in the order of their starts.

    slice_seed: seed of the order of slices inside the block.
    """

    number: int
    trials: tuple[TrialSpec, ...]
    slice_seed: int


class NodeState(NamedTuple):
    """A machine in a state that does not change within a round. Another kernel or CPU model is another state.

    name: the node's host name; empty if it was not recorded.
    kernel: release of its kernel; empty if unknown.
    cpu: model of its CPU; empty if unknown.
    """

    name: str = ""
    kernel: str = ""
    cpu: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The blocks of a study.

    schedule: when the results are analysed.
    sides: the trials of every block, as pairs: arm, and whether it is the arm's A/A run.
    blocks: blocks drawn so far, for display; a run draws one at a time.
    started: Unix seconds when the command that began the run was started; None if that was not recorded.
    missing: numbers of blocks that were given up because their workers were lost. They count for no side.
    nodes: by label of a run or worker (TrialRecord.run), the node on which it ran. Runs without an entry were
        made by the coordinator itself, all on the node of the entry ''.
    machines: names of the machines from which the set of each block is drawn; () if no sets are drawn. See
        nodes_of_block().
    """

    seed: int
    schedule: Schedule
    sides: frozenset[tuple[str, bool]]
    blocks: tuple[Block, ...]
    started: float | None = None
    missing: frozenset[int] = frozenset()
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    machines: tuple[str, ...] = ()


def blocks_in_order(whole: Collection[int], missing: Collection[int]) -> int:
    """Return the number of the last block that an analysis may use, 0 if there is none: all blocks up to it
    are complete or were given up.

    An analysis that also used later blocks would prefer blocks that take less time.

    whole: numbers of the complete blocks.
    missing: numbers of the blocks that were given up.
    """
    return next(n for n in count(1) if n not in whole and n not in missing) - 1


@dataclass(frozen=True, kw_only=True)
class NextBlock:
    """The next block of a run.

    block: the trials in the order in which they start, without the arms that are left out.
    attempt: counts from 1; an incomplete block is run again as a whole.
    slices: number of slices, by kernel workload.
    work: units of work in each slice, by kernel workload.
    left_out: by arm, the workloads that it does not run because their comparisons are decided.
    verified: by arm, the kernel workloads that run in full and are verified. The others are warmed up by one
        discarded slice.
    node: name of the node whose worker runs the block; '' for any.
    """

    block: Block
    attempt: int
    slices: Mapping[str, int]
    work: Work
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    verified: Mapping[str, frozenset[str]]
    node: str = ""

    def runs(self, arm: str, workload: str) -> bool:
        """Return whether an arm of the block runs this workload."""
        return workload not in self.left_out.get(arm, frozenset())

    def verifies(self, arm: str, workload: str) -> bool:
        """Return whether an arm verifies this kernel workload in the block."""
        return workload in self.verified.get(arm, frozenset())


def draw(purpose: str, seed: int, number: int, name: str) -> bytes:
    """Return 32 pseudo-random bytes for one purpose, block number and name, identical on every machine and
    Python version. Different inputs give independent bytes."""
    return hashlib.sha256(f"nearmetal-{purpose}-1/{seed}/{number}/{name}".encode()).digest()


def turn_of_nodes(turn: int, nodes: Sequence[str], seed: int) -> tuple[str, ...]:
    """Return a random permutation of the nodes, drawn from the seed and the number of the turn.

    nodes: distinct names. Their order does not matter.
    """
    return tuple(sorted(nodes, key=lambda node: (draw("nodes", seed, turn, node), node)))


def nodes_of_block(block: int, nodes: Sequence[str], seed: int) -> tuple[str, ...]:
    """Return all nodes in the order in which the placements of a block use them: a placement over n nodes
    uses the first n.

    A turn consists of as many blocks as there are nodes. In each turn, every node is equally often among the
    first n, whatever n is. The order is drawn again for each turn, so any two nodes are used together in some
    blocks and not in others.

    block: number of the block, from 1.
    nodes: distinct names. Their order does not matter.
    """
    turn, place = divmod(block - 1, len(nodes))
    order = turn_of_nodes(turn, nodes, seed)
    return order[place:] + order[:place]
