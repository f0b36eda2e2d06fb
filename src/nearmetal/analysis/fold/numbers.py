"""Parses the numbers of many rows at once, from the forms in which records store them."""

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
Numbers = tuple[float, ...] | msgspec.Raw | bytes
"""The numbers of a row: already parsed (tuple), JSON text of an array (Raw), or ticks as in
model.record.Row.ticks (bytes)."""

_TICK_BYTES = 4
_lists = msgspec.json.Decoder(list[tuple[float, ...]])


class NotPlain(ValueError):
    """Raised for rows whose numbers are corrupt, or are not stored as nearmetal stores them. The records then
    have to be decoded one by one, which reports the corrupt one."""


def concatenated(rows: Sequence[Numbers]) -> tuple[FloatArray, IntArray]:
    """Return the numbers of all rows, one after the other, and how many each row has.

    Raises NotPlain if a row has no numbers, or its text is not an array of numbers.
    """
    if not rows:
        return np.empty(0), np.empty(0, dtype=np.int64)
    kinds = set(map(type, rows))
    if kinds == {bytes}:
        return _of_ticks(cast("Sequence[bytes]", rows))
    if kinds == {msgspec.Raw}:
        found: Sequence[tuple[float, ...]] = _of_texts(cast("Sequence[msgspec.Raw]", rows))
    elif kinds == {tuple}:
        found = cast("Sequence[tuple[float, ...]]", rows)
    else:  # rows in different forms, for example with seconds that ticks cannot hold, or of an older schema
        found = [_read(row) for row in rows]
    lengths = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
    if not bool(lengths.all()):
        raise NotPlain("no numbers")
    # struct converts a number in a third of the time that numpy needs.
    packed = struct.pack(f"{int(lengths.sum())}d", *chain.from_iterable(found))
    return np.frombuffer(packed, dtype=np.float64), lengths


def _of_ticks(rows: Sequence[bytes]) -> tuple[FloatArray, IntArray]:
    lengths, rest = np.divmod(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)), _TICK_BYTES)
    if bool(rest.any()) or not bool(lengths.all()):
        raise NotPlain("no whole number of ticks")
    return np.frombuffer(b"".join(rows), dtype="<u4").astype(np.float64), lengths


def _of_texts(rows: Sequence[msgspec.Raw]) -> list[tuple[float, ...]]:
    try:
        return _lists.decode(b"[" + b",".join(rows) + b"]")
    except ValueError as e:  # includes msgspec.DecodeError
        raise NotPlain(str(e)) from e


def _read(row: Numbers) -> tuple[float, ...]:
    if isinstance(row, tuple):
        return row
    return tuple(_of_ticks([row])[0].tolist()) if isinstance(row, bytes) else _of_texts([row])[0]
