"""User text made harmless and numbers made short: control and direction marks are shown, never obeyed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_KEPT = {"\n", "\t"}
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def clean(text: str) -> str:
    """Text with every control, direction and invisible character written out as \\u{...}.

    Terminal escapes, right-to-left overrides and lone surrogates in a host name or in what a program said
    would otherwise change what a reader sees. Newline and tab stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(c):x}}}" if unicodedata.category(c) in _UNSAFE and c not in _KEPT else c for c in text
    )


def one_line(text: str) -> str:
    """Cleaned text on one line."""
    return " ".join(clean(text).split())


def slug(text: str) -> str:
    """A file name of letters, digits, dots and hyphens; not unique by itself."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:80] or "unnamed"


def plural(count: int, noun: str) -> str:
    """'1 block', '3 blocks'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def thin(items: Sequence[T], at_most: int, keep: Sequence[int] = ()) -> tuple[T, ...]:
    """Every k-th item so that about at_most remain, in order, and the ones at the positions in keep."""
    if len(items) <= at_most:
        return tuple(items)
    step = -(-len(items) // at_most)
    chosen = sorted({*range(0, len(items), step), len(items) - 1, *keep})
    return tuple(items[i] for i in chosen)


_UNIT_GAP = re.compile(r"(?<=[\d∞]) (?=[%A-Za-zµ])|(?<=\bn) (?=\d)")


def tight(text: str) -> str:
    """Text whose numbers are not parted from their units by a line's end (no-break spaces)."""
    return _UNIT_GAP.sub("\u00a0", text)
