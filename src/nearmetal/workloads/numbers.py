"""Read numbers from the output of programs: whole, with sign, exponent and unit, or not at all.

Users' expressions and the parsers of applications both read their numbers here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..model.study import DecimalMark

LONGEST_LINE = 4096  # characters; lines of tables are shorter

_MINUS = "\u2212"
_SIGN = f"+{_MINUS}-"
_EXPONENT = rf"(?:[eEdD][{_SIGN}]?[0-9]+)"
#: A number with a decimal point and without marks between its digits. Fortran writes exponents with a D.
PLAIN = rf"[{_SIGN}]?(?:[0-9]+\.?[0-9]*|\.[0-9]+){_EXPONENT}?"
#: Marks that group digits in every notation: apostrophes, and blanks at which no line ends.
_GROUPS = "'\u2019\u00a0\u202f\u2009"
_PLAIN = re.compile(PLAIN)
_GROUPED = re.compile(rf"[{_SIGN}]?[0-9]{{1,3}}([,_{_GROUPS}])[0-9]{{3}}(?:\1[0-9]{{3}})*(?:\.[0-9]*)?")
_WORD = re.compile(rf"[{_SIGN}]?(?:inf(?:inity)?|nan)", re.IGNORECASE)
_MARKS = re.compile(rf"[,_{_GROUPS}]")
_CLOCK = re.compile(r"[0-9:.hmin ]+s?")
_CLOCK_PART = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BEHIND = re.compile(r" ?([^\W\d_](?:[\w/]|-(?=[^\W\d_]))*)")
_VALUE_OF_LABEL = re.compile(r" *[=:]? *[0-9.]")
_TRANSLATED = str.maketrans(f"dD{_MINUS}", "ee-")
_COMMA_AND_POINT = str.maketrans(",.", ".,")
_AROUND = 200  # characters before and behind a match in which the rest of its number is searched
_LONGEST = 400  # characters of a number; the largest float without an exponent has 309 digits

_SI = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DECIMAL = _SI | {"K": 1e3}  # of units with which K does not mean 1024
_IEC = {f"{prefix}i": 1024.0**n for n, prefix in enumerate("KMGT", 1)}
_PARTS = {
    "m": 1e-3,
    "milli": 1e-3,
    "u": 1e-6,
    "\u00b5": 1e-6,
    "\u03bc": 1e-6,
    "micro": 1e-6,
    "n": 1e-9,
    "nano": 1e-9,
}
_ALONE = {"": 1.0}
_UNITS = {
    f"{prefix}{name}": (unit, size * factor)
    for unit, size, names, prefixes in (
        ("s", 1.0, "s sec secs second seconds", _ALONE | _PARTS),
        ("s", 60.0, "min minute minutes", _ALONE),
        ("s", 3600.0, "h hour hours", _ALONE),
        ("B", 1.0, "B", _SI | _IEC),
        ("B", 1.0, "byte bytes", _ALONE),
        ("B/s", 1.0, "B/s B/sec Bps", _SI | _IEC),
        ("B/s", 1.0, "byte/s bytes/s bytes/sec", _ALONE),
        ("B/s", 0.125, "bit/s bits/s bit/sec bits/sec bps", _DECIMAL),
        ("op/s", 1.0, "op/s ops/s op/sec ops/sec IOPS", _DECIMAL),
        ("FLOP/s", 1.0, "FLOP/s FLOPs/s FLOPS FLOPs Flop/s Flops flop/s flops", _DECIMAL),
    )
    for name in names.split()
    for prefix, factor in prefixes.items()
}
"""By unit as programs print it: its base unit, and how many of these it is. Units that may have two sizes
(KB, MBytes) are missing."""
_BYTES = ("B", "B/s")


class NoNumber(Exception):
    """No number was found. The message says why, and what to write instead."""


class NothingFound(NoNumber):
    """The text holds nothing where a number was searched."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number, and the text that it was read from."""

    value: float
    text: str


def number(text: str) -> float | None:
    """Return the text as a finite number with a decimal point; None for 'nan', 'inf', '1,5', '1_0'."""
    if len(text) > _LONGEST or not _PLAIN.fullmatch(text):
        return None
    value = plain_number(text)
    return value if math.isfinite(value) else None


