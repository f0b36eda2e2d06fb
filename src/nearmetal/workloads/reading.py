"""Parses numbers in the output of other programs, strictly: incomplete numbers and those of other locales are
rejected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
LONGEST_LINE = 4096  # characters; lines of tables are shorter


def number(text: str) -> float | None:
    """Return the text as a finite number with a decimal point; None for 'nan', 'inf', '1,5', '1_0'."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """Return the text as a whole number of at least 0; None if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def words_of_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each line. Empty lines and lines longer than LONGEST_LINE are left out."""
    for line in text.splitlines():
        if len(line) <= LONGEST_LINE and (words := line.split()):
            yield words
