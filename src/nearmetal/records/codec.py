"""TrialRecord <-> one JSON object, exactly and strictly; pure. Knows no files."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import RecordsError
from ..model.profile import CallProfile, PeerProfile, RankProfile
from ..model.record import Connection, Fold, JsonValue, RankPlace, Row, Status, TrialRecord
from ..model.study import Better

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator

SCHEMA = 1
_HEAD = b'{"schema":%d,' % SCHEMA


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
    if record.pages:
        out["pages"] = {workload: dict(found) for workload, found in record.pages.items()}
    if record.network:
        out["network"] = {scope: dict(values) for scope, values in record.network.items()}
    if record.connections is not None:
        out["connections"] = [{name: getattr(c, name) for name in _CONNECTION} for c in record.connections]
    if record.profile:
        out["profile"] = {w: [_profile_to_dict(p) for p in ranks] for w, ranks in record.profile.items()}
    if record.members:
        out["members"] = record.members
    if record.left_out:
        out["left_out"] = list(record.left_out)
    if record.facts:
        out["facts"] = {workload: dict(told) for workload, told in record.facts.items()}
    return out


_CONNECTION = tuple(f.name for f in dataclasses.fields(Connection))


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


def _profile_to_dict(profile: RankProfile) -> dict[str, JsonValue]:
    return {
        **{k: v for k, v in vars(profile).items() if k not in ("calls", "peers")},
        "calls": {name: dict(vars(call)) for name, call in profile.calls.items()},
        "peers": [dict(vars(peer)) for peer in profile.peers],
    }


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


def to_line(record: TrialRecord) -> bytes:
    """One line of a trials file, newline included. Raises RecordsError on NaN or infinity: a measurement that
    is not a number is a failed row, to be said in its reason, never a value."""
    from pydantic_core import to_json

    try:
        data = to_dict(record)
        line = to_json(data, inf_nan_mode="constants")
        if b"NaN" in line or b"Infinity" in line:  # a number, which is refused, or a text that says so
            line = _encode(data).encode()
        return line + b"\n"
    except ValueError as e:
        raise RecordsError(
            f"trial {record.trial} holds a value that is not finite: {e}",
            remedy="report this: the workload's parser has to mark such a row as failed, without values",
        ) from e


# --- reading ---------------------------------------------------------------------------------------------


def from_line(line: bytes) -> TrialRecord:
    """The record of one line. Raises Malformed, or UnknownSchema."""
    rest = b"{" + line[len(_HEAD) :] if line.startswith(_HEAD) else _without_schema(line)
    try:
        record: TrialRecord = _validator().validate_json(rest, strict=True)
    except ValueError as e:  # pydantic_core.ValidationError is one
        raise Malformed(_first_problem(e)) from e
    for row in record.rows:
        _check_lengths(row)
    return record


def from_dict(data: Mapping[str, JsonValue]) -> TrialRecord:
    """The inverse of to_dict, as strict as from_line."""
    try:
        return from_line(_encode(dict(data)).encode())
    except ValueError as e:
        raise e if isinstance(e, Malformed) else Malformed(str(e)) from e


def _without_schema(line: bytes) -> bytes:
    """A line that something else than to_line wrote, checked for its schema."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise Malformed(f"not JSON: {e}") from e
    if type(data) is not dict:
        raise Malformed("a record is an object")
    version = data.pop("schema", "(none)")
    if version != SCHEMA or type(version) is not int:
        raise UnknownSchema(version)
    return json.dumps(data).encode()


def _first_problem(error: ValueError) -> str:
    from pydantic_core import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _check_lengths(row: Row) -> None:
    n = len(row.values)
    if row.seconds and len(row.seconds) != n:
        raise Malformed(f"seconds of {row.metric}: {len(row.seconds)} entries beside {n} values")
    for kind, part in row.parts.items():
        if len(part) != n:
            raise Malformed(f"parts.{kind} of {row.metric}: {len(part)} entries beside {n} values")