def whole(text: str) -> int | None:
    """Return the text as a whole number of at least 0; None if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def words_of_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each line. Empty lines and lines longer than LONGEST_LINE are left out."""
    for line in text.splitlines():
        if len(line) <= LONGEST_LINE and (words := line.split()):
            yield words


def unit_size(word: str, unit: str) -> float | None:
    """Return how many of `unit` a printed unit is: 1e9 for 'GB/s' in 'B/s'; None if this is not known, or if
    the units are of different kinds.

    A prefix may stand alone (12.3k), and before a unit that is not in the table (2.5 Matoms/s in 'atoms/s').
    """
    printed, wanted = _UNITS.get(word), _UNITS.get(unit)
    if word == unit:
        return 1.0
    if printed is not None and wanted is not None:
        return printed[1] / wanted[1] if printed[0] == wanted[0] else None
    if word in _DECIMAL:
        return None if wanted is not None and wanted[0] == "s" else _DECIMAL[word]
    if wanted is None and word.endswith(unit):
        return (_PARTS | _DECIMAL | _IEC).get(word.removesuffix(unit))
    return None


def read_number(
    text: str,
    begin: int,
    end: int,
    *,
    decimal: DecimalMark | None = None,
    unit: str = "",
    scale: float = 1.0,
) -> Number:
    """Return the number in text[begin:end], converted to `unit` or multiplied by scale.

    A unit within this range is converted. A unit directly behind it must agree with unit and scale.

    unit: unit of the result; '' if it has none.

    Raises NoNumber if the range holds no number or a part of one, or if the unit does not fit.
    """
    at = max(begin - _AROUND, 0)
    at = max(text.rfind("\n", at, begin) + 1, at)
    line_end = text.find("\n", end, end + _AROUND)
    near = text[at : end + _AROUND if line_end < 0 else line_end]
    first, last = begin - at, end - at
    shown = near[first:last].strip()[:80]
    numbers = _pattern(decimal, clock=_base(unit) == "s").finditer(near)
    token = next((n for n in numbers if n.end() > first and n.start() < last), None)
    if token is None:
        raise NoNumber(f"{shown!r} is not a number")
    if "," in token[0] and decimal is None:
        raise NoNumber(
            f"{token[0][:80]!r} has a comma; write what it means: decimal: point (1,234.5), decimal: comma "
            "(1.234,5) or decimal: list (1.5,2.5: two numbers)"
        )
    if token.start() < first or token.end() > last:
        _require_equal(near[max(token.start(), first) : min(token.end(), last)], token[0], decimal)
    value = _value(token[0], decimal)
    before = near[first : token.start()].strip()
    behind = near[token.end() : last].removeprefix(".").strip().rstrip(".,;:)")
    if before or (behind and not unit):
        raise NoNumber(f"{shown!r} is not a number")
    if behind:
        return Number(value=value * _printed_size(shown, behind, unit, scale), text=shown)
    if unit:
        _require_scale(near, token, unit, scale)
    return Number(value=value * scale, text=token[0])


@lru_cache
def _pattern(decimal: DecimalMark | None, *, clock: bool) -> re.Pattern[str]:
    """Return a pattern that finds numbers together with every mark that may belong to them.

    clock: whether it finds times such as 1:02.5 and 1m2.5s.
    """
    marks = f".{_GROUPS}" if decimal is DecimalMark.LIST else f".,{_GROUPS}"
    leading = "," if decimal is DecimalMark.COMMA else "."
    # A hyphen is no sign between words or numbers, nor is the sign of +/-0.5.
    sign = rf"(?:(?<![\w.)\]\u00b1{_SIGN}])(?<!\+/)[{_SIGN}])?"
    # In names such as run_1_5, the underscore divides numbers.
    digits = rf"(?:(?<!\w)[0-9]+(?:[_{marks}][0-9]+)*|[0-9]+(?:[{marks}][0-9]+)*)"
    real = rf"(?:(?<![\w.,])\{leading})?{digits}(?:\.(?=[eEdD][{_SIGN}]?[0-9]))?{_EXPONENT}?"
    power = rf"(?:\s?[x*\u00d7\u00b7]\s?10(?:\^|\*\*)\(?[{_SIGN}]?[0-9]+)?"
    word = r"(?<![^\W\d_])(?i:inf(?:inity)?|nan)(?![^\W\d_])"
    hexadecimal = r"0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?[0-9]+)?"
    fraction = rf"(?:[{marks}][0-9]+)?"
    colons = rf"[0-9]+(?::[0-5][0-9])+{fraction}(?![0-9])"
    letters = rf"(?:[0-9]+ ?h ?)?[0-9]+ ?m(?:in)? ?[0-9]+{fraction} ?s(?![\w/])"
    times = rf"(?<![\w.:])(?:{colons}|{letters})|" if clock else ""
    return re.compile(rf"{times}{hexadecimal}|{sign}(?:{real}{power}|{word})")


