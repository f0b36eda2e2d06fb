"""From records to one value per block: which attempt counts, which rows fail, and d = s ln(x_env / x_base).

The instance is the replicate: its slices or runs fold to one value before any statistic. A row that failed
counts as infinitely slow. A row that was left out on purpose, was too short to measure, or does not exist
makes no block of its comparison."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..model.plan import Plan
from ..model.record import TOO_SHORT, Fold, Row, Status, TrialRecord
from ..model.result import Unused
from ..model.study import Better
from .three_arm import Brackets

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Side = tuple[str, bool]
"""An arm's name and whether it is the A/A run of it."""
RowName = tuple[str, str]
"""Workload and metric."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one side over all blocks in which it is usable. blocks: ascending, shape (n,); values,
    logs: shape (n, widest), slices of a block in its row, nan behind the last; lengths: slices by block,
    (n,); paired: whether slices may be paired, (n,); seconds and parts like values where every block has
    them, else None and absent."""

    unit: str
    better: Better
    blocks: IntArray
    values: FloatArray
    logs: FloatArray
    lengths: IntArray
    paired: NDArray[np.bool_]
    seconds: FloatArray | None
    parts: Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The records in order.

    used: trials of the complete blocks.
    blocks: the numbers of the complete blocks.
    torn: number of blocks without a complete attempt.
    series: the usable rows, by side and row.
    lost: reason by side, row and block, for rows without a usable value.
    silent: reason by side and block, for trials that failed as a whole.
    trials: blocks in which a side had a trial, by side; it was left out of the others on purpose.
    left_out: blocks whose trial left a workload out on purpose, by side and workload.
    rows: names in order of appearance."""

    used: tuple[TrialRecord, ...]
    blocks: tuple[int, ...]
    torn: int
    series: Mapping[tuple[Side, RowName], Series]
    lost: Mapping[tuple[Side, RowName], Mapping[int, str]]
    silent: Mapping[Side, Mapping[int, str]]
    trials: Mapping[Side, frozenset[int]]
    left_out: Mapping[tuple[Side, str], frozenset[int]]
    rows: tuple[RowName, ...]
    unused: tuple[Unused, ...]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One comparison of one row, by block, ascending.

    blocks: numbers of the blocks that were measured on both sides, shape (n,).
    d, env_values, base_values: of these blocks, the values medians of the instance, shape (n,).
    env_rows, base_rows: where these blocks stand in the series of each side, shape (n,).
    together: whether slices were paired, shape (n,).
    judged_blocks: numbers of the blocks that verdicts rest on: those, and the ones in which one side failed.
    judged: d of these blocks, +inf where the environment failed and -inf where the baseline did.
    env_failed, base_failed: blocks in which each side failed; a block in both is not among the judged.
    unlike: blocks that were measured on both sides but cannot be compared; not among the judged.
    left_out: blocks that the comparison was left out of on purpose.
    failures: number of blocks by reason, for all that failed or cannot be compared."""

    blocks: IntArray
    d: FloatArray
    env_values: FloatArray
    base_values: FloatArray
    env_rows: IntArray
    base_rows: IntArray
    together: NDArray[np.bool_]
    judged_blocks: IntArray
    judged: FloatArray
    env_failed: frozenset[int]
    base_failed: frozenset[int]
    unlike: frozenset[int]
    left_out: frozenset[int]
    failures: Mapping[str, int]

    @property
    def failed(self) -> frozenset[int]:
        """Blocks in which a side failed or the sides cannot be compared."""
        return self.env_failed | self.base_failed | self.unlike


@dataclass
class _Gathered:
    """Rows of one series while they are collected."""

    first: Row
    blocks: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    paired: list[bool] = field(default_factory=list)


def fold(plan: Plan, records: Iterable[TrialRecord]) -> Folded:
    """Choose the attempts that count and gather their rows.

    A block counts if one attempt holds all its trials, which are those of the plan save arms that had their
    verdicts by then; of several the highest. Block 0 is the rehearsal and never counts."""
    attempts, rehearsed = _by_attempt(records)
    chosen: dict[int, int] = {}
    for block, attempt in attempts:
        if _whole(plan, attempts[block, attempt]):
            chosen[block] = max(attempt, chosen.get(block, attempt))
    blocks = tuple(sorted(chosen))
    used = tuple(
        record
        for block in blocks
        for side, record in attempts[block, chosen[block]].items()
        if side in plan.sides
    )
    torn = len({block for block, _ in attempts} - chosen.keys())
    left = sum(len(group) for group in attempts.values()) - len(used)
    unused = (
        Unused(
            what="trials of attempts that were not finished or were run again",
            reason="torn block",
            count=left,
        ),
        Unused(what="trials of block 0", reason="rehearsal, discarded by rule", count=rehearsed),
    )
    gathered = _gather(used)
    return Folded(
        used=used,
        blocks=blocks,
        torn=torn,
        series=gathered.series,
        lost=gathered.lost,
        silent=gathered.silent,
        trials={side: frozenset(blocks) for side, blocks in gathered.trials.items()},
        left_out={key: frozenset(blocks) for key, blocks in gathered.left_out.items()},
        rows=tuple(gathered.names),
        unused=tuple(u for u in unused if u.count),
    )


