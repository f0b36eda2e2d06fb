"""From records to one value per block: which attempt counts, which rows fail, and d = s ln(x_env / x_base).

The instance is the replicate: its slices or runs fold to one value before any statistic. Missing is not zero:
a row that failed is lost in its own comparison and counted there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..model.plan import Plan
from ..model.record import Fold, Row, Status, TrialRecord
from ..model.result import Unused
from ..model.study import Better

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
    """The records in order. used: trials of the complete blocks; blocks: their numbers; torn: blocks without
    a complete attempt; series by side and row; lost: reason by side, row and block, for rows that failed;
    silent: reason by side and block, for trials that failed as a whole; rows: names in order of
    appearance."""

    used: tuple[TrialRecord, ...]
    blocks: tuple[int, ...]
    torn: int
    series: Mapping[tuple[Side, RowName], Series]
    lost: Mapping[tuple[Side, RowName], Mapping[int, str]]
    silent: Mapping[Side, Mapping[int, str]]
    rows: tuple[RowName, ...]
    unused: tuple[Unused, ...]


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One comparison of one row, by block: d, the values of both sides (medians of the instance), the
    difference env - base in base units, and failures by reason. All arrays of shape (n,), blocks
    ascending."""

    blocks: IntArray
    d: FloatArray
    env_values: FloatArray
    base_values: FloatArray
    env_rows: IntArray
    base_rows: IntArray
    together: NDArray[np.bool_]
    failures: Mapping[str, int]


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
    series, lost, silent, rows = _gather(used)
    return Folded(
        used=used,
        blocks=blocks,
        torn=torn,
        series=series,
        lost=lost,
        silent=silent,
        rows=rows,
        unused=tuple(u for u in unused if u.count),
    )


def _whole(plan: Plan, found: Mapping[Side, TrialRecord]) -> bool:
    members = next(iter(found.values())).members
    return len(found) >= members if members else plan.sides <= found.keys()


def pair(folded: Folded, env: Side, base: Side, row: RowName) -> Paired | None:
    """One comparison of one row by block; None where no block has it on both sides."""
    e, b = folded.series.get((env, row)), folded.series.get((base, row))
    failures = _failures(folded, env, base, row)
    if e is None or b is None:
        return None
    blocks, ie, ib = np.intersect1d(e.blocks, b.blocks, assume_unique=True, return_indices=True)
    together = e.paired[ie] & b.paired[ib]
    alike = ~together | (e.lengths[ie] == b.lengths[ib])
    if (e.unit, e.better) != (b.unit, b.better):
        alike[:] = False
        failures["the two sides measure in different units"] += int(blocks.size)
    elif not bool(np.all(alike)):
        failures["the two sides have different numbers of slices"] += int(np.sum(~alike))
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
    return Paired(
        blocks=blocks,
        d=sign * d,
        env_values=env_values,
        base_values=base_values,
        env_rows=ie.astype(np.int64),
        base_rows=ib.astype(np.int64),
        together=together,
        failures=failures,
    )


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


def _gather(
    used: Sequence[TrialRecord],
) -> tuple[
    dict[tuple[Side, RowName], Series],
    dict[tuple[Side, RowName], dict[int, str]],
    dict[Side, dict[int, str]],
    tuple[RowName, ...],
]:
    gathered: dict[tuple[Side, RowName], _Gathered] = {}
    lost: dict[tuple[Side, RowName], dict[int, str]] = {}
    silent: dict[Side, dict[int, str]] = {}
    names: dict[RowName, None] = {}
    for record in used:
        side = (record.arm, record.aa)
        silent.setdefault(side, {})
        if record.status is not Status.OK:
            silent[side][record.block] = record.reason or "the trial failed"
            continue
        paired = record.fold is Fold.PAIRED
        for row in record.rows:
            name = (row.workload, row.metric)
            names.setdefault(name)
            key = (side, name)
            if row.status is not Status.OK or not row.values:
                lost.setdefault(key, {})[record.block] = row.reason or "no values"
                continue
            into = gathered.get(key)
            if into is None:
                into = gathered[key] = _Gathered(first=row)
            into.blocks.append(record.block)
            into.rows.append(row)
            into.paired.append(paired)
    series: dict[tuple[Side, RowName], Series] = {}
    for key, g in gathered.items():
        series[key], bad = _series(g)
        for block in bad:
            lost.setdefault(key, {})[block] = "a value is not positive or not finite"
    return series, lost, silent, tuple(names)


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


def _failures(folded: Folded, env: Side, base: Side, row: RowName) -> Counter[str]:
    """Blocks in which this row failed on either side, by reason; a block counts once."""
    out: Counter[str] = Counter()
    counted: set[int] = set()
    for side in (env, base):
        present = folded.series.get((side, row))
        have = set(present.blocks.tolist()) if present is not None else set()
        if len(have) == len(folded.blocks):
            continue
        reasons = folded.lost.get((side, row), {})
        trial = folded.silent.get(side, {})
        for block in folded.blocks:
            if block not in have and block not in counted:
                counted.add(block)
                out[reasons.get(block) or trial.get(block) or "the row is missing"] += 1
    return out