def _value(token: str, decimal: DecimalMark | None) -> float:
    if len(token) > _LONGEST:
        raise NoNumber(f"{token[:20]!r} and {len(token) - 20} more characters are not a number")
    text = token.translate(_COMMA_AND_POINT) if decimal is DecimalMark.COMMA else token
    if _PLAIN.fullmatch(text):
        return plain_number(text)
    if _WORD.fullmatch(text):
        return float(text.replace(_MINUS, "-"))
    if _GROUPED.fullmatch(text):
        return plain_number(_MARKS.sub("", text))
    if (":" in text or text.endswith("s")) and _CLOCK.fullmatch(text):
        seconds = 0.0
        for part in _CLOCK_PART.findall(text):
            seconds = 60 * seconds + float(part)
        return seconds
    raise NoNumber(f"{token[:80]!r} is not a number" + (f" with decimal: {decimal}" if decimal else ""))


def plain_number(text: str) -> float:
    """Return the number of a text that PLAIN matches; infinity if it is too large."""
    return float(text.translate(_TRANSLATED))


def _base(unit: str) -> str:
    """Return the base unit of a unit; the unit itself if it is not known."""
    return _UNITS.get(unit, (unit,))[0]


def _require_equal(part: str, token: str, decimal: DecimalMark | None) -> None:
    """Raise NoNumber if a part of a number has another value than the number."""
    # The sign of +5 and the zeros in 0:01.5 change no value.
    if token[0] in "+0":
        try:
            if _value(part, decimal) == _value(token, decimal):
                return
        except NoNumber:
            pass
    raise NoNumber(f"the group takes {part[:80]!r} out of {token[:80]!r}; let it hold all of it: (\\S+)")


def _printed_size(shown: str, word: str, unit: str, scale: float) -> float:
    """Return how many of `unit` the unit is that a group holds. Raises NoNumber if this is not known."""
    if scale != 1:
        raise NoNumber(f"{shown!r} holds its unit; leave out scale")
    size = unit_size(word, unit)
    if size is None or (word in _DECIMAL and _base(unit) in _BYTES):
        what = f"{shown!r}: how many {unit} one {word[:20]} is, is not known"
        raise NoNumber(f"{what}; let the group hold the number alone, and write scale")
    return size


def _require_scale(near: str, token: re.Match[str], unit: str, scale: float) -> None:
    """Raise NoNumber if the word behind a number is a unit that contradicts unit and scale of the metric."""
    following = _BEHIND.match(near, token.end())
    # In '5 min 3 max 9', min is the label of the next number.
    if following is None or _VALUE_OF_LABEL.match(near, following.end()):
        return
    if following[1] in _DECIMAL and following[0] != following[1]:
        return  # a prefix alone is attached to its number
    size, base = unit_size(following[1], unit), _base(unit)
    # MB may have 2**20 bytes.
    ratios = [1.024**n for n in range(5 if base in _BYTES else 1)]
    other = size is None and following[1] in _UNITS and unit in _UNITS
    if other or (size is not None and not any(math.isclose(scale, size * ratio) for ratio in ratios)):
        printed = f"{token[0][-80:]}{following[0]}"
        both = r"(\S+ \S+)" if " " in printed else r"(\S+)"
        raise NoNumber(
            f"{printed!r} contradicts unit: {unit}, scale: {scale:g}; let the group hold the unit too, "
            f"as {both} does, and leave out scale"
        )
