"""Folds a number of whole blocks of a run (a piece) from records to one value per block.

The replicate is the instance: its slices or runs are folded to one value before any statistic is computed.
Whatever needs slices is therefore computed block by block. A long run is folded piece by piece, possibly by
several processes, and comparisons.py joins the pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...model.plan import draw
from ...model.record import STEP, Row, RowData, Status, TrialData, TrialRecord
from ...model.study import Better, Study, quantiles_of
from ..intervals.variance_components import group_moments
from .attempts import Side
from .columns import RowName, SideRows
from .counts import BoolArray, Counts, CountsBuilder, FloatArray, IntArray
from .numbers import NotPlain
from .slices import Slices, as_slices, row_medians

TOTAL, REST = "total", "outside of comm"
"""Names of two shares of extra time: the total, and the part outside MPI calls."""


@dataclass(frozen=True, kw_only=True)
class FoldRequest:
    """The values that the analysis needs from a run.

    comparisons: the sides to compare, (environment, baseline), including each baseline with its own second
        run.
    quantiles: the metrics that need quantiles, by workload.
    seed: seed of the study, for drawing values.
    detail: whether to compute values that no verdict needs.
    """

    comparisons: tuple[tuple[Side, Side], ...]
    quantiles: Mapping[str, frozenset[str]]
    seed: int
    detail: bool


def fold_request(study: Study, *, detail: bool = True) -> FoldRequest:
    """Return the request by which fold() keeps the values that analysis.conclude() needs."""
    pairs = [((c.arm, False), (c.baseline, False)) for c in study.comparisons()]
    twins = [((arm.name, True), (arm.name, False)) for arm in study.arms()]
    return FoldRequest(
        comparisons=(*twins, *pairs),
        quantiles=quantiles_of(study.workloads),
        seed=study.design.seed,
        detail=detail,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One metric of one side over the blocks that have a usable value; every array has shape (n,).

    blocks: block numbers, ascending.
    middles: median of the instance's slices in each block.
    seconds: seconds of all slices; nan if unknown.
    work: work of all slices, in a unit that both sides of a comparison share; nan if unknown.
    drawn: the value of one slice of each block, drawn at random; empty if no quantiles are needed.
    """

    unit: str
    better: Better
    blocks: IntArray
    middles: FloatArray
    seconds: FloatArray
    work: FloatArray
    drawn: FloatArray


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One comparison of one row over the blocks that both sides have; every array has shape (n,).

    blocks: block numbers, ascending.
    alike: whether the two sides can be compared: they measure in the same unit, and paired slices are equally
        many on both sides.
    lengths: number of slices of the environment.
    d: s ln(x_env / x_base): the median over paired slices, otherwise computed from the medians of both sides;
        nan if not alike.
    env_values, base_values: medians of the slices of each side.
    difference: env - base in base units, computed like d.
    centres, variances: mean and variance of the log ratios of paired slices; nan for fewer than two.
    env_slice, base_slice: median seconds of a slice; nan if unknown.
    shares: extra time by kind of part (record.Row.parts), TOTAL and REST, in shares of the baseline's time
        for the same work; only kinds that every block has.

    The fields from difference to shares are empty if no detail was requested.
    """

    blocks: IntArray
    alike: BoolArray
    lengths: IntArray
    d: FloatArray
    env_values: FloatArray
    base_values: FloatArray
    difference: FloatArray
    centres: FloatArray
    variances: FloatArray
    env_slice: FloatArray
    base_slice: FloatArray
    shares: Mapping[str, FloatArray]

    def where(self, kept: BoolArray | IntArray) -> Compared:
        """Return the same comparison with only some of its blocks."""
        arrays: dict[str, Any] = {
            name: value[kept] if value.size else value
            for name, value in vars(self).items()
            if name != "shares"
        }
        return Compared(**arrays, shares={kind: x[kept] for kind, x in self.shares.items()})


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The folded values of a number of whole blocks of a run.

    A side is an arm together with whether it is the second run of the first baseline.

    rows: (workload, metric) of every row, in order of appearance.
    measured: metrics by side and row.
    compared: comparisons by environment, baseline and row.
    counts: counters of trials, by side.
    lost: by side, row and block, the reason why a row has no usable value.
    silent: by side and block, the reason why a trial failed as a whole.
    left_out: by side and workload, the blocks from which the workload was left out on purpose.
    verified: by side, workload and block, whether the results were right; only blocks with a verification.
    wrong: number of trials that did not fail but whose results were wrong.
    """

    rows: tuple[RowName, ...]
    measured: dict[tuple[Side, RowName], Measured]
    compared: dict[tuple[Side, Side, RowName], Compared]
    counts: dict[Side, Counts]
    lost: Mapping[tuple[Side, RowName], Mapping[int, str]]
    silent: Mapping[Side, Mapping[int, str]]
    left_out: Mapping[tuple[Side, str], frozenset[int]]
    verified: Mapping[tuple[Side, str], Mapping[int, bool]]
    wrong: int


