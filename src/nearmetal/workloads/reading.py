"""Numbers and metrics out of what other programs print: strict, so that half a number or another locale's is
none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..model.study import Better
from .applications.contract import Metric

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
LONGEST_LINE = 4096  # characters; a longer one is no table's


def number(text: str) -> float | None:
    """The text as a finite number with a decimal point, or None: not 'nan', 'inf', '1,5', '1_0'."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """The text as a whole number from 0, or None."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def words_of_lines(text: str) -> Iterator[list[str]]:
    """Each line of a usual length as its words; empty lines are left out."""
    for line in text.splitlines():
        if len(line) <= LONGEST_LINE and (words := line.split()):
            yield words


def metrics_of(
    declared: Iterable[tuple[str, str, Better]], values: Mapping[str, float], reason: Callable[[str], str]
) -> tuple[Metric, ...]:
    """Each metric (name, unit, better) with its value, in base units, by name; reason: of a name, why it has
    none."""
    return tuple(
        Metric(
            name=name,
            unit=unit,
            better=better,
            value=values.get(name),
            reason="" if name in values else reason(name),
        )
        for name, unit, better in declared
    )
