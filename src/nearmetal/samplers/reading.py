"""Samples back from a file: raw text -> counters by scope; tolerant of a torn end, strict about the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import RecordsError
from ..host.procfiles import Counters, Scale, instance_counters, node_counters
from .frames import frames, raw_beside, whole_lines
from .sampler import SCHEMA

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Sample:
    """time: Unix seconds; monotonic: seconds of the node's clock; scopes: counters (host.procfiles) of 'node'
    and of each 'instance.<name>' that stood. A counter that the machine does not give is None."""

    time: float
    monotonic: float
    scopes: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """samples: in the order they were taken; torn: the file ends in a frame or line that was being
    written when its writer was killed, which is left out."""

    samples: tuple[Sample, ...]
    torn: bool


def parse(raw: Mapping[str, Mapping[str, bytes]], scale: Scale) -> dict[str, Counters]:
    """Raw files by scope and name -> counters by scope; pure."""
    return {
        scope: node_counters(files, scale) if scope == "node" else instance_counters(files, scale)
        for scope, files in raw.items()
    }


def read_samples(path: Path) -> Samples:
    """The samples of x.jsonl.zst and of the raw lines beside it, should they not be in it yet (a run that
    goes on, or was killed). Raises RecordsError when the file cannot be read, is of another schema or is
    corrupt inside a whole frame or line."""
    samples: list[Sample] = []
    scale: Scale | None = None
    whole, torn, last = 0, False, b""
    try:
        for content, end in frames(path):
            whole = end
            for last in content.splitlines(keepends=True):
                data = _object(last, path)
                if "schema" in data:
                    scale = _scale(data, path)
                else:
                    samples.append(_sample(data, scale, path))
        torn = path.stat().st_size > whole
        raw = raw_beside(path)
        if raw.exists():
            with raw.open("rb") as file:
                for lines in whole_lines(file, _PIECE, last):
                    samples += [_sample(_object(line, raw), scale, raw) for line in lines.splitlines()]
                torn = torn or not _ends_whole(file)
    except OSError as e:
        raise RecordsError(f"cannot be read: {e.strerror or e}", where=str(path)) from e
    return Samples(samples=tuple(samples), torn=torn)


def _ends_whole(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    return file.read(1) in (b"", b"\n")


def _object(line: bytes, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as e:
        raise RecordsError(f"corrupt sample: {e}", where=str(path)) from e
    if type(data) is not dict:
        raise RecordsError("corrupt sample: not an object", where=str(path))
    return data


def _scale(data: Mapping[str, Any], path: Path) -> Scale:
    if data["schema"] != SCHEMA:
        raise RecordsError(
            f"sample schema {data['schema']!r} is not known to this nearmetal, which reads {SCHEMA}",
            where=str(path),
            remedy="read it with the nearmetal that wrote it, or upgrade this one",
        )
    try:
        return Scale(tick=int(data["tick"]), page=int(data["page"]))
    except (KeyError, ValueError, TypeError) as e:
        raise RecordsError(f"corrupt header of samples: {e!r}", where=str(path)) from e


def _sample(data: Mapping[str, Any], scale: Scale | None, path: Path) -> Sample:
    if scale is None:
        raise RecordsError("samples without a header", where=str(path))
    try:
        raw = {
            str(scope): {str(name): text.encode("latin-1") for name, text in files.items()}
            for scope, files in data["scopes"].items()
        }
        return Sample(time=float(data["time"]), monotonic=float(data["monotonic"]), scopes=parse(raw, scale))
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise RecordsError(f"corrupt sample: {e!r}", where=str(path)) from e