class Stored(Protocol):
    """The interface of records.StoredLines that this module uses: lines of trials files that are decoded on
    demand."""

    def data(self) -> Iterable[TrialData]: ...
    def records(self) -> Iterable[TrialRecord]: ...


def fold_stored(request: FoldRequest, used: Stored, others: Stored) -> Piece:
    """Fold the trials of stored lines. See fold_piece().

    The numbers of many rows are parsed at once. If some are corrupt, or not stored as nearmetal stores them,
    the lines are decoded one by one, which reports a corrupt line.
    """
    try:
        return fold_piece(request, used.data(), others.data())
    except NotPlain:
        return fold_piece(request, used.records(), others.records())


def fold_piece(
    request: FoldRequest,
    used: Iterable[TrialRecord | TrialData],
    others: Iterable[TrialRecord | TrialData] = (),
) -> Piece:
    """Fold whole blocks to one value per block. No reference to a record is kept.

    used: the trials of these blocks that count, in ascending order of blocks.
    others: trials that do not count. They are only searched for wrong results.

    Raises NotPlain if numbers of a TrialData cannot be used as they are; see fold_stored().
    """
    rows: dict[Side, SideRows] = {}
    builders: dict[Side, CountsBuilder] = {}
    silent: dict[Side, dict[int, str]] = {}
    left_out: dict[tuple[Side, str], set[int]] = {}
    verified: dict[tuple[Side, str], dict[int, bool]] = {}
    wrong = 0
    for record in used:
        side = record.arm, record.aa
        if side not in rows:
            rows[side], builders[side] = SideRows(), CountsBuilder()
        for workload in record.left_out:
            left_out.setdefault((side, workload), set()).add(record.block)
        checked = [row for row in record.rows if row.verification]
        if record.status is Status.OK:
            rows[side].add(record)
            wrong += _is_wrong(checked)
        else:
            silent.setdefault(side, {})[record.block] = record.reason or "the trial failed"
        for row in checked:
            ok = row.verification.get("ok")
            if isinstance(ok, bool):
                of_workload = verified.setdefault((side, row.workload), {})
                of_workload[record.block] = ok and of_workload.get(record.block, True)
        builders[side].add(record)
    wrong += sum(r.status is Status.OK and _is_wrong(r.rows) for r in others)
    lost = {
        (side, row): reasons for side, collected in rows.items() for row, reasons in collected.lost.items()
    }
    names = dict.fromkeys(name for collected in rows.values() for name in collected.columns)
    measured: dict[tuple[Side, RowName], Measured] = {}
    compared: dict[tuple[Side, Side, RowName], Compared] = {}
    for name in names:  # row by row, so that only the slices of one metric are in memory
        slices: dict[Side, Slices] = {}
        for side, collected in rows.items():
            column = collected.columns.get(name)
            if column is None or not column.blocks:
                continue
            slices[side], bad = as_slices(column, collected.paired)
            column.close()
            for block in bad:
                reasons = lost.setdefault((side, name), {})
                reasons[block] = "a value is not positive or not finite"
            if slices[side].blocks.size:
                measured[side, name] = _measured(request, (side, name), slices[side])
        for (env, base), found in _comparisons(request, slices):
            compared[env, base, name] = found
    return Piece(
        rows=tuple(names),
        measured=measured,
        compared=compared,
        counts={side: b.counts(rows[side].counted(b.blocks)) for side, b in builders.items()},
        lost=lost,
        silent=silent,
        left_out={key: frozenset(blocks) for key, blocks in left_out.items()},
        verified=verified,
        wrong=wrong,
    )


def _is_wrong(rows: Iterable[Row | RowData]) -> bool:
    """Return whether any of these rows failed its verification."""
    return any(row.verification and row.verification.get("ok") is False for row in rows)


def _measured(request: FoldRequest, key: tuple[Side, RowName], s: Slices) -> Measured:
    side, row = key
    quantiles = request.detail and row[1] in request.quantiles.get(row[0], ())
    return Measured(
        unit=s.unit,
        better=s.better,
        blocks=s.blocks,
        middles=s.middles,
        seconds=s.second_sums,
        work=s.work_sums,
        drawn=_one_of_each_block(s, side, row, request.seed) if quantiles else np.empty(0),
    )


def _one_of_each_block(s: Slices, side: Side, row: RowName, seed: int) -> FloatArray:
    """Return the value of one random slice of each block, shape (blocks,).

    The draw depends on the seed, the block, the side and the row only, never on values.

    Values of the same block are correlated. If all of them were used, the sample would seem larger than it
    is. If the median of each block were used, the tail would be hidden.
    """
    name = f"{side[0]}{'.aa' if side[1] else ''} {'.'.join(row)}"
    drawn = [
        int.from_bytes(draw("value", seed, block, name)[:8], "big") % length
        for block, length in zip(s.blocks.tolist(), s.lengths.tolist(), strict=True)
    ]
    out: FloatArray = s.values[np.arange(len(drawn)), drawn]
    return out


