"""Joins the pieces of a run and computes comparisons: the failed blocks, and d = s ln(x_env / x_base) for
each block.

A failed row counts as infinitely slow. A comparison does not use a block in which one of its rows was left
out on purpose, was too short to measure, or does not exist."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ...model.plan import NodeState, Plan
from ...model.record import TrialRecord, unmeasurable
from ...model.result import Unused
from .attempts import ChosenTrials, Side, choose
from .columns import RowName
from .counts import BoolArray, Counts, FloatArray, IntArray, joined
from .pieces import Compared, FoldRequest, Measured, Piece, fold_piece

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

UNITS = "the two sides measure in different units"
UNLIKE = "the two sides have different numbers of time shares"


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A run reduced to one value per block.

    A side is an arm together with whether it is the second run of the first baseline.

    blocks: the numbers of the complete blocks, ascending.
    torn: number of blocks without a complete attempt.
    unused: trials that do not count, and why.
    rows: (workload, metric) of every row, in order of appearance.
    measured, compared: see pieces.Piece; blocks whose verification failed are not included.
    counts: counters of the trials, by side.
    present: by side, the blocks in which the side had a trial, ascending. From all other complete blocks the
        side was left out on purpose.
    lost, silent, left_out: see pieces.Piece.
    wrong: number of trials whose results were found to be wrong.
    nodes: the node of each of `blocks`.
    """

    blocks: tuple[int, ...]
    torn: int
    unused: tuple[Unused, ...]
    rows: tuple[RowName, ...]
    measured: Mapping[tuple[Side, RowName], Measured]
    compared: Mapping[tuple[Side, Side, RowName], Compared]
    counts: Mapping[Side, Counts]
    present: Mapping[Side, IntArray]
    lost: Mapping[tuple[Side, RowName], Mapping[int, str]]
    silent: Mapping[Side, Mapping[int, str]]
    left_out: Mapping[tuple[Side, str], frozenset[int]]
    wrong: int
    nodes: tuple[NodeState, ...]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One comparison of one row (workload and metric), block by block, in ascending order.

    both: the blocks that were measured on both sides and can be compared.
    judged_blocks: numbers of the blocks that verdicts use: `both`, and the blocks in which one side failed.
    judged: d of the judged blocks; +inf where the environment failed, -inf where the baseline failed.
    env_failed, base_failed: blocks in which each side failed; a block in which both failed is not judged.
    unlike: blocks that were measured on both sides but cannot be compared; they are not judged.
    left_out: blocks from which the comparison was left out on purpose.
    failures: by reason, the number of blocks that failed or cannot be compared.
    """

    both: Compared
    judged_blocks: IntArray
    judged: FloatArray
    env_failed: frozenset[int]
    base_failed: frozenset[int]
    unlike: frozenset[int]
    left_out: frozenset[int]
    failures: Mapping[str, int]

    @property
    def blocks(self) -> IntArray:
        return self.both.blocks

    @property
    def d(self) -> FloatArray:
        return self.both.d

    @property
    def env_values(self) -> FloatArray:
        return self.both.env_values

    @property
    def base_values(self) -> FloatArray:
        return self.both.base_values

    @property
    def failed(self) -> frozenset[int]:
        """Return the blocks in which a side failed or the sides cannot be compared."""
        return self.env_failed | self.base_failed | self.unlike


def fold(request: FoldRequest, plan: Plan, records: Sequence[TrialRecord]) -> Folded:
    """Fold records that are all in memory."""
    choice = choose(plan, records)
    used = (records[at] for block in choice.used for at in block)
    return joined_pieces(choice, [fold_piece(request, used, (records[at] for at in choice.others))])


def joined_pieces(choice: ChosenTrials, pieces: Iterable[Piece]) -> Folded:
    """Join the folded pieces of a run.

    pieces: pieces of different blocks, in any order. Their arrays are removed from them, so that a long run
        is not in memory twice.
    """
    ordered = sorted(pieces, key=_first_block)
    mistrust = _UntrustedBlocks(ordered)
    lost = _united([p.lost for p in ordered])
    measured: dict[tuple[Side, RowName], Measured] = {}
    for key in _keys(p.measured for p in ordered):
        side, row = key
        found = _one_measured([p.measured.pop(key) for p in ordered if key in p.measured])
        reasons = mistrust.reasons(side, row[0], found.blocks)
        if reasons:
            lost.setdefault(key, {}).update(reasons)
            kept = _without(found.blocks, reasons)
            if not bool(kept.any()):
                continue
            found = replace(
                found,
                blocks=found.blocks[kept],
                middles=found.middles[kept],
                seconds=found.seconds[kept],
                work=found.work[kept],
                drawn=found.drawn[kept] if found.drawn.size else found.drawn,
            )
        measured[key] = found
    compared: dict[tuple[Side, Side, RowName], Compared] = {}
    for pair_key in _keys(p.compared for p in ordered):
        env, base, row = pair_key
        both = _one_compared([p.compared.pop(pair_key) for p in ordered if pair_key in p.compared])
        reasons = mistrust.reasons(env, row[0], both.blocks) | mistrust.reasons(base, row[0], both.blocks)
        if reasons:
            both = both.where(_without(both.blocks, reasons))
        if both.blocks.size:
            compared[pair_key] = both
    counts = {
        side: joined([p.counts.pop(side) for p in ordered if side in p.counts])
        for side in _keys(p.counts for p in ordered)
    }
    return Folded(
        blocks=choice.blocks,
        torn=choice.torn,
        unused=choice.unused,
        rows=tuple(dict.fromkeys(row for p in ordered for row in p.rows)),
        measured=measured,
        compared=compared,
        counts=counts,
        present=choice.present,
        lost=lost,
        silent=_united([p.silent for p in ordered]),
        left_out=_left_out(ordered),
        wrong=sum(p.wrong for p in ordered),
        nodes=choice.nodes,
    )


def pair(folded: Folded, env: Side, base: Side, row: RowName) -> Paired | None:
    """Return the comparison of two sides in one row; None if no block can be compared."""
    found = folded.compared.get((env, base, row))
    if found is None or not bool(found.alike.any()):
        return None
    outcomes = _outcomes(folded, env, row), _outcomes(folded, base, row)
    failures = _reasons(*outcomes)
    e, b = folded.measured[env, row], folded.measured[base, row]
    unlike = frozenset(found.blocks[~found.alike].tolist())
    if unlike:
        failures[UNITS if (e.unit, e.better) != (b.unit, b.better) else UNLIKE] += len(unlike)
    both = found.where(found.alike) if unlike else found
    failed = frozenset(outcomes[0].failed), frozenset(outcomes[1].failed)
    left_out = outcomes[0].left_out | outcomes[1].left_out
    judged_blocks, judged = _with_failures(both, outcomes, left_out)
    return Paired(
        both=both,
        judged_blocks=judged_blocks,
        judged=judged,
        env_failed=failed[0] - left_out,
        base_failed=failed[1] - left_out,
        unlike=unlike,
        left_out=left_out,
        failures=failures,
    )


def on_blocks(paired: Paired, blocks: frozenset[int]) -> Paired | None:
    """Return the comparison over these blocks only; None if none of them was measured on both sides. The
    field `failures` stays that of all blocks."""
    wanted = np.fromiter(blocks, dtype=np.int64, count=len(blocks))
    kept, judged = np.isin(paired.blocks, wanted), np.isin(paired.judged_blocks, wanted)
    if not bool(kept.any()):
        return None
    return replace(
        paired,
        both=paired.both.where(kept),
        judged_blocks=paired.judged_blocks[judged],
        judged=paired.judged[judged],
        env_failed=paired.env_failed & blocks,
        base_failed=paired.base_failed & blocks,
        unlike=paired.unlike & blocks,
        left_out=paired.left_out & blocks,
    )


def merged_pieces(pieces: Sequence[Piece]) -> Piece:
    """Return one piece with the blocks of several pieces, which stay unchanged.

    pieces: in ascending order of their blocks; no two have a block in common.
    """
    return Piece(
        rows=tuple(dict.fromkeys(row for p in pieces for row in p.rows)),
        measured={
            key: _one_measured([p.measured[key] for p in pieces if key in p.measured])
            for key in _keys(p.measured for p in pieces)
        },
        compared={
            key: _one_compared([p.compared[key] for p in pieces if key in p.compared])
            for key in _keys(p.compared for p in pieces)
        },
        counts={
            side: joined([p.counts[side] for p in pieces if side in p.counts])
            for side in _keys(p.counts for p in pieces)
        },
        lost=_united([p.lost for p in pieces]),
        silent=_united([p.silent for p in pieces]),
        left_out=_left_out(pieces),
        verified=_united([p.verified for p in pieces]),
        wrong=sum(p.wrong for p in pieces),
    )


def _first_block(piece: Piece) -> int:
    found = [int(c.blocks[0]) for c in piece.measured.values()]
    lost = (block for by in (*piece.lost.values(), *piece.silent.values()) for block in by)
    return min((*found, *lost), default=0)


class _UntrustedBlocks:
    """Blocks whose results are not trusted because a verification failed.

    A workload may be verified in some of its blocks only. After a failed verification, the blocks since the
    last good one and up to the next good one are not trusted. Blocks before the first verification are
    trusted unless it failed, because the rehearsal verified every workload.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        known = _united([p.verified for p in pieces])
        self._failed = {key: verified for key, verified in known.items() if not all(verified.values())}

    def reasons(self, side: Side, workload: str, blocks: IntArray) -> dict[int, str]:
        verified = self._failed.get((side, workload))
        if verified is None:
            return {}
        at = sorted(verified)
        out: dict[int, str] = {}
        for block in blocks.tolist():
            here = bisect_left(at, block)
            if here < len(at) and at[here] == block:
                near = at[here : here + 1]
            else:
                near = at[max(0, here - 1) : here + 1]
            failed = [b for b in near if not verified[b]]
            if failed:
                out[block] = f"its verification failed in round {failed[0]}"
        return out


