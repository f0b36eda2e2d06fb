"""All samples of a sampler on disk: of its file, and of the raw lines of a killed run beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nearmetal.host.counters.procfiles import CounterUnits
from nearmetal.samplers import Sample
from nearmetal.samplers.frames import frames, raw_beside, whole_lines
from nearmetal.samplers.reading import parse_lines


@dataclass(frozen=True, kw_only=True)
class Samples:
    """All samples of a file.

    samples: in the order of the file.
    torn: whether the file or the raw lines end with an incomplete frame or line, which is left out.
    """

    samples: tuple[Sample, ...]
    torn: bool


def read_samples(path: Path) -> Samples:
    """Read a file x.jsonl.zst, and x.jsonl if there is one."""
    kept = list(frames(path.open("rb")))
    lines = b"".join(content for content, _ in kept).splitlines(keepends=True)
    torn = path.stat().st_size > (kept[-1][1] if kept else 0)
    if raw_beside(path).exists():
        with raw_beside(path).open("rb") as file:
            pieces = whole_lines(file, 1 << 20, lines[-1] if lines else b"")
            lines += [line for piece in pieces for line in piece.splitlines(keepends=True)]
        torn = torn or not (raw_beside(path).read_bytes() or b"\n").endswith(b"\n")
    samples: list[Sample] = []
    scale = CounterUnits(tick=0, page=0)
    for line in lines:
        if (head := json.loads(line)).keys() >= {"schema", "tick", "page"}:
            scale = CounterUnits(tick=head["tick"], page=head["page"])
        else:
            samples += parse_lines(line, scale, path)
    return Samples(samples=tuple(samples), torn=torn)
