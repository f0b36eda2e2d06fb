"""Words and lengths of time as the reports write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from ..plain_text import clean as clean
from ..plain_text import one_line as one_line

T = TypeVar("T")


def slug(text: str) -> str:
    """Return a file name of letters, digits, dots and hyphens for a text. It may not be unique."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:80] or "unnamed"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: '1 block', '3 blocks'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def enumerated(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: 'a, b and c'."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def first_of(words: Sequence[str], most: int) -> str:
    """Return the first `most` words as a list, and the number of the others: 'a, b, c and 4 more'."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def thin(items: Sequence[T], at_most: int, keep: Sequence[int] = ()) -> tuple[T, ...]:
    """Return every k-th item in order, so that about at_most remain.

    The last item and the items at the positions in `keep` are returned too.
    """
    if len(items) <= at_most:
        return tuple(items)
    step = -(-len(items) // at_most)
    chosen = sorted({*range(0, len(items), step), len(items) - 1, *keep})
    return tuple(items[i] for i in chosen)


MUCH_TIME = 3600.0
"""Seconds above which a quieter machine helps more than a longer run."""


def show_length(seconds: float) -> str:
    """Return an estimated length of time in the unit that suits it: '20 s', '25 min', '1.9 h'."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def more_time(seconds: float) -> str:
    """Return how much longer a run has to be: 'about 20 s more'. Above MUCH_TIME, add the advice to quieten
    the machine first."""
    return f"about {show_length(seconds)} more" + (
        "; quieten the machine first" if seconds > MUCH_TIME else ""
    )


_UNIT_GAP = re.compile(r"(?<=[\d∞]) (?=[%A-Za-zµ])|(?<=\bn) (?=\d)|(?<=[▲▼=?!]) (?=\w)")


def tight(text: str) -> str:
    """Put no-break spaces between numbers and units, and after the symbols of verdicts, so that no line ends
    there."""
    return _UNIT_GAP.sub("\u00a0", text)