def _keys(tables: Iterable[Mapping[Key, object]]) -> Iterable[Key]:
    return dict.fromkeys(key for table in tables for key in table)


def _united(tables: Iterable[Mapping[Key, Mapping[int, Value]]]) -> dict[Key, dict[int, Value]]:
    out: dict[Key, dict[int, Value]] = {}
    for table in tables:
        for key, by_block in table.items():
            out.setdefault(key, {}).update(by_block)
    return out


def _left_out(pieces: Sequence[Piece]) -> dict[tuple[Side, str], frozenset[int]]:
    keys = _keys(p.left_out for p in pieces)
    return {key: frozenset().union(*(p.left_out.get(key, ()) for p in pieces)) for key in keys}


def _without(blocks: IntArray, dropped: Mapping[int, object]) -> BoolArray:
    return ~np.isin(blocks, np.fromiter(dropped, dtype=np.int64, count=len(dropped)))


def _one_measured(parts: Sequence[Measured]) -> Measured:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        blocks=np.concatenate([p.blocks for p in parts]),
        middles=np.concatenate([p.middles for p in parts]),
        seconds=np.concatenate([p.seconds for p in parts]),
        work=np.concatenate([p.work for p in parts]),
        drawn=np.concatenate([p.drawn for p in parts]),
    )


