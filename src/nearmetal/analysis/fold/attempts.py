"""Decides which attempts at blocks count, and when they were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ...model.plan import NodeState, Plan, blocks_in_order
from ...model.record import Claim, Head, claim_of, counting
from ...model.result import Unused

Side = tuple[str, bool]
"""The name of an arm, and whether this is its A/A run."""


@dataclass(frozen=True, kw_only=True)
class ChosenTrials:
    """The trials that count, as indexes into the sequence of all trials.

    blocks: the numbers of the complete blocks, ascending.
    used: for each of these blocks, its trials in the order of the sequence.
    present: for each side, the numbers of the blocks in which the side has a trial, ascending.
    others: all other trials.
    torn: number of blocks without a complete attempt.
    unused: why the other trials do not count.
    nodes: for each of these blocks, the node on which it ran.
    """

    blocks: tuple[int, ...]
    used: tuple[tuple[int, ...], ...]
    present: Mapping[Side, NDArray[np.int64]]
    others: tuple[int, ...]
    torn: int
    unused: tuple[Unused, ...]
    nodes: tuple[NodeState, ...]


def choose(plan: Plan, heads: Sequence[Head]) -> ChosenTrials:
    """Choose the trials that count.

    A block needs all trials of the plan, except those of arms that already had their verdicts. It counts by
    its first attempt that contains all of them (model.record.counting). It counts only if no earlier block
    may still be under way: every earlier block counts, too, or was given up, or is incomplete although its
    worker has gone on with later blocks. Block 0 is the rehearsal and never counts.
    """
    attempts: dict[Claim, dict[Side, int]] = {}
    rehearsed = 0
    for at, head in enumerate(heads):
        if head.block < 1:
            rehearsed += 1
            continue
        attempts.setdefault(claim_of(head), {})[head.arm, head.aa] = at
    chosen = counting(
        {
            claim: min(heads[at].begin for at in found.values())
            for claim, found in attempts.items()
            if _whole(plan, heads, found)
        }
    )
    latest: dict[str, int] = {}
    for claim in attempts:
        latest[claim.run] = max(latest.get(claim.run, 0), claim.block)
    left_behind = {claim.block for claim in attempts if claim.block < latest[claim.run]}
    last = blocks_in_order(chosen, plan.missing | left_behind)
    blocks = tuple(sorted(block for block in chosen if block <= last and block not in plan.missing))
    used = tuple(
        tuple(at for side, at in attempts[chosen[block]].items() if side in plan.sides) for block in blocks
    )
    taken = {at for block in used for at in block}
    waiting = sum(len(attempts[claim]) for block, claim in chosen.items() if block > last)
    lost = sum(len(group) for claim, group in attempts.items() if claim.block in plan.missing)
    left = sum(len(group) for group in attempts.values()) - len(taken) - waiting - lost
    unused = (
        Unused(
            what="trials of attempts that were not finished or were run again",
            reason="incomplete round",
            count=left,
        ),
        Unused(
            what="trials of rounds after one that is still to be run",
            reason="an earlier round is incomplete",
            count=waiting,
        ),
        Unused(what="trials of rounds that were given up", reason="round lost with its worker", count=lost),
        Unused(what="trials of the rehearsal", reason="rehearsal, discarded by rule", count=rehearsed),
    )
    unnamed = plan.nodes.get("", NodeState())
    return ChosenTrials(
        blocks=blocks,
        used=used,
        present=_present(heads, used),
        others=tuple(at for at in range(len(heads)) if at not in taken),
        torn=len({claim.block for claim in attempts} - chosen.keys() - plan.missing),
        unused=tuple(u for u in unused if u.count),
        nodes=tuple(plan.nodes.get(chosen[block].run, unnamed) for block in blocks),
    )


def _present(heads: Sequence[Head], used: Sequence[Sequence[int]]) -> dict[Side, NDArray[np.int64]]:
    blocks: dict[Side, list[int]] = {}
    for group in used:
        for at in group:
            blocks.setdefault((heads[at].arm, heads[at].aa), []).append(heads[at].block)
    return {side: np.array(found, dtype=np.int64) for side, found in blocks.items()}


def _whole(plan: Plan, heads: Sequence[Head], found: Mapping[Side, int]) -> bool:
    members = heads[next(iter(found.values()))].members
    return len(found) >= members if members else plan.sides <= found.keys()


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One attempt at a block.

    run: label of the worker.
    begin: start of its first trial, in Unix seconds.
    end: end of its last trial, in Unix seconds.
    """

    block: int
    run: str
    begin: float
    end: float


class RunTimes:
    """How long the run took.

    block_seconds: median seconds from the start of one block to the start of the next of the same worker; 0
        without trials.
    elapsed: seconds during which at least one worker ran a block.
    ended: by block number, seconds from the start of the run to the end of the block, without pauses. The run
        starts with the command `run`, or with its first block if the time of the command is unknown.
    """

    def __init__(self, heads: Sequence[Head], started: float | None) -> None:
        attempts = _attempts(heads)
        self.block_seconds = _block_seconds(attempts)
        spent = _spent(attempts, self.block_seconds)
        first = max(attempts[0].begin - started, 0.0) if attempts and started is not None else 0.0
        self.elapsed = spent[-1] if spent else 0.0
        self.ended: Mapping[int, float] = {a.block: first + s for a, s in zip(attempts, spent, strict=True)}


def _attempts(heads: Sequence[Head]) -> list[_Attempt]:
    """Return every attempt at a block, in order of time."""
    spans: dict[Claim, tuple[float, float]] = {}
    for h in heads:
        if h.block < 1:
            continue
        claim = claim_of(h)
        begin, end = spans.get(claim, (h.begin, h.end))
        spans[claim] = (min(begin, h.begin), max(end, h.end))
    found = (
        _Attempt(block=claim.block, run=claim.run, begin=begin, end=end)
        for claim, (begin, end) in spans.items()
    )
    return sorted(found, key=lambda a: (a.begin, a.end))


def _block_seconds(attempts: Sequence[_Attempt]) -> float:
    if not attempts:
        return 0.0
    own = median(a.end - a.begin for a in attempts)
    by_run: dict[str, list[_Attempt]] = {}
    for a in attempts:
        by_run.setdefault(a.run, []).append(a)
    steps = [b.begin - a.begin for of_one in by_run.values() for a, b in pairwise(of_one)]
    return max(own, median(steps)) if steps else own


def _spent(attempts: Sequence[_Attempt], block_seconds: float) -> list[float]:
    """Return the seconds spent on blocks up to the end of each attempt. Time in which several workers run
    blocks counts once.

    The time between two blocks counts if it is shorter than a block; a longer gap is a pause between a run
    and its resumption.
    """
    out: list[float] = []
    spent, before = 0.0, None
    for a in attempts:
        if before is None:
            before = a.begin
        gap = a.begin - before
        spent += gap if 0 < gap <= max(block_seconds, 1.0) else 0.0
        spent += max(0.0, a.end - max(a.begin, before))
        before = max(before, a.end)
        # If an earlier attempt of another worker ended later, the time in between is not before this end.
        out.append(spent - (before - a.end))
    return out
