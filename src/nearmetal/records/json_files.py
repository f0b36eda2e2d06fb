"""Conversion of values to JSON, files with one JSON object, and names of files and directories."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from ..errors import RecordsError
from ..host.untrusted import UntrustedDirectory
from ..model.record import JsonValue

_END_OF_TIME = 1e11
"""Unix seconds beyond which times have no date of four digits."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def safe_name(name: str) -> str:
    """Return the name of a study or trial as one part of a path ('0.native/1x2' -> '0.native~1x2')."""
    return _UNSAFE.sub("~", name).lstrip(".") or "unnamed"


def json_bytes(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def finite(value: float) -> float | None:
    """Return the number; None for infinity and NaN, which JSON cannot represent."""
    return value if math.isfinite(value) else None


def to_json(value: object) -> JsonValue:
    """Convert dataclasses, enums, tuples and mappings to JSON. A number that is not finite becomes null.

    Raises TypeError for any other type, so that nothing is written as its repr by accident.
    """
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return finite(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, Iterable):
        return [to_json(v) for v in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def read_bytes(directory: UntrustedDirectory, name: str) -> bytes:
    """Read a whole file. Raises RecordsError."""
    try:
        return directory.read_bytes(name)
    except OSError as e:
        raise unreadable(e, directory.path_to(name)) from e


def text_in(directory: UntrustedDirectory, name: str) -> str:
    """Return the text of a file. Raises RecordsError if it cannot be read or is not UTF-8."""
    try:
        return read_bytes(directory, name).decode()
    except UnicodeDecodeError as e:
        raise RecordsError(
            f"corrupt: not UTF-8 ({e.reason} at byte {e.start})",
            where=str(directory.path_to(name)),
            remedy="take it from a copy",
        ) from e


def names_in(directory: UntrustedDirectory, ending: str) -> list[str]:
    """Return the sorted names in a directory with this ending. Raises RecordsError."""
    try:
        return [name for name in directory.names() if name.endswith(ending)]
    except OSError as e:
        raise unreadable(e, directory.path_to("")) from e


def unreadable(error: OSError, file: Path) -> RecordsError:
    """Return the error to raise for a file that cannot be read or is refused."""
    return RecordsError(
        f"cannot be read: {error.strerror or error}",
        where=str(file),
        remedy="put a regular file that you may read in its place, for example from a copy of the directory",
    )


def require_schema(data: Mapping[str, Any], what: str, known: int, file: Path) -> None:
    """Check that the schema of a file is known to this version of nearmetal.

    data: contents of the file.
    what: kind of the file, for the message.
    known: number of the known schema.

    Raises RecordsError for another schema.
    """
    if data.get("schema") != known:
        raise RecordsError(
            f"{what} schema {data.get('schema')!r} is not known to this nearmetal, which reads {known}",
            where=str(file),
            remedy="read the directory with the nearmetal that wrote it, or upgrade this one",
        )


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text. Stricter than json.loads(): without NaN, infinity and halves of
    surrogate pairs, which cannot be written again.

    Raises ValueError.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


def unix_time(value: Any) -> float:
    """Return a time in Unix seconds, as a file gives it. Raises TypeError, and ValueError for a time that has
    no date."""
    seconds = float(value)
    if not 0 <= seconds < _END_OF_TIME:
        raise ValueError(f"{seconds:g} is not a time in Unix seconds")
    return seconds


def json_object(directory: UntrustedDirectory, name: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises RecordsError if the file cannot be read or does not contain one JSON object.
    """
    where = str(directory.path_to(name))
    try:
        data = parse_json(read_bytes(directory, name))
    except ValueError as e:
        raise RecordsError(f"corrupt: {e}", where=where, remedy="take it from a copy") from e
    if type(data) is not dict:
        raise RecordsError("corrupt: not an object", where=where, remedy="take it from a copy")
    return data


def new_directory(parent: Path, name: str) -> Path:
    """Make a new directory and return its path. If the name is taken, '-2', '-3', ... is appended."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