@functools.cache
def _validator() -> SchemaValidator:
    """The strict reader: JSON to dataclasses in compiled code, 2 to 3 x faster than json.loads and checks in
    Python. Imported here because the run loop only writes."""
    from pydantic_core import SchemaValidator
    from pydantic_core import core_schema as cs

    text, whole, number = cs.str_schema(), cs.int_schema(), cs.float_schema(allow_inf_nan=False)
    numbers = cs.tuple_variable_schema(number)
    json_object = cs.dict_schema(text, cs.any_schema())
    measured = cs.dict_schema(text, cs.nullable_schema(number))
    better, status, fold = (cs.enum_schema(e, list(e)) for e in (Better, Status, Fold))
    row = _dataclass_schema(
        Row,
        workload=text,
        metric=text,
        unit=text,
        better=better,
        values=numbers,
        status=status,
        reason=text,
        seconds=numbers,
        parts=cs.dict_schema(text, numbers),
        verification=json_object,
    )
    place = _dataclass_schema(
        RankPlace,
        rank=whole,
        host=text,
        cpus=cs.tuple_variable_schema(whole),
        namespaces=cs.dict_schema(text, whole),
    )
    seconds, count = cs.nullable_schema(number), cs.nullable_schema(whole)
    connection = _dataclass_schema(
        Connection,
        scope=text,
        local=text,
        remote=text,
        congestion_control=cs.nullable_schema(text),
        **dict.fromkeys(("rto", "rtt", "rttvar", "timeout_seconds"), seconds),
        **dict.fromkeys(("cwnd", "retransmitted", "lost", "timeouts", "timeout_runs"), count),
        **dict.fromkeys(("bytes_acked", "bytes_received"), count),
    )
    call = _dataclass_schema(CallProfile, count=whole, seconds=number, bytes=whole)
    peer = _dataclass_schema(PeerProfile, rank=whole, messages=whole, bytes=whole)
    profile = _dataclass_schema(
        RankProfile,
        rank=whole,
        complete=cs.bool_schema(),
        **dict.fromkeys(("before", "init", "compute", "communication", "finalize"), number),
        calls=cs.dict_schema(text, call),
        peers=cs.tuple_variable_schema(peer),
    )
    record = _dataclass_schema(
        TrialRecord,
        run=text,
        trial=text,
        block=whole,
        attempt=whole,
        arm=text,
        aa=cs.bool_schema(),
        position=whole,
        begin=number,
        end=number,
        fold=fold,
        status=status,
        reason=cs.with_default_schema(text, default=""),
        rows=cs.tuple_variable_schema(row),
        places=cs.tuple_variable_schema(place),
        transport=json_object,
        counters=cs.dict_schema(text, measured),
        disturbance=measured,
        flags=cs.tuple_variable_schema(text),
        phases=cs.dict_schema(text, number),
        pages=cs.dict_schema(text, measured),
        network=cs.dict_schema(text, measured),
        connections=cs.nullable_schema(cs.tuple_variable_schema(connection)),
        profile=cs.dict_schema(text, cs.tuple_variable_schema(profile)),
        facts=cs.dict_schema(text, json_object),
        members=whole,
        left_out=cs.tuple_variable_schema(text),
    )
    return SchemaValidator(record)


def _dataclass_schema(cls: type, **schemas: CoreSchema) -> CoreSchema:
    """Exactly the fields of a dataclass, with its own defaults; a field without a schema is a bug here."""
    from pydantic_core import core_schema as cs

    members = []
    for f in dataclasses.fields(cls):
        schema = schemas.pop(f.name)
        if f.default is not dataclasses.MISSING:
            schema = cs.with_default_schema(schema, default=f.default)
        elif f.default_factory is not dataclasses.MISSING:
            schema = cs.with_default_schema(schema, default_factory=f.default_factory)
        members.append(cs.dataclass_field(f.name, schema, kw_only=True))
    assert not schemas, f"{cls.__name__} has no {sorted(schemas)}"
    arguments = cs.dataclass_args_schema(cls.__name__, members, extra_behavior="forbid")
    return cs.dataclass_schema(cls, arguments, [f.name for f in dataclasses.fields(cls)])
