"""Finds JSON in a program's output among other text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ...model.record import JsonValue

#: Most lines that are tried, so that reading ends for any output.
TRIED = 1000


def first_object(text: str, mark: str) -> Mapping[str, JsonValue]:
    """Return the first object that begins a line and has the key `mark`; empty if there is none.

    Other lines may come before and after it.
    """
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
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value if not isinstance(value, Mapping) else dict(value)


def number_at(value: JsonValue | Mapping[str, JsonValue], *path: str) -> float | None:
    """Return the finite number at a path of keys; None if there is none."""
    found = at_path(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        real = float(found)
    except OverflowError:
        return None
    return real if math.isfinite(real) else None
