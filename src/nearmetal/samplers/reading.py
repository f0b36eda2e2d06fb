"""Reads samples from a file, and parses their raw text to counters by scope. An incomplete end of the file is
ignored; every other error is raised."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..host.counters.procfiles import Counters, CounterUnits, instance_counters, node_counters
from ..host.untrusted import UntrustedDirectory
from ..model.scope import INSTANCE, Scope
from ..records.json_files import parse_json
from .frames import frames
from .sampler import SCHEMA

MOST_SAMPLES, MOST_BYTES = 1_000_000, 256 << 20
"""Largest number and size of the samples that are read from one file, so that they fit in memory."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The counters that were read at one moment.

    time: Unix seconds.
    monotonic: seconds of CLOCK_MONOTONIC of the kernel that counted, less Header.monotonic_ahead. With a
        header from GuestSampler.keep(), this is the clock of the node.
    scopes: counters (host.counters.procfiles) by scope: 'node', 'instance.<name>' of each running instance,
        and 'guest.<name>' as counted by the kernel of the guest. None for a counter that the kernel does not
        provide.
    """

    time: float
    monotonic: float
    scopes: Mapping[Scope, Counters]


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header line in front of lines with samples.

    scale: units of the raw counters.
    time_ahead, monotonic_ahead: seconds by which the clocks in the lines are ahead of the clocks of the node;
        0 unless the lines come from a guest. They are subtracted when samples are read.
    trial: ID of the trial for samples from a guest; else empty.
    windows: (begin, end) of the timed runs of each workload, in seconds of the node's CLOCK_MONOTONIC.
    """

    scale: CounterUnits
    time_ahead: float = 0.0
    monotonic_ahead: float = 0.0
    trial: str = ""
    windows: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def line(self) -> bytes:
        own = {k: v for k, v in vars(self).items() if k != "scale" and v}
        scale = {"schema": SCHEMA, "tick": self.scale.tick, "page": self.scale.page}
        return json.dumps(scale | own).encode() + b"\n"


@dataclass(frozen=True, kw_only=True)
class SampleSection:
    """The samples after one header."""

    header: Header
    samples: tuple[Sample, ...]


def parse_lines(lines: bytes, scale: CounterUnits, path: Path) -> list[Sample]:
    """Parse raw lines to samples. An incomplete last line is left out.

    path: file of the lines, for error messages.
    Raises RecordsError if a line is corrupt.
    """
    whole = lines[: lines.rfind(b"\n") + 1]
    header = Header(scale=scale)
    return [_sample(_object(line, path), header, path) for line in whole.splitlines()]


def read_sections(directory: UntrustedDirectory, name: str) -> Iterator[SampleSection]:
    """Yield the samples of each frame of a file in which every frame begins with a header, as written by
    GuestSampler.keep().

    Raises RecordsError.
    """
    path = directory.path_to(name)
    try:
        left, bytes_left = MOST_SAMPLES, MOST_BYTES
        for content, _ in frames(directory.open_file(name)):
            left, bytes_left = left - content.count(b"\n"), bytes_left - len(content)
            if left < 0 or bytes_left < 0:
                raise OSError(errno.EFBIG, "has more samples than can be read")
            head, _, lines = content.partition(b"\n")
            header = _header(_object(head, path), path)
            samples = (_sample(_object(line, path), header, path) for line in lines.split(b"\n") if line)
            yield SampleSection(header=header, samples=tuple(samples))
    except OSError as e:
        raise RecordsError(
            f"cannot be read: {e.strerror or e}",
            where=str(path),
            remedy="take it from a copy, or remove it to read the results without these samples",
        ) from e


def _object(line: bytes, path: Path) -> dict[str, Any]:
    try:
        data = parse_json(line)
    except ValueError as e:
        raise RecordsError(f"corrupt sample: {e}", where=str(path)) from e
    if type(data) is not dict:
        raise RecordsError("corrupt sample: not an object", where=str(path))
    return data


def _header(data: Mapping[str, Any], path: Path) -> Header:
    if data.get("schema") != SCHEMA:
        raise RecordsError(
            f"sample schema {data.get('schema')!r} is not known to this nearmetal, which reads {SCHEMA}",
            where=str(path),
            remedy="read it with the nearmetal that wrote it, or upgrade this one",
        )
    try:
        return Header(
            scale=CounterUnits(tick=int(data["tick"]), page=int(data["page"])),
            time_ahead=float(data.get("time_ahead", 0.0)),
            monotonic_ahead=float(data.get("monotonic_ahead", 0.0)),
            trial=str(data.get("trial", "")),
            windows={
                str(workload): tuple((float(begin), float(end)) for begin, end in own)
                for workload, own in data.get("windows", {}).items()
            },
        )
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise RecordsError(f"corrupt header of samples: {e!r}", where=str(path)) from e


def _sample(data: Mapping[str, Any], header: Header, path: Path) -> Sample:
    try:
        scopes: dict[Scope, Counters] = {}
        for text, files in data["scopes"].items():
            scope = Scope.parse(text)
            parse = instance_counters if scope.kind == INSTANCE else node_counters
            raw = {name: content.encode("latin-1") for name, content in files.items()}
            scopes[scope] = parse(raw, header.scale)
        return Sample(
            time=float(data["time"]) - header.time_ahead,
            monotonic=float(data["monotonic"]) - header.monotonic_ahead,
            scopes=scopes,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise RecordsError(f"corrupt sample: {e!r}", where=str(path)) from e
