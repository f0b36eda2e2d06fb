"""Converts a TrialRecord to one JSON object and back, exactly and strictly. No I/O.

msgspec is used because it is the fastest parser that rejects unknown keys."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec

from ..errors import RecordsError
from ..model.change import replace
from ..model.record import JsonValue, Row, TrialData, TrialRecord, slice_values
from ..model.scope import Scope

Record = TypeVar("Record", TrialRecord, TrialData)

SCHEMA, OLDEST_SCHEMA = 3, 1
"""Schema of the lines that are written, and of the oldest lines that can be read. Lines of schema 1 contain
all values and no ticks; lines of schema 2 contain ticks as JSON numbers instead of seconds."""
TICKS_PER_SECOND = 10**9
"""Unit in which seconds are stored: programs report whole nanoseconds. Four bytes are shorter than the digits
of a fraction, and are parsed in a tenth of the time."""
_TICK_BYTES = 4
_MOST_SECONDS = (2**32 - 1) / TICKS_PER_SECOND
_HEADS = tuple(b'{"schema":%d,' % version for version in range(OLDEST_SCHEMA, SCHEMA + 1))


def _scope(_: type, text: object) -> Scope:
    """Return the value of the only type of a record that msgspec does not know."""
    if not isinstance(text, str):
        raise TypeError(f"a scope is a text, not {text!r}")
    return Scope.parse(text)


_encoder = msgspec.json.Encoder(enc_hook=Scope.__str__)
_decoder = msgspec.json.Decoder(TrialRecord, dec_hook=_scope)
_data_decoder = msgspec.json.Decoder(TrialData, dec_hook=_scope)


class Malformed(ValueError):
    """A record that does not follow the schema. The message names the key and its value."""


class UnknownSchema(RecordsError):
    """A record written by another version of nearmetal."""

    def __init__(self, version: object) -> None:
        super().__init__(
            f"record schema {version!r} is not known to this nearmetal,"
            f" which reads schemas {OLDEST_SCHEMA} to {SCHEMA}",
            remedy="read the directory with the nearmetal that wrote it (provenance.json names its version),"
            " or upgrade this one",
        )


def to_dict(record: TrialRecord) -> dict[str, JsonValue]:
    """Return the record as JSON values. Empty optional members are left out; reading restores them."""
    return {
        "schema": SCHEMA,
        **cast("dict[str, JsonValue]", msgspec.to_builtins(record, enc_hook=Scope.__str__)),
    }


def to_line(record: TrialRecord) -> bytes:
    """Return a record as one line of a trials file, including the newline.

    Raises RecordsError if the record contains NaN or infinity: such a measurement must be stored as a failed
    row with a reason, never as a value.
    """
    if (where := _not_finite(record)) is not None:
        raise RecordsError(
            f"trial {record.trial} holds a value that is not finite: {where}",
            remedy="report this: the workload's parser has to mark such a row as failed, without values",
        )
    stored = replace(record, rows=_in_ticks([_compact(row) for row in record.rows]))
    return _HEADS[-1] + _encoder.encode(stored)[1:] + b"\n"


def from_line(line: bytes) -> TrialRecord:
    """Return the record in one line of a trials file.

    Raises Malformed for a line that is not a record, and UnknownSchema for a record of another version.
    """
    rest = b"{" + line[len(_HEADS[0]) :] if line.startswith(_HEADS) else _without_schema(line)
    record = _decoded(_decoder, rest)
    return replace(record, rows=tuple([_whole(row) for row in record.rows]))


def data_from_line(line: bytes) -> TrialData:
    """Return the fields that the analysis uses of the record in one line. Its rows are returned as they are
    stored, and their numbers are not checked.

    Raises Malformed for a line that is not a record, and UnknownSchema for a record of another version.
    """
    if not line.startswith(_HEADS):
        line = _HEADS[-1] + _without_schema(line)[1:]
    return _decoded(_data_decoder, line)


def _decoded(decoder: msgspec.json.Decoder[Record], text: bytes) -> Record:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as e:  # includes msgspec.DecodeError
        raise Malformed(str(e)) from e


def _not_finite(record: TrialRecord) -> str | None:
    """Return the place in a record that contains NaN or infinity, as text; None if there is none.

    JSON cannot represent these values, and msgspec would write null for them.
    """
    for row in record.rows:
        for what, numbers in {"values": row.values, "seconds": row.seconds, **row.parts}.items():
            if not all(map(math.isfinite, numbers)):
                return f"{what} of {row.workload}.{row.metric}"
    beside = {
        "begin": (record.begin,),
        "end": (record.end,),
        "disturbance": record.disturbance.values(),
        "phases": record.phases.values(),
        **{f"counters.{scope}": found.values() for scope, found in record.counters.items()},
        **{f"network.{scope}": found.values() for scope, found in record.network.items()},
        **{f"pages.{workload}": found.values() for workload, found in record.pages.items()},
    }
    for what, known in beside.items():
        if not all(x is None or math.isfinite(x) for x in known):
            return what
    texts = [record.transport, record.facts, *(row.verification for row in record.rows)]
    structures = [
        msgspec.to_builtins(x, enc_hook=Scope.__str__) for x in (record.profile, record.connections)
    ]
    try:
        _strict([*texts, *structures])
    except ValueError as e:
        return str(e)
    return None


_strict = json.JSONEncoder(allow_nan=False).encode


def _without_schema(line: bytes) -> bytes:
    """Check the schema of a line that does not begin as to_line() writes it, and return its JSON object
    without the schema.

    Raises Malformed for a line that is not a JSON object, and UnknownSchema.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise Malformed(f"not JSON: {e}") from e
    if type(data) is not dict:
        raise Malformed("a record is an object")
    version = data.pop("schema", "(none)")
    if type(version) is not int or not OLDEST_SCHEMA <= version <= SCHEMA:
        raise UnknownSchema(version)
    return json.dumps(data).encode()


