"""Collects the slices of one side of a comparison, trial by trial, and converts them to arrays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Slices:
    """One metric of one side in n blocks. `widest` is the largest number of slices of a block.

    These arrays have shape (n, widest), with nan after the last slice of a block:

    values, logs: the values and their natural logarithms.
    seconds: seconds of each slice; None unless every block has them.
    parts: seconds of each slice by kind of part (model.record.Row.parts); only kinds that every block has. A
        kind that is constant in each block has shape (n, 1).

    These arrays have shape (n,):

    blocks: block numbers, ascending.
    lengths: number of slices.
    paired: whether the slices may be paired with those of other arms.
    middles, middle_seconds: medians of the values and of the seconds; nan if unknown.
    second_sums, work_sums: sums of the seconds and of the work; nan if unknown.
    """

    unit: str
    better: Better
    blocks: IntArray
    values: FloatArray
    logs: FloatArray
    lengths: IntArray
    paired: BoolArray
    middles: FloatArray
    middle_seconds: FloatArray
    second_sums: FloatArray
    work_sums: FloatArray
    seconds: FloatArray | None
    parts: Mapping[str, FloatArray]

    @cached_property
    def work(self) -> FloatArray:
        """Return the work of each slice, from its seconds: a rate is work per second, a latency is seconds
        per unit of work.
        """
        assert self.seconds is not None
        return _work(self.better, self.seconds, self.values)

    @cached_property
    def time(self) -> FloatArray:
        """Return the seconds of each slice per unit of work."""
        assert self.seconds is not None
        return self.seconds / self.work

    def is_absent(self, kind: str) -> bool:
        """Return whether no slice spends time on this kind of part."""
        part = self.parts.get(kind)
        return part is None or not bool(part.any())

    def part_time(self, kind: str) -> FloatArray:
        """Return the seconds that this kind of part takes in each slice, per unit of work; 0 if the side does
        not have it."""
        if kind not in self._part_times:
            part = self.parts.get(kind)
            self._part_times[kind] = np.zeros_like(self.work) if part is None else part / self.work
        return self._part_times[kind]

    @cached_property
    def _part_times(self) -> dict[str, FloatArray]:
        return {}


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
        self.sums = _row_sums(self.seconds, lengths[timed]) if bool(timed.any()) else np.empty(0)
        self.value_sums = _row_sums(self.values, lengths) if self.metric == _WALL else np.empty(0)
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


def _row_sums(numbers: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the sum of each of these concatenated rows. Every length is at least 1."""
    return np.add.reduceat(numbers, np.cumsum(lengths) - lengths)


def as_slices(column: Column, paired: Collection[int]) -> tuple[Slices, list[int]]:
    """Return the usable rows as arrays, and the blocks of the other rows, in which a value is not positive or
    not finite.

    paired: blocks whose slices may be paired with those of other arms.

    Raises NotPlain if stored numbers are corrupt.
    """
    lengths = column.lengths
    inside = _inside(lengths)
    values = _table(column.values, lengths, inside)
    whole = _positive(column.values)
    if whole:
        good = np.ones(lengths.size, dtype=np.bool_)
    else:
        good = np.all(_or_outside((values > 0) & (values < math.inf), inside), axis=1)

    def kept(table: FloatArray) -> FloatArray:
        return table if whole else table[good]

    own_seconds = column.unit == "s" and column.better is Better.LOWER and not column.seconds.size
    timed = column.values if own_seconds else column.seconds
    seconds = values if own_seconds else _if_whole(timed, lengths, inside)
    if seconds is not None and not (whole and (seconds is values or _positive(timed))):
        seconds = kept(seconds)
        if not bool(np.all(_or_outside(seconds > 0, inside if inside is None else inside[good]))):
            seconds = None
    ones = np.ones_like(lengths)
    parts = {
        kind: _if_whole(numbers, ones, None) if once else _if_whole(numbers, lengths, inside)
        for kind, (numbers, once) in column.parts().items()
    }
    blocks = np.array(column.blocks, dtype=np.int64)
    usable, own_lengths = kept(values), lengths[good]
    middle_seconds = second_sums = work_sums = np.full(own_lengths.size, math.nan)
    if seconds is None:
        middles = row_medians(usable, own_lengths)
    else:
        second_sums = _row_sums(timed, lengths)[good]
        work_sums = _row_sums(_work(column.better, timed, column.values), lengths)[good]
        middle_two = row_middles(seconds, own_lengths)
        middle_seconds = 0.5 * (middle_two[0] + middle_two[1])
        if own_seconds:
            middles = middle_seconds
        elif column.has_no_values:  # values are in the order of their seconds, or in the opposite order
            work, (a, b) = column.work[good], middle_two
            middles = 0.5 * (work / a + work / b if column.better is Better.HIGHER else a / work + b / work)
        else:
            middles = row_medians(usable, own_lengths)
    found = Slices(
        unit=column.unit,
        better=column.better,
        blocks=blocks[good],
        values=usable,
        logs=np.log(usable),
        lengths=own_lengths,
        paired=np.array([block in paired for block in column.blocks], dtype=np.bool_)[good],
        middles=middles,
        middle_seconds=middle_seconds,
        second_sums=second_sums,
        work_sums=work_sums,
        seconds=seconds,
        parts={kind: kept(table) for kind, table in parts.items() if table is not None},
    )
    return found, blocks[~good].tolist()


def _positive(numbers: FloatArray) -> bool:
    """Return whether all numbers are > 0 and finite."""
    return bool(numbers.min() > 0 and numbers.max() < math.inf)


def _inside(lengths: IntArray) -> BoolArray | None:
    """Return which entries of a table with rows of these lengths hold a number, shape (n, widest); None if
    all do."""
    widest = int(lengths.max())
    return None if int(lengths.min()) == widest else np.arange(widest) < lengths[:, None]


def _or_outside(found: BoolArray, inside: BoolArray | None) -> BoolArray:
    return found if inside is None else found | ~inside


def _if_whole(numbers: FloatArray, lengths: IntArray, inside: BoolArray | None) -> FloatArray | None:
    """Return a table of the numbers if every row has them and all are finite, else None."""
    if numbers.size != int(lengths.sum()) or not bool(np.isfinite(numbers).all()):
        return None
    return _table(numbers, lengths, inside)


def _table(numbers: FloatArray, lengths: IntArray, inside: BoolArray | None) -> FloatArray:
    """Return a table of concatenated rows, with nan after the end of each row.

    inside: see _inside().
    """
    if inside is None:
        return numbers.reshape(lengths.size, -1)
    table = np.full(inside.shape, np.nan)
    table[inside] = numbers
    return table


def row_medians(table: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the median of each row of a table, shape (n, widest).

    lengths: number of entries of each row, at least 1; nan follows them.
    """
    low, high = row_middles(table, lengths)
    return 0.5 * (low + high)


def row_middles(table: FloatArray, lengths: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the lower and the upper of the two middle entries of each row, once it is sorted. Both are the
    same entry if the row has an odd number of entries.

    table, lengths: as in row_medians().
    """
    ordered = np.sort(table, axis=1)  # nan stays at the end
    rows = np.arange(lengths.size)
    return ordered[rows, (lengths - 1) // 2], ordered[rows, lengths // 2]


def _work(better: Better, seconds: FloatArray, values: FloatArray) -> FloatArray:
    """Return the work of each slice: a rate is work per second, a latency is seconds per unit of work."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # bad rows are not used
        return seconds * values if better is Better.HIGHER else seconds / values
