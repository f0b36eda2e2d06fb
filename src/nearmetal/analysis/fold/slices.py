"""Collects the slices of one side of a piece of a run trial by trial, and makes tables of them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct

import numpy as np

from ...model.record import Fold, Row, Status, TrialData, TrialRecord
from ...model.study import Better
from .counts import BoolArray, FloatArray, IntArray

RowName = tuple[str, str]
"""Workload and metric."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """One metric of one side.

    values, logs: the values and their natural logarithms, shape (n, widest); nan after the last slice of a
        block.
    seconds, parts: shaped like values if every block has them, else None or missing.

    All other arrays have shape (n,).
    """

    unit: str
    better: Better
    blocks: IntArray
    values: FloatArray
    logs: FloatArray
    lengths: IntArray
    paired: BoolArray
    middles: FloatArray
    seconds: FloatArray | None
    parts: Mapping[str, FloatArray]

    @property
    def work(self) -> FloatArray:
        """Return the work of each slice, from its seconds: a rate is work per second, a latency is seconds
        per unit of work.
        """
        assert self.seconds is not None
        return self.seconds * self.values if self.better is Better.HIGHER else self.seconds / self.values


class Column:
    """Collects the usable rows of one metric of one side, with the values of all rows concatenated.

    values: of a row that is stored without values, its seconds, from which as_slices() computes them.
    works: by row, the work of each slice if the row is stored without values, else 0.
    seconds, parts: as long as the values if every row has them.
    timed: by row, whether it has seconds (_TIMED), and whether they are the first of its workload in the
        trial with these seconds (_COUNTED).
    """

    def __init__(self, row: Row) -> None:
        self.workload, self.metric = row.workload, row.metric
        self.unit, self.better = row.unit, row.better
        self.blocks, self.lengths = array("q"), array("q")
        self.values, self.seconds, self.works = array("d"), array("d"), array("d")
        self.parts: dict[str, array[float]] = {}
        self.timed = array("b")


_UNTIMED, _TIMED, _COUNTED = 0, 1, 2


class SideRows:
    """Collects the rows of the trials of one side, in the order of blocks.

    columns: by row.
    lost: as in Piece.
    paired: blocks whose slices may be paired.
    """

    def __init__(self) -> None:
        self.columns: dict[RowName, Column] = {}
        self.lost: dict[RowName, dict[int, str]] = {}
        self.paired: set[int] = set()
        self._usual: list[Column] = []

    def add(self, record: TrialRecord | TrialData) -> None:
        """Add a trial that did not fail.

        This is done for every row of every trial; most rows have the same position as in the trial before.
        """
        block, usual = record.block, self._usual
        if record.fold is Fold.PAIRED:
            self.paired.add(block)
        seen: set[tuple[str, tuple[float, ...]]] = set()
        for at, row in enumerate(record.rows):
            column = usual[at] if at < len(usual) else None
            if column is None or column.metric != row.metric or column.workload != row.workload:
                column = self._column(row)
                usual[at:] = [column]
            values, seconds = row.values, row.seconds
            derived = not values and row.work > 0
            if row.status is not Status.OK or not (values or (derived and seconds)):
                lost = self.lost.setdefault((row.workload, row.metric), {})
                lost[block] = row.reason or "no values"
                continue
            column.blocks.append(block)
            count = len(values or seconds)
            column.lengths.append(count)
            column.works.append(row.work if derived else 0.0)
            if values:
                column.values.frombytes(_packed(values))
            if seconds:
                packed = _packed(seconds)
                column.seconds.frombytes(packed)
                if derived:
                    column.values.frombytes(packed)
                key = row.workload, seconds
                column.timed.append(_TIMED if key in seen else _COUNTED)
                seen.add(key)
            else:
                column.timed.append(_UNTIMED)
            for kind, part in row.parts.items():
                if kind not in column.parts:
                    column.parts[kind] = array("d")
                packed = _packed(part)
                column.parts[kind].frombytes(packed if len(part) == count else packed * count)

    def counted(self, blocks: IntArray) -> dict[str, FloatArray]:
        """Return, by workload, the seconds over which its counters ran in each of these blocks.

        This is the wall time of the workload if it was measured, else the sum over its slices; nan if
        unknown. Metrics of the same slices have equal seconds, which are added only once.
        """
        sums: dict[str, FloatArray] = {}
        walls: dict[str, FloatArray] = {}
        for column in self.columns.values():
            timed = np.array(column.timed, dtype=np.int8)
            lengths, own = np.array(column.lengths, dtype=np.int64), np.array(column.blocks, dtype=np.int64)
            first = timed == _COUNTED
            if bool(np.any(first)):
                with_seconds = timed != _UNTIMED
                seconds = _row_sums(_array(column.seconds), lengths[with_seconds])[first[with_seconds]]
                total = sums.setdefault(column.workload, np.full(blocks.size, math.nan))
                at = np.searchsorted(blocks, own[first])
                total[at] = np.where(np.isnan(total[at]), seconds, total[at] + seconds)
            untimed = timed == _UNTIMED
            if column.metric == "wall" and bool(np.any(untimed)):
                wall = walls.setdefault(column.workload, np.full(blocks.size, math.nan))
                wall[np.searchsorted(blocks, own[untimed])] = _row_sums(_array(column.values), lengths)[
                    untimed
                ]
        for workload, wall in walls.items():
            of_slices = sums.get(workload)
            sums[workload] = wall if of_slices is None else np.where(np.isnan(wall), of_slices, wall)
        return sums

    def _column(self, row: Row) -> Column:
        name = row.workload, row.metric
        if name not in self.columns:
            self.columns[name] = Column(row)
        return self.columns[name]


def _array(numbers: array[float]) -> FloatArray:
    return np.frombuffer(numbers, dtype=np.float64)


def _row_sums(numbers: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the sums of concatenated rows of these lengths, each >= 1."""
    return np.add.reduceat(numbers, np.cumsum(lengths) - lengths)


