"""Find numbers in the output of a user's own program, by a regular expression or by a path into JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..model.expression import LIMIT, search
from ..model.record import JsonValue
from ..model.study import MetricSpec

# Number of characters of an output that are searched, so that a search always ends.
SEARCHED = 8 << 20
_FORTRAN = re.compile(r"([\d.])[dD]([+-]?\d)")
_COMMA = re.compile(r"[+-]?[\d.,]*\d,\d")


class NoNumber(Exception):
    """No number was found. The message says why."""


def metric_value(metric: MetricSpec, text: str) -> float:
    """Return the metric's number from an output, in the unit of the metric.

    Raises NoNumber if there is none.
    """
    try:
        return number_by(metric.regex, text, metric.scale) if metric.regex else _by_path(metric, text)
    except NoNumber as e:
        raise NoNumber(f"metric '{metric.name}': {e}") from e


def number_by(regex: str, text: str, scale: float = 1.0) -> float:
    """Return the number that the only group of a regular expression matches in the text, multiplied by scale.

    Raises NoNumber if there is none.
    """
    try:
        found = search(regex, text)
    except TimeoutError as e:
        raise NoNumber(too_long(regex)) from e
    if found is None or found.group is None:
        raise NoNumber(f"the output holds nothing like {regex}; {ending(text)}")
    if found.cut:
        hint = "; a decimal comma? set LC_ALL: C in its env" if "," in found.cut else ""
        raise NoNumber(f"{regex} takes {found.group!r} out of {found.cut!r}{hint}")
    return _number(found.group, scale)


def ending(text: str) -> str:
    """Return a sentence part that quotes the end of an output, for messages."""
    last = next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")
    return f"the output ends in {last[-200:]!r}" if last else "there is no output"


def too_long(regex: str) -> str:
    """Return the message for a search that took too long."""
    return f"searching for {regex} took longer than {LIMIT:g} s; let fewer parts of it match the same text"


def _by_path(metric: MetricSpec, text: str) -> float:
    path = metric.json_path or ""
    for document in _documents(text):
        found = _walk(document, path.split("."))
        if isinstance(found, bool | list | dict):
            raise NoNumber(f"{path} is not a number")
        if found is not None:
            return _number(found, metric.scale)
    raise NoNumber(f"the output contains no {path} in JSON; {ending(text)}")


def _documents(text: str) -> Iterator[JsonValue]:
    for part in (text, *(line for line in text.splitlines() if line.lstrip().startswith("{"))):
        try:
            document: JsonValue = json.loads(part)
        except (ValueError, RecursionError):
            continue
        yield document


def _walk(value: JsonValue, steps: list[str]) -> JsonValue:
    """Return the value at the path; None if there is none."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _number(value: str | int | float, scale: float) -> float:
    """Return the value as a number, multiplied by scale. Exponents of Fortran (1.5D+03) are accepted.

    Raises NoNumber if it is not a number.
    """
    text = value if isinstance(value, str) else None
    try:
        return float(value if text is None else _FORTRAN.sub(r"\1e\2", text)) * scale
    except (ValueError, OverflowError):
        comma = text is not None and _COMMA.match(text)
        hint = "; a decimal comma? set LC_ALL: C in its env" if comma else ""
        raise NoNumber(f"{str(value)[:80]!r} is not a number{hint}") from None
