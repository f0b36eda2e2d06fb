"""The parts of a user's own program: its script, its files, and the checks of its output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ..keys import (
    REAL,
    SOME_TEXT,
    TEXT,
    ValueMistake,
    ValueType,
    beside,
    key,
    key_or,
    number_between,
    one_of,
    scalar,
)

#: Name of a script in its working directory.
SCRIPT = "script"


class Stream(StrEnum):
    """What a program prints to."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


class DecimalMark(StrEnum):
    """What a comma between two digits means.

    POINT: it divides thousands, as in 1,234.5.
    COMMA: it is the decimal mark, as in 1.234,5.
    LIST: it divides numbers, as in 1.5,2.5.
    """

    POINT = "point"
    COMMA = "comma"
    LIST = "list"


STREAM = key(one_of(Stream), "where its text is searched", "stderr")
DECIMAL = key(
    one_of(DecimalMark),
    "what a comma between digits means: point: 1,234.5; comma: 1.234,5; list: 1.5,2.5 are two numbers",
    "comma",
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference file that an output must equal.

    path: path on the machine.
    tolerance, absolute: None for a comparison byte by byte. Otherwise numbers may differ by this fraction of
        the larger one, or by this amount. The text between the numbers must be equal, except for white space.
    """

    path: str = field(
        metadata=key(
            SOME_TEXT,
            "a file of the machine that the output must equal, byte by byte",
            "./expected.txt",
            name="reference",
        )
    )
    tolerance: float | None = key_or(
        None,
        number_between(0, 1),
        "numbers may differ from the reference by this share, and white space may",
        1e-6,
    )
    absolute: float | None = key_or(None, REAL, "numbers may differ from the reference by this amount", 1e-12)

    @property
    def numeric(self) -> bool:
        return self.tolerance is not None or self.absolute is not None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Interval in which a number must lie, ends included. None means no limit."""

    least: float | None = key_or(None, REAL, "a run with a smaller number counts as failed", 0.1, name="min")
    most: float | None = key_or(None, REAL, "a run with a larger number counts as failed", 60, name="max")

    def hold(self, value: float) -> bool:
        """Return whether a value is in the interval; False for NaN."""
        above = self.least is None or value >= self.least
        below = self.most is None or value <= self.most
        return value == value and above and below

    def __bool__(self) -> bool:
        return self.least is not None or self.most is not None

    def __str__(self) -> str:
        ends = [] if self.least is None else [f"at least {self.least:g}"]
        return " and ".join(ends if self.most is None else [*ends, f"at most {self.most:g}"])


#: No bounds.
ANYWHERE = Bounds()


def interpreter_of(script: str) -> tuple[str, ...] | None:
    """Return the interpreter of a script and its argument, from the first line as Linux reads it.

    The rest of the line after the path is one argument. Returns None if the line names no interpreter.
    """
    first = script.split("\n", 1)[0]
    words = re.split(r"[ \t]+", first[2:].strip(" \t\r"), maxsplit=1)
    return tuple(words) if first.startswith("#!") and words[0].startswith("/") else None


def misnamed(name: str) -> str:
    """Return why a name is not valid for a file below the program's directory; '' if it is valid."""
    parts = _parts(name)
    if not parts or name.startswith("/"):
        return "expected a name below the directory that the program runs in, such as input.txt"
    if ".." in parts:
        return "a name with .. leads out of the directory that the program runs in"
    return ""


def meets(name: str, others: Iterable[str]) -> str | None:
    """Return the first of the other names that conflicts with this one, or None.

    Two names conflict if they are the same path, or if one is a directory that contains the other.
    """
    own = _parts(name)
    for other in others:
        there = _parts(other)
        shared = min(len(own), len(there))
        if own[:shared] == there[:shared]:
            return other
    return None


def _file_name(value: object) -> str:
    text = scalar(value)
    what = misnamed(text)
    if what:
        raise ValueMistake(f'"{text[:60]}": {what}')
    return text


FILE_NAME = ValueType(_file_name, {"type": "string", "pattern": r"^[^/]"}, plain=False)
"""The name of a file below the program's directory."""


@dataclass(frozen=True, kw_only=True)
class VerifySpec:
    """Checks of the output of a user's own program. A run counts only if they pass. At least one of regex and
    reference is set.

    bounds: limits of the number in the group of the regex. Without expected and bounds, any match passes.
    """

    file: str | None = key_or(
        None,
        FILE_NAME,
        "a file that it writes, which is looked at; what it prints if omitted",
        "result.txt",
    )
    stream: Stream = field(default=Stream.STDOUT, metadata=STREAM)
    decimal: DecimalMark | None = field(default=None, metadata=DECIMAL)
    regex: str | None = key_or(
        None,
        SOME_TEXT,
        "regular expression (Python's) that the output must match; ^ and $ mean lines",
        "^converged after",
    )
    expected: str | None = key_or(
        None, TEXT, "what its one group must hold; that it matches is enough if omitted", "SUCCESSFUL"
    )
    bounds: Bounds = field(default=ANYWHERE, metadata=beside(Bounds))
    reference: Reference | None = field(default=None, metadata=beside(Reference))


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]