def _one_compared(parts: Sequence[Compared]) -> Compared:
    """Concatenate the blocks of one comparison. Of `shares`, only kinds that all parts have are kept."""
    if len(parts) == 1:
        return parts[0]
    kinds = [kind for kind in parts[0].shares if all(kind in p.shares for p in parts)]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(p, name) for p in parts]) for name in vars(parts[0]) if name != "shares"
    }
    shares = {kind: np.concatenate([p.shares[kind] for p in parts]) for kind in kinds}
    return Compared(**arrays, shares=shares)


@dataclass(frozen=True, kw_only=True)
class _Outcomes:
    """Complete blocks in which one row of one side has no usable value. Each block is in one of the fields.

    failed: by block, why the row or its trial failed.
    absent: blocks in which the row was too short to measure, or does not exist.
    left_out: blocks from which the row was left out on purpose.
    """

    failed: Mapping[int, str]
    absent: frozenset[int]
    left_out: frozenset[int]


def _outcomes(folded: Folded, side: Side, row: RowName) -> _Outcomes:
    found = folded.measured.get((side, row))
    have = found.blocks if found is not None else np.empty(0, dtype=np.int64)
    if have.size == len(folded.blocks):
        return _Outcomes(failed={}, absent=frozenset(), left_out=frozenset())
    missing = np.setdiff1d(np.array(folded.blocks, dtype=np.int64), have, assume_unique=True)
    reasons = folded.lost.get((side, row), {})
    silent = folded.silent.get(side, {})
    not_run = folded.left_out.get((side, row[0]), frozenset())
    trials = folded.present.get(side, np.empty(0, dtype=np.int64))
    chosen = np.fromiter(not_run, dtype=np.int64, count=len(not_run))
    out = ~np.isin(missing, trials) | np.isin(missing, chosen)
    failed: dict[int, str] = {}
    absent: set[int] = set()
    left_out = frozenset(missing[out].tolist())
    for block in missing[~out].tolist():
        why = reasons.get(block) or silent.get(block)
        if why is None or unmeasurable(why):
            absent.add(block)
        else:
            failed[block] = why
    return _Outcomes(failed=failed, absent=frozenset(absent), left_out=left_out)


def _with_failures(
    both: Compared, outcomes: tuple[_Outcomes, _Outcomes], left_out: frozenset[int]
) -> tuple[IntArray, FloatArray]:
    """Return the numbers of the blocks that verdicts use, ascending, and their values: d of the blocks in
    `both`, +inf where the environment failed, and -inf where the baseline failed.

    A block in which one side failed is not used if the other side failed as well or has no value, or if the
    comparison was left out of the block.
    """
    env, base = outcomes
    extra: dict[int, float] = {}
    for mine, other, value in ((env, base, math.inf), (base, env, -math.inf)):
        for block in mine.failed:
            if block not in other.failed and block not in other.absent and block not in left_out:
                extra[block] = value
    if not extra:
        return both.blocks, both.d
    numbers = np.concatenate([both.blocks, np.fromiter(extra, dtype=np.int64, count=len(extra))])
    values = np.concatenate([both.d, np.fromiter(extra.values(), dtype=np.float64, count=len(extra))])
    order = np.argsort(numbers)
    return numbers[order], values[order]


def _reasons(env: _Outcomes, base: _Outcomes) -> Counter[str]:
    """Return the number of failed blocks by reason.

    A block counts once; a block that was left out does not count.
    """
    left_out = env.left_out | base.left_out
    failed = {**base.failed, **env.failed}
    return Counter(why for block, why in failed.items() if block not in left_out)