def _whole(plan: Plan, found: Mapping[Side, TrialRecord]) -> bool:
    members = next(iter(found.values())).members
    return len(found) >= members if members else plan.sides <= found.keys()


def pair(folded: Folded, env: Side, base: Side, row: RowName) -> Paired | None:
    """One comparison of one row by block; None where no block has it on both sides."""
    e, b = folded.series.get((env, row)), folded.series.get((base, row))
    if e is None or b is None:
        return None
    outcomes = _outcomes(folded, env, row), _outcomes(folded, base, row)
    failures = _reasons(*outcomes)
    blocks, ie, ib = np.intersect1d(e.blocks, b.blocks, assume_unique=True, return_indices=True)
    together = e.paired[ie] & b.paired[ib]
    alike = ~together | (e.lengths[ie] == b.lengths[ib])
    if (e.unit, e.better) != (b.unit, b.better):
        alike[:] = False
        failures["the two sides measure in different units"] += int(blocks.size)
    elif not bool(np.all(alike)):
        failures["the two sides have different numbers of slices"] += int(np.sum(~alike))
    unlike = frozenset(blocks[~alike].tolist())
    blocks, ie, ib, together = blocks[alike], ie[alike], ib[alike], together[alike]
    if blocks.size == 0:
        return None
    env_values, base_values = _middle(e.values, e.lengths, ie), _middle(b.values, b.lengths, ib)
    sign = 1.0 if e.better is Better.LOWER else -1.0
    d = np.log(env_values) - np.log(base_values)
    if bool(np.any(together)):
        width = min(e.logs.shape[1], b.logs.shape[1])
        ratios = e.logs[ie[together], :width] - b.logs[ib[together], :width]
        d[together] = row_medians(ratios, e.lengths[ie[together]])
    d = sign * d
    failed = frozenset(outcomes[0].failed), frozenset(outcomes[1].failed)
    left_out = outcomes[0].left_out | outcomes[1].left_out
    judged_blocks, judged = _with_failures(blocks, d, outcomes, left_out)
    return Paired(
        blocks=blocks,
        d=d,
        env_values=env_values,
        base_values=base_values,
        env_rows=ie.astype(np.int64),
        base_rows=ib.astype(np.int64),
        together=together,
        judged_blocks=judged_blocks,
        judged=judged,
        env_failed=failed[0] - left_out,
        base_failed=failed[1] - left_out,
        unlike=unlike,
        left_out=left_out,
        failures=failures,
    )


def brackets(folded: Folded, paired: Paired, env: Side, base: Side, row: RowName) -> Brackets | None:
    """The judged blocks of a comparison with both runs of its baseline; None where no block has both.

    In each round of slices the mean of the three arms' logs is subtracted, then the medians are taken: what
    all arms share in a round cancels, and all three are treated alike. Slices that are not paired fold to
    medians first."""
    e, b = folded.series[env, row], folded.series[base, row]
    a = folded.series.get(((base[0], True), row))
    if a is None or (a.unit, a.better) != (b.unit, b.better):
        return None
    common, here, ia = np.intersect1d(paired.blocks, a.blocks, assume_unique=True, return_indices=True)
    ie, ib = paired.env_rows[here], paired.base_rows[here]
    alike = ~paired.together[here] | (a.paired[ia] & (a.lengths[ia] == e.lengths[ie]))
    common, ie, ib, ia, here = common[alike], ie[alike], ib[alike], ia[alike], here[alike]
    if common.size == 0:
        return None
    sign = 1.0 if e.better is Better.LOWER else -1.0
    values = np.log([_middle(s.values, s.lengths, i) for s, i in ((e, ie), (b, ib), (a, ia))])
    together = paired.together[here]
    if bool(np.any(together)):
        width = min(s.logs.shape[1] for s in (e, b, a))
        rows = [s.logs[i[together], :width] for s, i in ((e, ie), (b, ib), (a, ia))]
        shared = np.mean(rows, axis=0)
        lengths = e.lengths[ie[together]]
        for arm, own in enumerate(rows):
            values[arm, together] = row_medians(own - shared, lengths)
    own, first, second = sign * values
    lower, upper = paired.judged.copy(), paired.judged.copy()
    at = np.searchsorted(paired.judged_blocks, common)
    lower[at] = own - np.maximum(first, second)
    upper[at] = own - np.minimum(first, second)
    return Brackets(lower=lower, upper=upper)