def _compact(row: Row) -> Row:
    """Return the row in a shorter form that _whole() can restore: without values that follow from its seconds
    and work, and with a single entry for a part that is the same in all slices."""
    n = len(row.values)
    parts = {kind: part[:1] if n > 1 and len(set(part)) == 1 else part for kind, part in row.parts.items()}
    work = row.work if row.values else 0.0  # from work, _whole() would compute values that there were not
    values = () if row.values == _values(row, row.seconds) else row.values
    return replace(row, values=values, work=work, parts=parts)


def _in_ticks(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with ticks instead of seconds and parts, wherever these can be restored exactly.

    Rows with equal seconds are stored in the same form, because the analysis recognises metrics of the same
    slices by comparing the stored form.
    """
    ticks = [_row_in_ticks(row) for row in rows]
    as_they_are = {row.seconds for row, found in zip(rows, ticks, strict=True) if found is None}
    return tuple(
        row if found is None or row.seconds in as_they_are else found
        for row, found in zip(rows, ticks, strict=True)
    )


def _row_in_ticks(row: Row) -> Row | None:
    ticks, parts = _ticks(row.seconds), {kind: _ticks(part) for kind, part in row.parts.items()}
    whole = {kind: part for kind, part in parts.items() if part is not None}
    if ticks is None or len(whole) < len(parts) or not (ticks or whole):
        return None
    return replace(
        row, seconds=(), parts={}, ticks_per_second=TICKS_PER_SECOND, ticks=ticks, part_ticks=whole
    )


def _ticks(seconds: tuple[float, ...]) -> bytes | None:
    """Return the seconds as Row.ticks; None if they could not be restored exactly."""
    if not seconds:
        return b""
    if min(seconds) < 0 or max(seconds) > _MOST_SECONDS or (0.0 in seconds and "-0.0" in map(str, seconds)):
        return None
    ticks = [round(s * TICKS_PER_SECOND) for s in seconds]
    if tuple([t / TICKS_PER_SECOND for t in ticks]) != seconds:
        return None
    return struct.pack(f"<{len(ticks)}I", *ticks)


def _whole(row: Row) -> Row:
    """Return the row as it was before _in_ticks() and _compact().

    Raises Malformed if the numbers of values, seconds and parts do not agree.
    """
    seconds, parts = _seconds(row), {**row.parts, **_part_ticks(row)}
    if per_second := row.ticks_per_second:
        seconds = tuple([t / per_second for t in seconds])
        parts = {kind: tuple([t / per_second for t in part]) for kind, part in parts.items()}
    n = len(row.values) or (len(seconds) if row.work > 0 else 0)
    if seconds and len(seconds) != n:
        raise Malformed(f"seconds of {row.metric}: {len(seconds)} entries beside {n} values")
    for kind, part in parts.items():
        if len(part) != n:
            if not len(part) == 1 < n:
                raise Malformed(f"parts.{kind} of {row.metric}: {len(part)} entries beside {n} values")
            parts[kind] = part * n
    values = row.values or _values(row, seconds)
    return replace(
        row, values=values, seconds=seconds, parts=parts, ticks_per_second=0, ticks=b"", part_ticks={}
    )


def _seconds(row: Row) -> tuple[float, ...]:
    """Return the ticks of a row as numbers if it has ticks, otherwise its seconds.

    Raises Malformed if the row has ticks and seconds, or ticks without their unit.
    """
    if not row.ticks:
        return row.seconds
    if row.seconds or not row.ticks_per_second:
        raise Malformed(f"{row.metric}: ticks beside seconds, or without ticks_per_second")
    return _numbers(row.ticks, f"ticks of {row.metric}")


def _part_ticks(row: Row) -> dict[str, tuple[float, ...]]:
    if row.part_ticks and not (row.ticks_per_second and row.parts.keys().isdisjoint(row.part_ticks)):
        raise Malformed(f"{row.metric}: part_ticks beside the same parts, or without ticks_per_second")
    return {
        kind: _numbers(text, f"part_ticks.{kind} of {row.metric}") for kind, text in row.part_ticks.items()
    }


def _numbers(ticks: bytes, where: str) -> tuple[int, ...]:
    n, rest = divmod(len(ticks), _TICK_BYTES)
    if rest:
        raise Malformed(f"{where}: {len(ticks)} bytes, which are no numbers of {_TICK_BYTES} bytes")
    return struct.unpack(f"<{n}I", ticks)


def _values(row: Row, seconds: tuple[float, ...]) -> tuple[float, ...]:
    """Return the values that follow from the row's work and its seconds; () if the work is unknown or one of
    the seconds is 0 for a rate."""
    if not row.work > 0:
        return ()
    try:
        return slice_values(row.better, row.work, seconds)
    except ZeroDivisionError:
        return ()
