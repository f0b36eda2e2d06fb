"""Reads lines of JSON that our programs print inside instances. Root of an instance can print anything."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ..errors import RunError

T = TypeVar("T")


class FirstInstruction(msgspec.Struct, frozen=True):
    """The report of nm-init. first: CLOCK_MONOTONIC at the first instruction, in ns."""

    first: int


def read_reply(text: str | bytes, kind: type[T], where: str) -> T:
    """Return a line of JSON as a value of a type.

    where: the program or file that the line came from, for error messages.

    Raises RunError if the line has another form.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as e:
        raise RunError(f"not the line that nearmetal's program prints: {e}", where=where) from e
