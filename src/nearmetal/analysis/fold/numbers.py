"""Parses the numbers of many rows at once, from the JSON text in which records store them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Numbers = tuple[float, ...] | msgspec.Raw
"""The numbers of a row: read already, or an array as JSON text."""

_COMMA, _OPEN, _CLOSE, _ZERO = b",[]0"
_WORD = 8
"""Digits that are converted at once, in 64 bits."""
_PAIRS, _FOURS = 0x0F0F0F0F0F0F0F0F, 0x00FF00FF00FF00FF
_EIGHT = 0x0000FFFF0000FFFF
_lists = msgspec.json.Decoder(list[tuple[float, ...]])


class NotPlain(ValueError):
    """Rows whose numbers are not stored as nearmetal stores them, or are corrupt. They have to be read record
    by record."""


def concatenated(rows: Sequence[Numbers]) -> tuple[FloatArray, IntArray]:
    """Return the numbers of all rows, one after the other, and how many each row has.

    Raises NotPlain if a text is no array of numbers, or an empty one.
    """
    if not rows:
        return np.empty(0), np.empty(0, dtype=np.int64)
    if isinstance(rows[0], tuple):
        return _of_tuples(cast("Sequence[tuple[float, ...]]", rows))
    texts = cast("Sequence[msgspec.Raw]", rows)
    found = _whole_numbers(b"".join(texts), len(texts))
    if found is not None:
        return found
    try:
        return _of_tuples(_lists.decode(b"[" + b",".join(texts) + b"]"))
    except ValueError as e:  # includes msgspec.DecodeError
        raise NotPlain(str(e)) from e


def _of_tuples(rows: Sequence[tuple[float, ...]]) -> tuple[FloatArray, IntArray]:
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    if not bool(lengths.all()):
        raise NotPlain("no numbers")
    # struct converts a number in a third of the time that numpy needs.
    packed = struct.pack(f"{int(lengths.sum())}d", *chain.from_iterable(rows))
    return np.frombuffer(packed, dtype=np.float64), lengths


def _whole_numbers(text: bytes, rows: int) -> tuple[FloatArray, IntArray] | None:
    """Return the numbers in so many arrays of whole numbers such as b"[1,23][456]", and the length of each.
    Returns None if the text is something else, or a number has more than 16 digits."""
    codes = np.frombuffer(text, dtype=np.uint8)
    closes = codes == _CLOSE
    after = np.flatnonzero(closes | (codes == _COMMA))
    ends = np.flatnonzero(closes[after])
    opens = np.flatnonzero(codes == _OPEN)
    digits = np.count_nonzero(codes - _ZERO < 10)  # codes below that of 0 wrap around
    if ends.size != rows or opens.size != rows or digits + after.size + rows != codes.size:
        return None
    if after[-1] != codes.size - 1:
        return None
    # A digit or more has to stand between two separators; the first number of an array follows its bracket.
    before = np.empty_like(after)
    before[0], before[1:] = 0, after[:-1]
    before[ends[:-1] + 1] += 1
    if not np.array_equal(before[np.concatenate([[0], ends[:-1] + 1])], opens):
        return None
    lengths = after - before - 1
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < 1 or longest > 2 * _WORD:
        return None
    padded = bytes(2 * _WORD) + text
    numbers = _last_digits(padded, after + _WORD, np.minimum(lengths, _WORD))
    if longest > _WORD:
        long = np.flatnonzero(lengths > _WORD)
        numbers[long] += _last_digits(padded, after[long], lengths[long] - _WORD) * np.uint64(10**_WORD)
    return numbers.astype(np.float64), np.diff(ends, prepend=-1)


def _last_digits(text: bytes, at: IntArray, count: IntArray) -> NDArray[np.uint64]:
    """Return the numbers whose last digits, 1 to 8, end 8 bytes after the places `at`."""
    words = np.ndarray((len(text) - _WORD + 1,), dtype="<u8", buffer=text, strides=(1,))[at]
    others = ((_WORD - count) * 8).astype(np.uint64)
    words &= np.uint64(_PAIRS)
    words >>= others
    words <<= others  # the bytes before the number become zeros
    for factor, bits, mask in ((10, 8, _FOURS), (100, 16, _EIGHT), (10_000, 32, None)):
        # Each digit or group of digits is multiplied and added to the one after it.
        words *= np.uint64((factor << bits) + 1)
        words >>= np.uint64(bits)
        if mask is not None:
            words &= np.uint64(mask)
    return words