def _packed(numbers: tuple[float, ...]) -> bytes:
    """Return the numbers as doubles. array.extend converts each number three times slower."""
    return _doubles(len(numbers)).pack(*numbers)


@cache
def _doubles(length: int) -> Struct:
    return Struct(f"{length}d")


def as_slices(column: Column, paired: Collection[int]) -> tuple[Slices, list[int]]:
    """Return the usable rows as arrays, and the blocks of the failed rows: a value is <= 0 or not finite."""
    lengths = np.array(column.lengths, dtype=np.int64)
    inside = np.arange(int(lengths.max())) < lengths[:, None]
    values = _table(_values(column, lengths), inside)
    good = np.all(~inside | ((values > 0) & np.isfinite(values)), axis=1)
    own_seconds = column.unit == "s" and column.better is Better.LOWER
    timed = _array(column.seconds)
    seconds = values if own_seconds and not timed.size else _if_whole(timed, inside)
    if seconds is not None and not bool(np.all(~inside[good] | (seconds[good] > 0))):
        seconds = None
    parts = {kind: _if_whole(_array(column.parts[kind]), inside) for kind in sorted(column.parts)}
    blocks = np.array(column.blocks, dtype=np.int64)
    usable = values[good]
    found = Slices(
        unit=column.unit,
        better=column.better,
        blocks=blocks[good],
        values=usable,
        logs=np.log(usable),
        lengths=lengths[good],
        paired=np.array([block in paired for block in column.blocks], dtype=np.bool_)[good],
        middles=row_medians(usable, lengths[good]),
        seconds=None if seconds is None else seconds[good],
        parts={kind: table[good] for kind, table in parts.items() if table is not None},
    )
    return found, blocks[~good].tolist()


def _values(column: Column, lengths: IntArray) -> FloatArray:
    """Return the values of all rows, concatenated. See model.record.slice_value() for rows without values."""
    stored, works = _array(column.values), _array(column.works)
    if not bool(np.any(works)):
        return stored
    work = np.repeat(works, lengths)
    with np.errstate(divide="ignore"):  # as_slices() finds the values that are not finite
        derived = work / stored if column.better is Better.HIGHER else stored / work
    return np.where(work > 0, derived, stored)


def _if_whole(numbers: FloatArray, inside: BoolArray) -> FloatArray | None:
    """Return a table of the numbers if every row has them and all are finite, else None."""
    if numbers.size != int(np.sum(inside)):
        return None
    table = _table(numbers, inside)
    return table if bool(np.all(~inside | np.isfinite(table))) else None


def _table(numbers: FloatArray, inside: BoolArray) -> FloatArray:
    """Return a table of concatenated rows of unequal lengths, with nan after the end of each row.

    inside: shape (n, widest), True where the table has numbers.
    """
    table = np.full(inside.shape, np.nan)
    table[inside] = numbers
    return table


def row_medians(table: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the median of the first lengths[i] >= 1 entries of each row i of a table, shape (n, widest)."""
    out = np.empty(table.shape[0])
    for length in np.unique(lengths).tolist():
        rows = lengths == length
        ordered = np.sort(table[rows, :length], axis=1)
        out[rows] = 0.5 * (ordered[:, (length - 1) // 2] + ordered[:, length // 2])
    return out
