"""Finds JSON in a program's output among other text, and values in it by their paths."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ..model.record import JsonValue

_LINE = re.compile(r"[^\n]+")
#: Most places without JSON that are tried, since Python counts the lines of the text at each of them.
_TRIED = 1000


def documents(text: str) -> Iterator[JsonValue]:
    """Yield the JSON objects and lists in a text, in order.

    One begins at the first { of a line, or at a [ that is the first character of a line. Text may come before
    and after it. Values within an object or list that is damaged are not yielded, up to the damage. None are
    yielded behind JSON that is too large for Python.
    """
    decoder, end, tried = json.JSONDecoder(), 0, 0
    for line in _LINE.finditer(text):
        head, brace, _ = line[0].partition("{")
        places = [line.start() + line[0].find("[")] if line[0].lstrip().startswith("[") else []
        # Behind a quotation mark, { opens a value inside of a damaged object.
        places += [line.start() + len(head)] if brace and '"' not in head else []
        for at in places:
            if at < end:
                continue
            try:
                document, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError as e:
                end, tried = max(e.pos, at + 1), tried + 1
                if tried == _TRIED:
                    return
            except (ValueError, RecursionError):  # a number of thousands of digits; too many levels
                return
            else:
                yield document


def first_object(text: str, mark: str) -> Mapping[str, JsonValue]:
    """Return the first object that has the key `mark`; empty if there is none. Other text may come before and
    after it."""
    return next((d for d in documents(text) if isinstance(d, dict) and mark in d), {})


def value_at(value: JsonValue, path: str) -> JsonValue:
    """Return the value at a JSON Pointer (RFC 6901) or at a dotted path; None if there is none.

    In a dotted path, neighbouring steps may together be a key that contains a point.
    """
    if path.startswith("/"):
        steps = [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
        return _walk(value, steps)
    return _walk(value, path.split("."), points=True)


def _walk(value: JsonValue, steps: Sequence[str], *, points: bool = False) -> JsonValue:
    """Return the value at a path; None if there is none.

    points: whether several steps, joined by points, may be one key.
    """
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(value, list):
        index = step.isascii() and step.isdecimal() and len(step) < 10 and int(step) < len(value)
        return _walk(value[int(step)], rest, points=points) if index else None
    if not isinstance(value, dict):
        return None
    for n in range(1, len(steps) + 1 if points else 2):
        found = value.get(".".join(steps[:n]))
        below = None if found is None else _walk(found, steps[n:], points=points)
        if below is not None:
            return below
    return None


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
