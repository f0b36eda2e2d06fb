"""Metrics: whether higher or lower is better, and how to find them in the output of a user's program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..keys import SOME_TEXT, beside, key, key_or, matching, number_between, one_of
from .script import ANYWHERE, DECIMAL, FILE_NAME, STREAM, Bounds, DecimalMark, Stream


class Better(StrEnum):
    """Whether a higher or a lower value of a metric is better."""

    LOWER = "lower"
    HIGHER = "higher"


_SCALE = number_between(1e-30, 1e30)
"""A factor beyond these limits is a typing mistake."""
_JSON_PATH = matching(
    r"^(/([^~]|~[01])*|[^./\s][^.\s]*(\.[^.\s]+)*)$",
    "a dotted path such as results.0.seconds, or a JSON Pointer such as /results/0/wall time",
    numbers=True,
)


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric of a user's own program: where its value is in the output, its unit, and whether higher or
    lower is better.

    Exactly one of regex and json_path is set.

    bounds: limits of the value, in `unit`. A run with a value outside them counts as failed.
    """

    name: str
    regex: str | None = key_or(
        None,
        SOME_TEXT,
        "regular expression (Python's) with one group: the number; the first match counts",
        r"Loop time of (\S+)",
    )
    json_path: str | None = key_or(
        None,
        _JSON_PATH,
        "dotted path of the number in JSON output; or a JSON Pointer, which names any key",
        "jobs.0.read.bw",
    )
    file: str | None = key_or(
        None,
        FILE_NAME,
        "a file that it writes, with the number; what it prints if omitted",
        "log.lammps",
    )
    stream: Stream = field(default=Stream.STDOUT, metadata=STREAM)
    decimal: DecimalMark | None = field(default=None, metadata=DECIMAL)
    unit: str = field(
        metadata=key(
            SOME_TEXT,
            "unit of the number; a unit that the group holds too is converted; s, B, B/s, op/s and FLOP/s"
            " are scaled when shown",
            "s",
        )
    )
    scale: float = key_or(
        1.0,
        _SCALE,
        "what the printed number is multiplied by to be in that unit: 1e6 for Mop/s in op/s",
        1_000_000,
        usual=1,
    )
    better: Better = field(metadata=key(one_of(Better), "which way it improves", "lower"))
    bounds: Bounds = field(default=ANYWHERE, metadata=beside(Bounds))
