"""Types of the values in a file with the numbers and claims of a paper. Such a file is TOML, so a
printed figure is a number and no text in quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ...units import Dimension, UnitError, parse
from ..keys import ValueMistake, ValueType, number
from .formula import LONGEST

LARGEST, SMALLEST = 1e30, 1e-30


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueMistake("must be a number")
    found = Decimal(value)
    if not found.is_finite():
        raise ValueMistake("must be a finite number: a paper prints no NaN and no infinity")
    if found and not SMALLEST <= abs(found) <= LARGEST:
        raise ValueMistake(f"must have a magnitude between {SMALLEST:g} and {LARGEST:g}")
    return found


def _rounding(value: object) -> Decimal:
    found = _decimal(value)
    if found < 0:
        raise ValueMistake("must not be negative")
    return found


def _range(value: object) -> tuple[Decimal, Decimal]:
    """Return both ends of a range. For a single number, both are this number.

    Raises ValueMistake.
    """
    if not isinstance(value, list):
        return (_decimal(value),) * 2
    if len(value) != 2:
        raise ValueMistake("must be one number, or a range of two")
    low, high = map(_decimal, value)
    if low > high:
        raise ValueMistake(f"the range is swapped: {low} is more than {high}")
    return low, high


def _ranks(value: object) -> tuple[int, int]:
    low, high = _range(value)
    if low != int(low) or high != int(high) or low < 1:
        raise ValueMistake("must be a number of processes, or a range of two")
    return int(low), int(high)


def _share(value: object) -> tuple[float, float]:
    """Return both ends of a range that is given in percent, as fractions.

    Raises ValueMistake.
    """
    low, high = _range(value)
    if low < 0 or high > 100:
        raise ValueMistake("must be a share between 0 and 100 %, or a range of two")
    return float(low / 100), float(high / 100)


def _rate(value: object) -> float:
    if not isinstance(value, str):
        raise ValueMistake('must be a rate, such as "10 Gbit/s"')
    try:
        return parse(value, Dimension.RATE)
    except UnitError as e:
        raise ValueMistake(str(e)) from e


def _confidence(value: object) -> float:
    found = number(value)
    if not 0.5 < found < 1:
        raise ValueMistake("must be above 0.5 and below 1")
    return found


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueMistake("must be true or false")
    return value


def _text(least: int = 1, most: int = 2000) -> ValueType:
    def read(value: object) -> str:
        text = _quoted(value)
        if not least <= len(text) <= most:
            raise ValueMistake("an empty text" if len(text) < least else f"longer than {most} characters")
        return text

    return ValueType(read, {"type": "string", "minLength": least, "maxLength": most}, plain=False)


def _quoted(value: object) -> str:
    if not isinstance(value, str):
        raise ValueMistake("must be a text in quotes")
    return value


def _matching(expression: str, what: str) -> ValueType:
    compiled = re.compile(expression)

    def read(value: object) -> str:
        text = _quoted(value)
        if not compiled.fullmatch(text):
            raise ValueMistake(f'"{text[:60]}" is not {what}')
        return text

    return ValueType(read, {"type": "string", "pattern": expression}, plain=False)


def _or_pair(read: Callable[[object], Any], one: dict[str, Any]) -> ValueType:
    pair = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
    return ValueType(read, {"anyOf": [one, pair]})


_NUMBER: dict[str, Any] = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
NUMBER = ValueType(_decimal, _NUMBER)
ROUNDING = ValueType(_rounding, _NUMBER | {"minimum": 0})
RANGE = _or_pair(_range, _NUMBER)
RANKS = _or_pair(_ranks, {"type": "integer", "minimum": 1})
SHARE = _or_pair(_share, _NUMBER)
RATE = ValueType(_rate, {"type": "string"})
CONFIDENCE = ValueType(_confidence, {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1})
TRUTH = ValueType(_truth, {"type": "boolean"})
ANY_TEXT = ValueType(_quoted, {"type": "string"}, plain=False)
SOME_TEXT = _text()
FORMULA = _text(most=LONGEST)
NAME = _matching(r"^[^{}/]{1,80}$", "a name of up to 80 characters without { } and /")
PAPER_KEY = _matching(r"^[A-Za-z0-9._-]{1,60}$", "a key: up to 60 letters, digits, . _ and -")
SOURCE = "table, figure or section"
