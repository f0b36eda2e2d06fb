"""The slices of one side of a comparison as arrays, one row per block."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...model.study import Better
from .columns import Column, row_sums
from .counts import BoolArray, FloatArray, IntArray


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
        second_sums = row_sums(timed, lengths)[good]
        work_sums = row_sums(_work(column.better, timed, column.values), lengths)[good]
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
