"""Compare the output of a program with a reference, byte by byte or by its numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import BinaryIO

from ..model.study import Reference
from .numbers import PLAIN, plain_number

CHUNK = 1 << 20
#: Most bytes of a file whose numbers are compared; byte by byte there is no limit.
MOST_NUMBERS = 16 << 20
_NUMBER = re.compile(PLAIN)


def difference(found: BinaryIO, wanted: BinaryIO, reference: Reference) -> str:
    """Return the first difference, as text; '' if there is none.

    found, wanted: actual and expected file, both at their beginnings.

    Raises OSError if one cannot be read.
    """
    if reference.numeric:
        return _numbers(found, wanted, reference)
    at = 0
    while True:
        own, other = found.read(CHUNK), wanted.read(CHUNK)
        if own != other:
            return _at(at, own, other)
        if not own:
            return ""
        at += len(own)


def _at(begin: int, own: bytes, other: bytes) -> str:
    for at, (a, b) in enumerate(zip(own, other, strict=False), begin):
        if a != b:
            return f"byte {at + 1} is 0x{a:02x}, not 0x{b:02x}"
    longer = "goes on" if len(own) > len(other) else "ends"
    return f"it {longer} after byte {begin + min(len(own), len(other))}, where the reference does not"


def _numbers(found: BinaryIO, wanted: BinaryIO, reference: Reference) -> str:
    texts = [f.read(MOST_NUMBERS + 1).decode(errors="replace") for f in (found, wanted)]
    if any(len(text) > MOST_NUMBERS for text in texts):
        return f"more than {MOST_NUMBERS >> 20} MiB, whose numbers are not compared"
    own, other = (_pieces(text) for text in texts)
    for number, (a, b) in enumerate(zip_longest(own, other), 1):
        if a is None or b is None:
            rest = a or b or ("", "")
            longer = "goes on with" if b is None else "ends before"
            return f"it {longer} {' '.join(rest).strip()[:60]!r}"
        if a[0] != b[0]:
            return f"{a[0][:60]!r} precedes number {number}, not {b[0][:60]!r}"
        if a[1] != b[1] and not _near(a[1], b[1], reference):
            return f"number {number} is {a[1][:40] or 'missing'}, not {b[1][:40] or 'there'}"
    return ""


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield (text before a number, number). Each run of white space in the text is replaced by one space.

    For text after the last number, the number is empty.
    """
    at = 0
    for match in _NUMBER.finditer(text):
        yield " ".join(text[at : match.start()].split()), match[0]
        at = match.end()
    rest = " ".join(text[at:].split())
    if rest:
        yield rest, ""


def _near(found: str, wanted: str, reference: Reference) -> bool:
    if not found or not wanted:
        return False
    a, b = plain_number(found), plain_number(wanted)
    relative = (reference.tolerance or 0.0) * max(abs(a), abs(b))
    return abs(a - b) <= max(relative, reference.absolute or 0.0)