def _comparisons(
    request: FoldRequest, slices: Mapping[Side, Slices]
) -> Iterable[tuple[tuple[Side, Side], Compared]]:
    """Yield the requested comparisons of one row, by (environment, baseline)."""
    for env, base in request.comparisons:
        e, b = slices.get(env), slices.get(base)
        if e is None or b is None:
            continue
        found = _compare(e, b, detail=request.detail)
        if found is not None:
            yield (env, base), found


def _compare(e: Slices, b: Slices, *, detail: bool) -> Compared | None:
    """Compare two sides in one row. Returns None if they have no block in common."""
    blocks, ie, ib = np.intersect1d(e.blocks, b.blocks, assume_unique=True, return_indices=True)
    n = blocks.size
    if n == 0:
        return None
    together = e.paired[ie] & b.paired[ib]
    lengths = e.lengths[ie]
    alike = ~together | (lengths == b.lengths[ib])
    if (e.unit, e.better) != (b.unit, b.better):
        alike[:] = False
    side_by_side = together & alike
    width = min(e.values.shape[1], b.values.shape[1])
    pe, pb, own = ie[side_by_side], ib[side_by_side], lengths[side_by_side]
    env_values, base_values = e.middles[ie], b.middles[ib]
    d = np.log(env_values) - np.log(base_values)
    ratios = _rows(e.logs, pe, width) - _rows(b.logs, pb, width)
    d[side_by_side] = row_medians(ratios, own)
    d[~alike] = math.nan
    difference = centres = variances = env_slice = base_slice = np.empty(0)
    shares: dict[str, FloatArray] = {}
    if detail:
        difference = env_values - base_values
        apart = _rows(e.values, pe, width) - _rows(b.values, pb, width)
        difference[side_by_side] = row_medians(apart, own)
        centres, variances = np.full(n, math.nan), np.full(n, math.nan)
        centres[side_by_side], variances[side_by_side] = group_moments(ratios, own)
        env_slice, base_slice = e.middle_seconds[ie], b.middle_seconds[ib]
        shares = _shares(e, b, ie, ib, side_by_side)
    return Compared(
        blocks=blocks,
        alike=alike,
        lengths=lengths,
        d=(1.0 if e.better is Better.LOWER else -1.0) * d,
        env_values=env_values,
        base_values=base_values,
        difference=difference,
        centres=centres,
        variances=variances,
        env_slice=env_slice,
        base_slice=base_slice,
        shares=shares,
    )


def _rows(table: FloatArray, at: IntArray, width: int) -> FloatArray:
    """Return the rows with these indexes, cut to a width. If these are all rows in order, none is copied."""
    whole = at.size == table.shape[0] and bool(np.all(at == np.arange(at.size)))
    return table[:, :width] if whole else table[at, :width]


def _shares(e: Slices, b: Slices, ie: IntArray, ib: IntArray, together: BoolArray) -> dict[str, FloatArray]:
    """Return the extra time by part, in shares of the baseline's seconds; empty if a side lacks seconds or
    parts.

    All times are per unit of work, because a slice may hold less work over a slower transport.
    """
    steps = sorted({k for side in (e, b) for k in side.parts if k.startswith(STEP)})
    kinds = steps or [k for k in e.parts if k in b.parts]
    if e.seconds is None or b.seconds is None or not kinds:
        return {}
    width = min(e.seconds.shape[1], b.seconds.shape[1])
    apart = ~together
    pe, pb, own = ie[together], ib[together], e.lengths[ie[together]]
    whole = _rows(b.time, pb, width)
    alone = row_medians(b.time[ib[apart]], b.lengths[ib[apart]])

    def share(env_time: FloatArray, base_time: FloatArray) -> FloatArray:
        """Return the extra time of a part as a fraction of the baseline's whole time, by block: the median
        over paired slices, otherwise computed from the medians of both sides.

        env_time, base_time: seconds of the part per unit of work, shaped like the values of each side.
        """
        out = np.empty(ie.size)
        if bool(np.any(apart)):
            ours = row_medians(env_time[ie[apart]], e.lengths[ie[apart]])
            theirs = row_medians(base_time[ib[apart]], b.lengths[ib[apart]])
            out[apart] = (ours - theirs) / alone
        slices = (_rows(env_time, pe, width) - _rows(base_time, pb, width)) / whole
        out[together] = row_medians(slices, own)
        return out

    out = {TOTAL: share(e.time, b.time)}
    absent = {k for k in kinds if e.is_absent(k) and b.is_absent(k)}
    for kind in kinds:
        out[kind] = np.zeros(ie.size) if kind in absent else share(e.part_time(kind), b.part_time(kind))
    if "comm" in absent:
        out[REST] = out[TOTAL]
    elif "comm" in kinds:
        out[REST] = share(e.time - e.part_time("comm"), b.time - b.part_time("comm"))
    return out
