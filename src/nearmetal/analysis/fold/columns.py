"""Collects the rows of one side of a comparison, trial by trial, as one long array per number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...model.record import Fold, Row, RowData, Status, TrialData, TrialRecord
from ...model.study import Better
from .counts import BoolArray, FloatArray, IntArray
from .numbers import NotPlain, Numbers, concatenated

RowName = tuple[str, str]
"""Workload and metric."""


class Column:
    """Collects the usable rows of one metric of one side: one row per block.

    rows: the rows. A row without values has seconds and work, from which its values follow.
    blocks: the block of each row.
    timed: for each row, _UNTIMED if it has no seconds. Otherwise _COUNTED if no earlier row of the same
        workload in the trial has the same seconds, else _TIMED: the same slices must not be counted twice.
    sums: after close(), the sum of the seconds of each row that has seconds.
    value_sums: after close(), the sum of the values of each row; empty unless the metric is the wall time.
    """

    sums: FloatArray
    value_sums: FloatArray

    def __init__(self, row: Row | RowData) -> None:
        self.workload, self.metric = row.workload, row.metric
        self.unit, self.better = row.unit, row.better
        self.rows: list[Row | RowData] = []
        self.blocks, self.timed = array("q"), array("b")

    def close(self) -> None:
        """Compute `sums` and `value_sums`, then drop the rows and their numbers to save memory."""
        lengths, timed = self.lengths, np.array(self.timed) != _UNTIMED
        self.sums = row_sums(self.seconds, lengths[timed]) if bool(timed.any()) else np.empty(0)
        self.value_sums = row_sums(self.values, lengths) if self.metric == _WALL else np.empty(0)
        self.rows = []
        for kept in ("lengths", "values", "work", "seconds", "_numbers", "_timed_numbers", "_derived"):
            self.__dict__.pop(kept, None)

    @cached_property
    def _derived(self) -> BoolArray:
        """Whether each row lacks values, which then follow from its seconds and work; shape (rows,)."""
        empty = _empty(self.rows[0])
        return np.array([len(row.values) <= empty for row in self.rows], dtype=np.bool_)

    @cached_property
    def lengths(self) -> IntArray:
        """Return the number of slices of each row."""
        return self._numbers[1]

    @cached_property
    def values(self) -> FloatArray:
        """Return the values of all rows, concatenated. Missing values are computed as by
        model.record.slice_values()."""
        stored, derived = self._numbers[0], self._derived
        if not bool(derived.any()):
            return stored
        work = _repeated(self.work, self.lengths)
        with np.errstate(divide="ignore", invalid="ignore"):  # as_slices() finds what is not finite
            found = work / stored if self.better is Better.HIGHER else stored / work
        return found if bool(derived.all()) else np.where(np.repeat(derived, self.lengths), found, stored)

    @cached_property
    def work(self) -> FloatArray:
        """Return the work of one slice of each row, shape (rows,); 0 if unknown."""
        return np.array([row.work for row in self.rows])

    @property
    def has_no_values(self) -> bool:
        """Return whether the values of all rows follow from their seconds and work."""
        return bool(self._derived.all())

    @cached_property
    def seconds(self) -> FloatArray:
        """Return the seconds of all rows that have them, concatenated."""
        return self._timed_numbers[0]

    @cached_property
    def _timed_numbers(self) -> tuple[FloatArray, IntArray]:
        """The seconds of all rows that have them, and how many each of these rows has."""
        rows = [row for row, timed in zip(self.rows, self.timed, strict=True) if timed]
        return _seconds_of(rows, [row.ticks or row.seconds for row in rows])

    @cached_property
    def _numbers(self) -> tuple[FloatArray, IntArray]:
        """The numbers of all rows, concatenated, and how many each row has. The numbers of a row are its
        values, or its seconds if it has no values."""
        derived, timed = self._derived, np.array(self.timed) != _UNTIMED
        seconds, timed_lengths = self._timed_numbers
        values, value_lengths = concatenated(
            [row.values for row, without in zip(self.rows, derived.tolist(), strict=True) if not without]
        )
        lengths = np.empty(derived.size, dtype=np.int64)
        lengths[timed] = timed_lengths
        lengths[~derived] = value_lengths
        if not np.array_equal(lengths[timed], timed_lengths):
            raise NotPlain("unequal numbers of values and seconds")
        if bool(derived.all()):
            return seconds, lengths
        if not bool(derived.any()):
            return values, lengths
        numbers = np.empty(int(lengths.sum()))
        without = np.repeat(derived, lengths)
        numbers[without] = seconds[np.repeat(derived[timed], timed_lengths)]
        numbers[~without] = values
        return numbers, lengths

    def parts(self) -> dict[str, tuple[FloatArray, bool]]:
        """Return, by kind of part, its seconds in all rows, concatenated, and whether each row has only one
        number, which holds for all of its slices. Kinds that a row lacks are left out.

        Raises NotPlain if the numbers of parts and values of a row do not agree.
        """
        out: dict[str, tuple[FloatArray, bool]] = {}
        ticks, parts = [row.part_ticks for row in self.rows], [row.parts for row in self.rows]
        for kind in sorted(set[str]().union(*ticks, *parts)):
            found = [a[kind] if kind in a else b.get(kind) for a, b in zip(ticks, parts, strict=True)]
            at = [i for i, part in enumerate(found) if part is not None]
            rows = [self.rows[i] for i in at]
            numbers, stored = _seconds_of(rows, [part for part in found if part is not None])
            wanted = self.lengths[at]
            once = bool(np.all(stored == 1))
            if not once and not np.array_equal(stored, wanted):
                if not bool(np.all((stored == wanted) | (stored == 1))):
                    raise NotPlain("unequal numbers of values and parts")
                numbers = np.repeat(numbers, np.repeat(np.where(stored == wanted, 1, wanted), stored))
            if len(rows) == len(self.rows):
                out[kind] = numbers, once
        return out


def _seconds_of(rows: Sequence[Row | RowData], numbers: Sequence[Numbers]) -> tuple[FloatArray, IntArray]:
    """Convert numbers of these rows to seconds. Return all seconds, concatenated, and how many each row has.

    numbers: seconds or ticks of each row; see model.record.Row.ticks_per_second.
    """
    found, lengths = concatenated(numbers)
    rates = np.array([row.ticks_per_second for row in rows], dtype=np.int64)
    if not bool(rates.all()):
        if any(row.ticks or row.part_ticks for row in rows if not row.ticks_per_second):
            raise NotPlain("ticks without ticks_per_second")
        if not bool(rates.any()):
            return found, lengths
    return found / _repeated(np.maximum(rates, 1), lengths), lengths


def _repeated(numbers: NDArray[Any], lengths: IntArray) -> NDArray[Any]:
    """Repeat the number of each row for each of its slices. Returns a single number if all are the same.

    lengths: number of slices of each row.
    """
    first = numbers[:1]
    return first if bool(np.all(numbers == first)) else np.repeat(numbers, lengths)


def _empty(row: Row | RowData) -> int:
    """Return the length of `values` or `seconds` of this kind of row if they contain no number: 0 for a
    tuple, or the length of the text '[]'. Any longer value contains a number."""
    return len("[]") if isinstance(row, RowData) else 0


_UNTIMED, _TIMED, _COUNTED = 0, 1, 2
_WALL = "wall"


class SideRows:
    """Collects the rows of the trials of one side, in the order of blocks.

    columns: by (workload, metric).
    lost: by (workload, metric) and block, the reason why the row has no usable value.
    paired: blocks whose slices may be paired with those of other arms.
    """

    def __init__(self) -> None:
        self.columns: dict[RowName, Column] = {}
        self.lost: dict[RowName, dict[int, str]] = {}
        self.paired: set[int] = set()
        self._usual: list[Column] = []

    def add(self, record: TrialRecord | TrialData) -> None:
        """Add a trial that did not fail.

        Most rows have the same position as in the trial before, so the column at this position is tried
        first. This loop runs for every row of every trial.
        """
        block, usual = record.block, self._usual
        if record.fold is Fold.PAIRED:
            self.paired.add(block)
        rows: Sequence[Row | RowData] = record.rows
        empty = _empty(rows[0]) if rows else 0
        seen: dict[str, list[Numbers]] = {}
        for at, row in enumerate(rows):
            column = usual[at] if at < len(usual) else None
            if column is None or column.metric != row.metric or column.workload != row.workload:
                column = self._column(row)
                usual[at:] = [column]
            has_values, has_seconds = len(row.values) > empty, len(row.seconds) > empty
            if row.ticks:
                if has_seconds:
                    raise NotPlain("both ticks and seconds")
                has_seconds = True
            derived = not has_values and row.work > 0
            if row.status is not Status.OK or not (has_values or (derived and has_seconds)):
                lost = self.lost.setdefault((row.workload, row.metric), {})
                lost[block] = row.reason or "no values"
                continue
            timed = _UNTIMED
            if has_seconds:
                seconds, of_workload = row.ticks or row.seconds, seen.setdefault(row.workload, [])
                timed = _TIMED if seconds in of_workload else _COUNTED
                of_workload.append(seconds)
            column.rows.append(row)
            column.blocks.append(block)
            column.timed.append(timed)

    def counted(self, blocks: IntArray) -> dict[str, FloatArray]:
        """Return, by workload, the seconds over which its counters ran in each of these blocks; nan if
        unknown. All columns must be closed.

        The seconds are the wall time of the workload if it was measured, otherwise the sum over its slices.
        Metrics of the same slices have equal seconds, which are added only once.
        """
        sums: dict[str, FloatArray] = {}
        walls: dict[str, FloatArray] = {}
        for column in self.columns.values():
            timed = np.array(column.timed, dtype=np.int8)
            own = np.array(column.blocks, dtype=np.int64)
            first = timed == _COUNTED
            if bool(np.any(first)):
                seconds = column.sums[first[timed != _UNTIMED]]
                total = sums.setdefault(column.workload, np.full(blocks.size, math.nan))
                at = np.searchsorted(blocks, own[first])
                total[at] = np.where(np.isnan(total[at]), seconds, total[at] + seconds)
            untimed = timed == _UNTIMED
            if column.metric == _WALL and bool(np.any(untimed)):
                wall = walls.setdefault(column.workload, np.full(blocks.size, math.nan))
                wall[np.searchsorted(blocks, own[untimed])] = column.value_sums[untimed]
        for workload, wall in walls.items():
            of_slices = sums.get(workload)
            sums[workload] = wall if of_slices is None else np.where(np.isnan(wall), of_slices, wall)
        return sums

    def _column(self, row: Row | RowData) -> Column:
        name = row.workload, row.metric
        if name not in self.columns:
            self.columns[name] = Column(row)
        return self.columns[name]


def row_sums(numbers: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the sum of each row.

    numbers: all rows, concatenated.
    lengths: number of values in each row, at least 1.
    """
    return np.add.reduceat(numbers, np.cumsum(lengths) - lengths)
