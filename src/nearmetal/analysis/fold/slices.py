"""Collects the slices of one side of a piece of a run trial by trial, and makes tables of them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct

import numpy as np

from ...model.record import Fold, Row, Status, TrialRecord
from ...model.study import Better
from .counts import BoolArray, FloatArray, IntArray

RowName = tuple[str, str]
"""Workload and metric."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """One metric of one side.

    values, logs: shape (n, widest); nan after the last slice of a block.
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

    seconds, parts: as long as the values if every row has them.
    """

    def __init__(self, row: Row) -> None:
        self.workload, self.metric = row.workload, row.metric
        self.unit, self.better = row.unit, row.better
        self.blocks, self.lengths = array("q"), array("q")
        self.values, self.seconds = array("d"), array("d")
        self.parts: dict[str, array[float]] = {}


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

    def add(self, record: TrialRecord) -> None:
        """Add a trial that did not fail.

        This is done for every row of every trial; most rows have the same position as in the trial before.
        """
        block, usual = record.block, self._usual
        if record.fold is Fold.PAIRED:
            self.paired.add(block)
        for at, row in enumerate(record.rows):
            column = usual[at] if at < len(usual) else None
            if column is None or column.metric != row.metric or column.workload != row.workload:
                column = self._column(row)
                usual[at:] = [column]
            values = row.values
            if row.status is not Status.OK or not values:
                lost = self.lost.setdefault((row.workload, row.metric), {})
                lost[block] = row.reason or "no values"
                continue
            column.blocks.append(block)
            column.lengths.append(len(values))
            column.values.frombytes(_packed(values))
            if row.seconds:
                column.seconds.frombytes(_packed(row.seconds))
            for kind, part in row.parts.items():
                if kind not in column.parts:
                    column.parts[kind] = array("d")
                column.parts[kind].frombytes(_packed(part))

    def _column(self, row: Row) -> Column:
        name = row.workload, row.metric
        if name not in self.columns:
            self.columns[name] = Column(row)
        return self.columns[name]


def _packed(numbers: Sequence[float]) -> bytes:
    """Return the numbers as doubles. array.extend converts each number three times slower."""
    return _doubles(len(numbers)).pack(*numbers)


@cache
def _doubles(length: int) -> Struct:
    return Struct(f"{length}d")


def as_slices(column: Column, paired: Collection[int]) -> tuple[Slices, list[int]]:
    """Return the usable rows as arrays, and the blocks of the failed rows: a value is <= 0 or not finite."""
    lengths = np.array(column.lengths, dtype=np.int64)
    inside = np.arange(int(lengths.max())) < lengths[:, None]
    values = _table(column.values, inside)
    good = np.all(~inside | ((values > 0) & np.isfinite(values)), axis=1)
    own_seconds = column.unit == "s" and column.better is Better.LOWER
    if own_seconds and not column.seconds:
        seconds: FloatArray | None = values
    else:
        seconds = _if_whole(column.seconds, inside)
    if seconds is not None and not bool(np.all(~inside[good] | (seconds[good] > 0))):
        seconds = None
    parts = {kind: _if_whole(column.parts[kind], inside) for kind in sorted(column.parts)}
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


def _if_whole(numbers: array[float], inside: BoolArray) -> FloatArray | None:
    """Return a table of the numbers if every row has them and all are finite, else None."""
    if len(numbers) != int(np.sum(inside)):
        return None
    table = _table(numbers, inside)
    return table if bool(np.all(~inside | np.isfinite(table))) else None


def _table(numbers: array[float], inside: BoolArray) -> FloatArray:
    """Return a table of concatenated rows of unequal lengths, with nan after the end of each row.

    inside: shape (n, widest), True where the table has numbers.
    """
    table = np.full(inside.shape, np.nan)
    table[inside] = np.frombuffer(numbers, dtype=np.float64)
    return table


def row_medians(table: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the median of the first lengths[i] >= 1 entries of each row i of a table, shape (n, widest)."""
    out = np.empty(table.shape[0])
    for length in np.unique(lengths).tolist():
        rows = lengths == length
        ordered = np.sort(table[rows, :length], axis=1)
        out[rows] = 0.5 * (ordered[:, (length - 1) // 2] + ordered[:, length // 2])
    return out
