"""JSON out of a program's output, whatever else it printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ...model.record import JsonValue

#: Lines that are tried: whatever a program prints, reading it ends.
TRIED = 1000


def first_object(text: str, mark: str) -> Mapping[str, JsonValue]:
    """The first object that begins a line and holds the key `mark`; empty where there is none. Other lines
    may stand before it and behind it."""
    decoder = json.JSONDecoder()
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    for _ in range(TRIED):
        if not text.startswith("{", at):
            break
        try:
            found, _end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and mark in found:
            return found
        at = text.find("\n{", at) + 1
        if not at:
            break
    return {}


def at_path(value: JsonValue | Mapping[str, JsonValue], *path: str) -> JsonValue:
    """What stands there; None where nothing does."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value if not isinstance(value, Mapping) else dict(value)


def number_at(value: JsonValue | Mapping[str, JsonValue], *path: str) -> float | None:
    """A finite number, or None."""
    found = at_path(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        real = float(found)
    except OverflowError:
        return None
    return real if math.isfinite(real) else None
