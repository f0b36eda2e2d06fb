"""TrialRecord <-> one JSON object, exactly and strictly; pure. Knows no files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from math import isfinite
from typing import Any, NoReturn, TypeVar

from ..errors import RecordsError
from ..model.record import Fold, JsonValue, RankPlace, Row, Status, TrialRecord
from ..model.study import Better

SCHEMA = 1
_NUMBERS = frozenset((int, float))
_MEASURED = frozenset((float, type(None)))
_EnumT = TypeVar("_EnumT", bound=Enum)


class Malformed(ValueError):
    """A record that does not follow the schema; the message says which key and what stands there."""


class UnknownSchema(RecordsError):
    """A record written by another version of nearmetal."""

    def __init__(self, version: object) -> None:
        super().__init__(
            f"record schema {version!r} is not known to this nearmetal, which reads schema {SCHEMA}",
            remedy="read the directory with the nearmetal that wrote it (provenance.json names its version),"
            " or upgrade this one",
        )


def _full(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


_RECORD_KEYS = frozenset((*_full(TrialRecord), "schema"))
_ROW_KEYS = frozenset(_full(Row))
_PLACE_KEYS = frozenset(_full(RankPlace))
_RECORD_MUST = _RECORD_KEYS - {"places", "transport", "counters", "disturbance", "flags", "phases", "reason"}
_ROW_MUST = frozenset(("workload", "metric", "unit", "better", "values", "status"))
_BETTER = {b.value: b for b in Better}
_STATUS = {s.value: s for s in Status}
_FOLD = {f.value: f for f in Fold}


# --- writing ---------------------------------------------------------------------------------------------


def to_dict(record: TrialRecord) -> dict[str, JsonValue]:
    """The record as JSON values. Empty optional members are left out; reading gives them back."""
    out: dict[str, JsonValue] = {
        "schema": SCHEMA,
        "run": record.run,
        "trial": record.trial,
        "block": record.block,
        "attempt": record.attempt,
        "arm": record.arm,
        "aa": record.aa,
        "position": record.position,
        "begin": record.begin,
        "end": record.end,
        "fold": record.fold.value,
        "status": record.status.value,
        "rows": [_row_to_dict(r) for r in record.rows],
    }
    if record.reason:
        out["reason"] = record.reason
    if record.places:
        out["places"] = [
            {"rank": p.rank, "host": p.host, "cpus": list(p.cpus), "namespaces": dict(p.namespaces)}
            for p in record.places
        ]
    if record.transport:
        out["transport"] = dict(record.transport)
    if record.counters:
        out["counters"] = {scope: dict(values) for scope, values in record.counters.items()}
    if record.disturbance:
        out["disturbance"] = dict(record.disturbance)
    if record.flags:
        out["flags"] = list(record.flags)
    if record.phases:
        out["phases"] = dict(record.phases)
    return out


def _row_to_dict(row: Row) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {
        "workload": row.workload,
        "metric": row.metric,
        "unit": row.unit,
        "better": row.better.value,
        "values": list(row.values),
        "status": row.status.value,
    }
    if row.reason:
        out["reason"] = row.reason
    if row.seconds:
        out["seconds"] = list(row.seconds)
    if row.parts:
        out["parts"] = {kind: list(values) for kind, values in row.parts.items()}
    if row.verification:
        out["verification"] = dict(row.verification)
    return out


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


def to_line(record: TrialRecord) -> bytes:
    """One line of a trials file, newline included. Raises RecordsError on NaN or infinity: a measurement that
    is not a number is a failed row, to be said in its reason, never a value."""
    try:
        return _encode(to_dict(record)).encode() + b"\n"
    except ValueError as e:
        raise RecordsError(
            f"trial {record.trial} holds a value that is not finite: {e}",
            remedy="report this: the workload's parser has to mark such a row as failed, without values",
        ) from e


# --- reading ---------------------------------------------------------------------------------------------


def _constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not a number")


parse_json: Callable[[str], Any] = json.JSONDecoder(parse_constant=_constant).decode


def from_line(line: bytes) -> TrialRecord:
    """The record of one line. Raises Malformed, or UnknownSchema."""
    try:
        data = parse_json(line.decode())
    except Malformed:
        raise
    except (ValueError, RecursionError) as e:
        raise Malformed(f"not JSON: {e}") from e
    return from_dict(data)


def from_dict(data: Any) -> TrialRecord:
    """The inverse of to_dict. Raises Malformed naming the key (unknown, missing, of the wrong type, not
    finite), UnknownSchema when the record is of another schema. Takes `data` over: its objects become part
    of the record."""
    if type(data) is not dict:
        raise Malformed(f"a record is an object, not {_kind(data)}")
    if data.get("schema") != SCHEMA:
        raise UnknownSchema(data.get("schema", "(none)"))
    _check_keys(data, _RECORD_KEYS, _RECORD_MUST, "record")
    try:
        return _record(data)
    except OverflowError as e:
        raise Malformed(f"a number beyond the range of a double: {e}") from e


def _record(data: dict[str, Any]) -> TrialRecord:
    get = data.get
    return TrialRecord(
        run=_text(data, "run"),
        trial=_text(data, "trial"),
        block=_whole(data, "block"),
        attempt=_whole(data, "attempt"),
        arm=_text(data, "arm"),
        aa=_truth(data, "aa"),
        position=_whole(data, "position"),
        begin=_number(data, "begin"),
        end=_number(data, "end"),
        fold=_member(_FOLD, data, "fold"),
        status=_member(_STATUS, data, "status"),
        reason=_text(data, "reason") if "reason" in data else "",
        rows=tuple([_row(r) for r in _list(data, "rows")]),
        places=tuple([_place(p) for p in _list(data, "places")]) if "places" in data else (),
        transport=_object(get("transport", {}), "transport"),
        counters=_counters(get("counters")),
        disturbance=_measured(get("disturbance", {}), "disturbance"),
        flags=tuple([_is_text(f, "flags") for f in _list(data, "flags")]) if "flags" in data else (),
        phases=_phases(get("phases", {})),
    )


def _row(data: Any) -> Row:
    if type(data) is not dict:
        raise Malformed(f"rows: a row is an object, not {_kind(data)}")
    _check_keys(data, _ROW_KEYS, _ROW_MUST, "row")
    values = _floats(data["values"], "values")
    seconds = _floats(data["seconds"], "seconds") if "seconds" in data else ()
    if seconds and len(seconds) != len(values):
        raise Malformed(f"seconds: {len(seconds)} entries beside {len(values)} values")
    parts: Mapping[str, tuple[float, ...]] = {}
    if "parts" in data:
        parts = {k: _floats(v, k) for k, v in _object(data["parts"], "parts").items()}
        for kind, part in parts.items():
            if len(part) != len(values):
                raise Malformed(f"parts.{kind}: {len(part)} entries beside {len(values)} values")
    return Row(
        workload=_text(data, "workload"),
        metric=_text(data, "metric"),
        unit=_text(data, "unit"),
        better=_member(_BETTER, data, "better"),
        values=values,
        status=_member(_STATUS, data, "status"),
        reason=_text(data, "reason") if "reason" in data else "",
        seconds=seconds,
        parts=parts,
        verification=_object(data["verification"], "verification") if "verification" in data else {},
    )


def _place(data: Any) -> RankPlace:
    if type(data) is not dict:
        raise Malformed(f"places: a place is an object, not {_kind(data)}")
    _check_keys(data, _PLACE_KEYS, _PLACE_KEYS, "place")
    namespaces = _object(data["namespaces"], "namespaces")
    return RankPlace(
        rank=_whole(data, "rank"),
        host=_text(data, "host"),
        cpus=tuple([_is_whole(c, "cpus") for c in _list(data, "cpus")]),
        namespaces={k: _is_whole(v, f"namespaces.{k}") for k, v in namespaces.items()},
    )


def _check_keys(data: dict[str, Any], known: frozenset[str], must: frozenset[str], what: str) -> None:
    keys = data.keys()
    if not keys <= known:
        raise Malformed(f"unknown key {sorted(keys - known)[0]!r} in a {what}")
    if not must <= keys:
        raise Malformed(f"key {sorted(must - keys)[0]!r} is missing in a {what}")


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}.get(
        type(value), "a number"
    )


def _text(data: dict[str, Any], key: str) -> str:
    return _is_text(data[key], key)


def _is_text(value: Any, key: str) -> str:
    if type(value) is not str:
        raise Malformed(f"{key}: text expected, not {_kind(value)}")
    return value


def _whole(data: dict[str, Any], key: str) -> int:
    return _is_whole(data[key], key)


def _is_whole(value: Any, key: str) -> int:
    if type(value) is not int:
        raise Malformed(f"{key}: a whole number expected, not {value!r:.40}")
    return value


def _truth(data: dict[str, Any], key: str) -> bool:
    value = data[key]
    if type(value) is not bool:
        raise Malformed(f"{key}: true or false expected, not {_kind(value)}")
    return value


def _number(data: dict[str, Any], key: str) -> float:
    value = data[key]
    if type(value) not in _NUMBERS or not isfinite(value):
        raise Malformed(f"{key}: a finite number expected, not {value!r:.40}")
    return float(value)


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data[key]
    if type(value) is not list:
        raise Malformed(f"{key}: a list expected, not {_kind(value)}")
    return value


def _object(value: Any, key: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Malformed(f"{key}: an object expected, not {_kind(value)}")
    return value


def _member(members: dict[str, _EnumT], data: dict[str, Any], key: str) -> _EnumT:
    value = data[key]
    try:
        return members[value]
    except (KeyError, TypeError):
        raise Malformed(f"{key}: {value!r:.40} is none of {', '.join(members)}") from None


def _floats(value: Any, key: str) -> tuple[float, ...]:
    # All in C: this is the inner loop of reading 100,000 trials.
    if type(value) is not list or not _NUMBERS.issuperset(map(type, value)) or not all(map(isfinite, value)):
        raise Malformed(f"{key}: a list of finite numbers expected")
    return tuple(map(float, value))


def _measured(value: Any, key: str) -> dict[str, float | None]:
    """Numbers by name; null says unavailable and stays None."""
    found = _object(value, key)
    if _MEASURED.issuperset(map(type, found.values())) and all(map(isfinite, filter(None, found.values()))):
        return found
    for name, v in found.items():
        if v is not None:
            found[name] = _number(found, name)
    return found


def _counters(value: Any) -> Mapping[str, Mapping[str, float | None]]:
    if value is None:
        return {}
    return {scope: _measured(v, f"counters.{scope}") for scope, v in _object(value, "counters").items()}


def _phases(value: Any) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for name, v in _measured(value, "phases").items():
        if v is None:
            raise Malformed(f"phases.{name}: a number expected, not null")
        found[name] = v
    return found