def row_medians(table: FloatArray, lengths: IntArray) -> FloatArray:
    """Median of the first lengths[i] entries of each row of a table of shape (n, widest); lengths >= 1."""
    out = np.empty(table.shape[0])
    for length in np.unique(lengths).tolist():
        rows = lengths == length
        ordered = np.sort(table[rows, :length], axis=1)
        out[rows] = 0.5 * (ordered[:, (length - 1) // 2] + ordered[:, length // 2])
    return out


def _middle(values: FloatArray, lengths: IntArray, rows: IntArray) -> FloatArray:
    return row_medians(values[rows], lengths[rows])


def _by_attempt(
    records: Iterable[TrialRecord],
) -> tuple[dict[tuple[int, int], dict[Side, TrialRecord]], int]:
    """Records by block and attempt, in the order of blocks; and how many belong to a rehearsal."""
    attempts: dict[tuple[int, int], dict[Side, TrialRecord]] = {}
    rehearsed = 0
    for record in records:
        if record.block < 1:
            rehearsed += 1
            continue
        attempts.setdefault((record.block, record.attempt), {})[record.arm, record.aa] = record
    return attempts, rehearsed


@dataclass
class _Records:
    """The rows of the used trials, while they are collected. Names as in Folded."""

    series: dict[tuple[Side, RowName], Series] = field(default_factory=dict)
    lost: dict[tuple[Side, RowName], dict[int, str]] = field(default_factory=dict)
    silent: dict[Side, dict[int, str]] = field(default_factory=dict)
    trials: dict[Side, set[int]] = field(default_factory=dict)
    left_out: dict[tuple[Side, str], set[int]] = field(default_factory=dict)
    names: dict[RowName, None] = field(default_factory=dict)


def _gather(used: Sequence[TrialRecord]) -> _Records:
    out = _Records()
    gathered: dict[tuple[Side, RowName], _Gathered] = {}
    unverified = _unverified(used)
    for record in used:
        side = (record.arm, record.aa)
        out.silent.setdefault(side, {})
        out.trials.setdefault(side, set()).add(record.block)
        for workload in record.left_out:
            out.left_out.setdefault((side, workload), set()).add(record.block)
        if record.status is not Status.OK:
            out.silent[side][record.block] = record.reason or "the trial failed"
            continue
        paired = record.fold is Fold.PAIRED
        for row in record.rows:
            name = (row.workload, row.metric)
            out.names.setdefault(name)
            key = (side, name)
            if row.status is not Status.OK or not row.values:
                out.lost.setdefault(key, {})[record.block] = row.reason or "no values"
                continue
            why = unverified.get((side, row.workload), {}).get(record.block)
            if why is not None:
                out.lost.setdefault(key, {})[record.block] = why
                continue
            into = gathered.get(key)
            if into is None:
                into = gathered[key] = _Gathered(first=row)
            into.blocks.append(record.block)
            into.rows.append(row)
            into.paired.append(paired)
    for key, g in gathered.items():
        out.series[key], bad = _series(g)
        for block in bad:
            out.lost.setdefault(key, {})[block] = "a value is not positive or not finite"
    return out


def _unverified(used: Sequence[TrialRecord]) -> dict[tuple[Side, str], dict[int, str]]:
    """Blocks whose results cannot be trusted, by side and workload, with the reason.

    A workload may be verified in some of its blocks only. A verification that failed speaks against all
    blocks since the last good one and against those up to the next good one. Blocks before the first
    verification count as good unless it failed: the rehearsal verified every workload."""
    found: dict[tuple[Side, str], dict[int, bool]] = {}
    blocks: dict[tuple[Side, str], set[int]] = {}
    for record in used:
        for row in record.rows:
            key = ((record.arm, record.aa), row.workload)
            blocks.setdefault(key, set()).add(record.block)
            ok = row.verification.get("ok")
            if isinstance(ok, bool):
                told = found.setdefault(key, {})
                told[record.block] = ok and told.get(record.block, True)
    out: dict[tuple[Side, str], dict[int, str]] = {}
    for key, verified in found.items():
        if all(verified.values()):
            continue
        at = sorted(verified)
        for block in blocks[key]:
            here = bisect_left(at, block)
            if here < len(at) and at[here] == block:
                near = at[here : here + 1]
            else:
                near = at[max(0, here - 1) : here + 1]
            failed = [b for b in near if not verified[b]]
            if failed:
                out.setdefault(key, {})[block] = f"its verification failed in block {failed[0]}"
    return out


def _series(gathered: _Gathered) -> tuple[Series, list[int]]:
    """The usable rows as arrays, and the blocks of the others: a value <= 0 or not finite is a failed row."""
    rows, first = gathered.rows, gathered.first
    lengths = np.fromiter(map(len, (r.values for r in rows)), dtype=np.int64, count=len(rows))
    values = _table([r.values for r in rows], lengths)
    outside = np.arange(values.shape[1]) >= lengths[:, None]
    good = np.all(outside | ((values > 0) & np.isfinite(values)), axis=1)
    kinds = set(first.parts).intersection(*(r.parts for r in rows)) if first.parts else set()
    own_seconds = first.unit == "s" and first.better is Better.LOWER
    if own_seconds and not any(r.seconds for r in rows):
        seconds: FloatArray | None = values
    else:
        seconds = _if_whole([r.seconds for r in rows], lengths, outside)
    if seconds is not None and not bool(np.all(outside[good] | (seconds[good] > 0))):
        seconds = None
    parts = {kind: _if_whole([r.parts[kind] for r in rows], lengths, outside) for kind in sorted(kinds)}
    blocks = np.array(gathered.blocks, dtype=np.int64)
    series = Series(
        unit=first.unit,
        better=first.better,
        blocks=blocks[good],
        values=values[good],
        logs=np.log(values[good]),
        lengths=lengths[good],
        paired=np.array(gathered.paired, dtype=np.bool_)[good],
        seconds=None if seconds is None else seconds[good],
        parts={kind: table[good] for kind, table in parts.items() if table is not None},
    )
    return series, blocks[~good].tolist()


def _if_whole(
    rows: Sequence[tuple[float, ...]], lengths: IntArray, outside: NDArray[np.bool_]
) -> FloatArray | None:
    """A table of the rows if each is as long as its values and finite, else None: half a record is no
    record."""
    if list(map(len, rows)) != lengths.tolist():
        return None
    table = _table(rows, lengths)
    return table if bool(np.all(outside | np.isfinite(table))) else None


def _table(rows: Sequence[tuple[float, ...]], lengths: IntArray) -> FloatArray:
    """Rows of unequal lengths as one table, nan behind the last of each."""
    widest = int(lengths.max())
    table = np.full((len(rows), widest), np.nan)
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.float64, count=int(lengths.sum()))
    table[np.arange(widest) < lengths[:, None]] = flat
    return table


@dataclass(frozen=True, kw_only=True)
class _Outcomes:
    """What became of one row of one side in the blocks in which it has no usable value. failed: reason by
    block; absent: blocks in which it was too short to measure, or that do not have it; left_out: blocks that
    it was left out of on purpose."""

    failed: Mapping[int, str]
    absent: frozenset[int]
    left_out: frozenset[int]


def _outcomes(folded: Folded, side: Side, row: RowName) -> _Outcomes:
    present = folded.series.get((side, row))
    have = set(present.blocks.tolist()) if present is not None else set()
    if len(have) == len(folded.blocks):
        return _Outcomes(failed={}, absent=frozenset(), left_out=frozenset())
    reasons = folded.lost.get((side, row), {})
    silent = folded.silent.get(side, {})
    trials = folded.trials.get(side, frozenset())
    not_run = folded.left_out.get((side, row[0]), frozenset())
    failed: dict[int, str] = {}
    absent: set[int] = set()
    left_out: set[int] = set()
    for block in folded.blocks:
        if block in have:
            continue
        if block not in trials or block in not_run:
            left_out.add(block)
            continue
        why = reasons.get(block) or silent.get(block)
        if why is None or why.endswith(TOO_SHORT):
            absent.add(block)
        else:
            failed[block] = why
    return _Outcomes(failed=failed, absent=frozenset(absent), left_out=frozenset(left_out))


def _with_failures(
    blocks: IntArray, d: FloatArray, outcomes: tuple[_Outcomes, _Outcomes], left_out: frozenset[int]
) -> tuple[IntArray, FloatArray]:
    """The blocks and values that verdicts rest on: d, and infinities where one side failed. A block in which
    the other side failed as well, has no value, or was left out does not count."""
    env, base = outcomes
    extra: dict[int, float] = {}
    for mine, other, value in ((env, base, math.inf), (base, env, -math.inf)):
        for block in mine.failed:
            if block not in other.failed and block not in other.absent and block not in left_out:
                extra[block] = value
    if not extra:
        return blocks, d
    numbers = np.concatenate([blocks, np.fromiter(extra, dtype=np.int64, count=len(extra))])
    values = np.concatenate([d, np.fromiter(extra.values(), dtype=np.float64, count=len(extra))])
    order = np.argsort(numbers)
    return numbers[order], values[order]


def _reasons(env: _Outcomes, base: _Outcomes) -> Counter[str]:
    """Number of failed blocks by reason; a block counts once, a block that was left out not at all."""
    left_out = env.left_out | base.left_out
    failed = {**base.failed, **env.failed}
    return Counter(why for block, why in failed.items() if block not in left_out)
