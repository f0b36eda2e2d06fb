"""Samples back from a file: raw text -> counters by scope; tolerant of a torn end, strict about the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..host.procfiles import Counters, Scale, instance_counters, node_counters
from .frames import frames
from .sampler import SCHEMA


@dataclass(frozen=True, kw_only=True)
class Sample:
    """time: Unix seconds; monotonic: seconds of the node's clock; scopes: counters (host.procfiles) of 'node'
    and of each 'instance.<name>' that stood. A counter that the machine does not give is None."""

    time: float
    monotonic: float
    scopes: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """samples: in the order they were taken; torn: the file ends in a frame that was being written when its
    writer was killed, which is left out."""

    samples: tuple[Sample, ...]
    torn: bool


def parse(raw: Mapping[str, Mapping[str, bytes]], scale: Scale) -> dict[str, Counters]:
    """Raw files by scope and name -> counters by scope; pure."""
    return {
        scope: node_counters(files, scale) if scope == "node" else instance_counters(files, scale)
        for scope, files in raw.items()
    }


def read_samples(path: Path) -> Samples:
    """Raises RecordsError when the file cannot be read, is of another schema or is corrupt inside a frame."""
    samples: list[Sample] = []
    scale: Scale | None = None
    whole = 0
    try:
        for content, end in frames(path):
            whole = end
            for line in content.splitlines():
                data = _object(line, path)
                if "schema" in data:
                    scale = _scale(data, path)
                elif scale is None:
                    raise RecordsError("samples without a header", where=str(path))
                else:
                    samples.append(_sample(data, scale, path))
        size = path.stat().st_size
    except OSError as e:
        raise RecordsError(f"cannot be read: {e.strerror or e}", where=str(path)) from e
    return Samples(samples=tuple(samples), torn=size > whole)


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


def _sample(data: Mapping[str, Any], scale: Scale, path: Path) -> Sample:
    try:
        raw = {
            str(scope): {str(name): text.encode("latin-1") for name, text in files.items()}
            for scope, files in data["scopes"].items()
        }
        return Sample(time=float(data["time"]), monotonic=float(data["monotonic"]), scopes=parse(raw, scale))
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise RecordsError(f"corrupt sample: {e!r}", where=str(path)) from e
