"""Quantities with units: converts text to base units, and base units to text for people. Imports no other
module of nearmetal.

Base units are s, B, B/s, shares (0.03 = 3 %) and plain counts. Text is converted only here, and exactly:
factors are applied in decimal arithmetic, so that `parse(exact(value, dimension), dimension)` returns the
same float."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from enum import StrEnum
from typing import TypeGuard

MINUS, INFINITY = "−", "∞"


class UnitError(ValueError):
    """A text that is not a valid quantity. The message says what to write instead."""


class Dimension(StrEnum):
    """The dimension of a quantity, which determines the units that it may have."""

    TIME = "time"
    SIZE = "size"
    RATE = "rate"
    SHARE = "share"
    COUNT = "count"


_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZES = {"B": Decimal(1)} | {f"{p}B": Decimal(f) for p, f in (_SI | _IEC).items()}
_UNITS: Mapping[Dimension, Mapping[str, Decimal]] = {
    Dimension.TIME: {
        "ns": Decimal("1e-9"),
        "µs": Decimal("1e-6"),
        "μs": Decimal("1e-6"),  # the Greek letter, which some keyboards give for the micro sign
        "us": Decimal("1e-6"),
        "ms": Decimal("1e-3"),
        "s": Decimal(1),
        "min": Decimal(60),
        "m": Decimal(60),
        "h": Decimal(3600),
        "d": Decimal(86400),
    },
    Dimension.SIZE: _SIZES,
    Dimension.RATE: {f"{u}/s": f for u, f in _SIZES.items()}
    | {f"{p}bit/s": Decimal(f) / 8 for p, f in ({"": 1} | _SI).items()},
    Dimension.SHARE: {"%": Decimal("0.01"), "‰": Decimal("0.001")},
    Dimension.COUNT: {"": Decimal(1)} | {p: Decimal(f) for p, f in (_SI | _IEC).items()},
}
BASE: Mapping[Dimension, str] = {
    Dimension.TIME: "s",
    Dimension.SIZE: "B",
    Dimension.RATE: "B/s",
    Dimension.SHARE: "%",
    Dimension.COUNT: "",
}
EXAMPLES: Mapping[Dimension, tuple[str, ...]] = {
    Dimension.TIME: ("2 ms", "90 s", "10 min", "1h30m"),
    Dimension.SIZE: ("8 B", "4 MiB", "48 MB"),
    Dimension.RATE: ("12.5 MB/s", "1 Gbit/s"),
    Dimension.SHARE: ("3 %", "0.5 %"),
    Dimension.COUNT: ("1000", "2 M"),
}

_NOT_WRITTEN = frozenset({"m", "µs", *(u for u in _UNITS[Dimension.RATE] if "bit" in u)})
"""Units that are read, but not written: a metre, a letter outside ASCII, and bits, which are not rates of
programs."""
# Lengths are limited, so that no input makes the decimal arithmetic below slow. Any float's repr fits.
_NUMBER = r"[+-]?(?:[0-9]{1,320}(?:\.[0-9]{0,340})?|\.[0-9]{1,340})(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([^\s\d.+-][^\s\d]*)?")
_CLOCK_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(d|h|min|m|s)\s*")
_EXACT = Context(prec=800)
_LONGEST = 700


def parse(text: str, dimension: Dimension) -> float:
    """Return a quantity in base units: parse('512 MiB', SIZE) == 536870912.0, parse('3 %', SHARE) == 0.03.

    A time may have several parts, largest first: '1h30m'. Raises UnitError, whose message says what to write.
    """
    return float(_decimal(text, dimension))


def parse_time(text: str) -> float:
    """Return a time in seconds. Raises UnitError."""
    return parse(text, Dimension.TIME)


def parse_size(text: str) -> int:
    """Return a size in whole bytes. Raises UnitError."""
    return _whole(text, Dimension.SIZE)


def parse_count(text: str) -> int:
    """Return a whole number: '2 M' == 2_000_000. Raises UnitError."""
    return _whole(text, Dimension.COUNT)


def parse_rate(text: str) -> float:
    """Return a rate in bytes per second. Raises UnitError."""
    return parse(text, Dimension.RATE)


def parse_share(text: str) -> float:
    """Return a share: '3 %' == 0.03. Raises UnitError."""
    return parse(text, Dimension.SHARE)


def exact(value: float, dimension: Dimension) -> str:
    """Return the shortest text that parses back to exactly this value. Shares are in %, and counts have no
    unit; rates are in bytes.

    Raises UnitError for a value that is not finite.
    """
    if not math.isfinite(value):
        raise UnitError(f"{value} is not a quantity")
    number = Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))
    unit, fixed = BASE[dimension], dimension in (Dimension.SHARE, Dimension.COUNT)
    others = () if fixed or not number else (u for u in units_of(dimension) if u not in _NOT_WRITTEN)
    texts = [f"{_plain(_EXACT.divide(number, _UNITS[dimension][u]))} {u}" for u in (unit, *others)]
    return min(texts, key=len).strip()


def units_of(dimension: Dimension) -> tuple[str, ...]:
    """Return the units that a quantity may have, smallest first if they are multiples of each other."""
    return tuple(u for u in _UNITS[dimension] if u and u != "μs")


def pattern(dimension: Dimension) -> str:
    """Return a regular expression (ECMA dialect, anchored) for the texts that `parse` accepts, for
    editors."""
    number = r"[+]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?"
    units = "|".join(sorted((re.escape(u) for u in _UNITS[dimension] if u), key=len, reverse=True))
    if dimension is Dimension.COUNT:
        return rf"^{number}\s*({units})?$"
    if dimension is Dimension.TIME:
        return rf"^({number}\s*({units})|(\d+(\.\d+)?\s*(d|h|min|m|s)\s*)+)$"
    return rf"^{number}\s*({units})$"


def _decimal(text: str, dimension: Dimension) -> Decimal:
    raw = text.strip()
    units, shown = _UNITS[dimension], _clip(raw)
    clock = _clock(raw) if dimension is Dimension.TIME and len(raw) <= 80 else None
    if clock is not None:
        return clock
    match = _QUANTITY.fullmatch(raw) if len(raw) <= _LONGEST else None
    if match is None:
        raise UnitError(f'"{shown}" is not a {dimension}; write for example "{EXAMPLES[dimension][0]}"')
    number, unit = Decimal(match[1]), match[2] or ""
    if unit not in units:
        raise UnitError(_wrong_unit(shown, match[1], number, unit, dimension))
    value = _EXACT.multiply(number, units[unit])
    if not math.isfinite(float(value)):
        raise UnitError(f'"{shown}" is too large')
    return value


def _clock(text: str) -> Decimal | None:
    """Return the seconds of '1h30m'; None if the text does not have this form, or its parts are not in
    descending order."""
    total, last, at = Decimal(0), Decimal("Infinity"), 0
    while at < len(text):
        part = _CLOCK_PART.match(text, at)
        if part is None or _UNITS[Dimension.TIME][part[2]] >= last:
            return None
        last = _UNITS[Dimension.TIME][part[2]]
        total, at = total + Decimal(part[1]) * last, part.end()
    return total if text else None


def _wrong_unit(shown: str, number_text: str, number: Decimal, unit: str, dimension: Dimension) -> str:
    units = _UNITS[dimension]
    if not unit:
        base = BASE[dimension]
        if dimension is Dimension.SHARE and 0 < abs(number) < 1 and len(number_text) <= 12:
            as_percent = _plain(number * 100)
            return f'"{shown}" has no unit; write "{as_percent} %" (or "{number_text} %" if that is meant)'
        return f'"{shown}" has no unit; write "{_clip(number_text)} {base}"'
    if dimension in (Dimension.SIZE, Dimension.RATE) and unit.casefold() in ("k", "kb", "kb/s"):
        end = "B/s" if dimension is Dimension.RATE else "B"
        return (
            f'"{shown}": write "{_clip(number_text)} k{end}" (1000) or "{_clip(number_text)} Ki{end}" (1024)'
        )
    meant = [u for u in units if u and u.casefold() == unit.casefold()]
    meant += [u for u in units if u == f"{unit}B" or u == f"{unit}B/s" or u == f"{unit}/s"]
    if meant:
        return f'"{shown}": unknown unit; did you mean "{_clip(number_text)} {meant[0]}"?'
    if dimension is Dimension.COUNT:
        prefixes = ", ".join(units_of(dimension))
        return f'"{shown}" is a plain number: write it without a unit, or with one of {prefixes}'
    return (
        f'"{shown}": unknown unit "{_clip(unit)}"; a {dimension} has one of {", ".join(units_of(dimension))}'
    )


def _whole(text: str, dimension: Dimension) -> int:
    value = _decimal(text, dimension)
    if value != value.to_integral_value(context=_EXACT):
        raise UnitError(
            f'"{_clip(text.strip())}" is not a whole number{" of bytes" * (dimension is Dimension.SIZE)}'
        )
    if abs(value) >= 2**63:
        raise UnitError(f'"{_clip(text.strip())}" is too large')
    return int(value)


def _plain(number: Decimal) -> str:
    """Return the digits without an exponent if that is readable: '3', '0.05'; else '5E-322'."""
    number = number.normalize(_EXACT)
    _, digits, exponent = number.as_tuple()
    short = isinstance(exponent, int) and -20 <= exponent <= 20 and len(digits) <= 40
    return f"{number:f}" if short else str(number)


def _clip(text: str) -> str:
    """Return the text, made safe for a message: printable, and not longer than a line."""
    clean = "".join(c if c.isprintable() else "�" for c in text[:60])
    return clean if len(text) <= 40 else f"{clean[:37]}…"


# ---------------------------------------------------------------------------------------------- for people

_PREFIXES_SI = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18))
_PREFIXES_IEC = tuple((p, 1024.0**i) for i, p in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
# 0.10 µs, not 100 ns: message latencies are read in µs (the field's habit).
_TIMES = (("ns", 1e-9, 0.0), ("µs", 1e-6, 1e-7), ("ms", 1e-3, 1e-3), ("s", 1.0, 1.0))
_SCALED = frozenset({"B", "bit", "op", "FLOP", "Hz", "B/s", "bit/s", "op/s", "FLOP/s"})


def show(
    value: float, unit: str, *, half_width: float | None = None, signed: bool = False, binary: bool = False
) -> str:
    """Return a value in base units as text with a suitable unit: show(74.9e9, 'B/s') == '74.9 GB/s',
    show(1e-7, 's') == '0.10 µs'.

    half_width: half-width of the value's interval, in the same unit. The value is rounded to the first
        significant digit of the half-width. Without it, three significant digits are shown (two for times).
    signed: '+' before positive values.
    binary: KiB, MiB for bytes.

    Units other than s, B, bit, op, FLOP and Hz (or these per second) are not scaled.
    """
    if math.isnan(value):
        return "unknown"
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    size = abs(value)
    if math.isinf(size):
        return f"{sign}{INFINITY} {unit}".rstrip()
    steps = _steps(unit, binary=binary)
    index = max((i for i, (_, _, least) in enumerate(steps) if size >= least), default=0)
    if size == 0:  # zero is shown in the unit of its interval, or in the base unit
        reach = half_width if half_width and math.isfinite(half_width) else 1.0
        index = max((i for i, (_, f, least) in enumerate(steps) if reach >= least and f <= 1.0), default=0)
    name, factor, _ = steps[index]
    text = _digits(size / factor, unit, factor, half_width)
    if index + 1 < len(steps) and float(text) * factor >= steps[index + 1][2] > size:
        name, factor, _ = steps[index + 1]  # 999.96 MB is 1.00 GB, not 1000 MB
        text = _digits(size / factor, unit, factor, half_width)
    if float(text) == 0:
        sign = ""
    return f"{sign}{text} {name}".rstrip()


def scale_of(value: float, unit: str) -> tuple[str, float]:
    """Return a unit that suits a value, and the size of that unit in base units: ('GB/s', 1e9) for 74.9e9
    B/s."""
    name, factor = unit, 1.0
    for n, f, least in _steps(unit, binary=False):
        if abs(value) >= least:
            name, factor = n, f
    return name, factor


def show_overhead(overhead: float, *, half_width: float | None = None) -> str:
    """Return a time-equivalent overhead (0.011 = 1.1 %) as text: '+1.1 %', '−0.2 %'; from +100 % as a factor:
    '×3.9'.

    half_width: half-width of its interval, as a share. It determines the number of digits.
    """
    if math.isnan(overhead):
        return "unknown"
    if overhead == -math.inf:
        return f"{MINUS}{INFINITY} %"
    if overhead >= 1:
        return f"×{_factor(1 + overhead, half_width)}"
    return f"{_percent(overhead, half_width)} %"


def show_interval(low: float, high: float, *, factor: bool | None = None) -> str:
    """Return an interval of overheads as text: '[−0.5 … +0.8]' in percent, '[3.4 … 4.4]' as factors.

    An infinite end is '−∞' or '∞'. If both ends are infinite, the text is '[no interval]'.

    factor: True for factors, False for percent. If None, factors are shown where the geometric centre of the
        interval is at least ×2.
    """
    if math.isnan(low) or math.isnan(high):
        return "[unknown]"
    # exp(-inf) - 1 = -1: nothing is known about the lower end.
    bounded_low, bounded_high = low > -1, math.isfinite(high)
    if low <= -1 and high == math.inf:
        return "[no interval]"
    half = (high - low) / 2 if bounded_low and bounded_high else None
    if factor is None:
        factor = low >= 1 or (half is not None and math.sqrt(1 + low) * math.sqrt(1 + high) >= 2)
    ends = [
        (_factor(1 + end, half) if factor else _percent(end, half)) if bounded else unbounded
        for end, bounded, unbounded in (
            (low, bounded_low, f"{MINUS}{INFINITY}"),
            (high, bounded_high, INFINITY),
        )
    ]
    return f"[{ends[0]} … {ends[1]}]"


def show_effect(overhead: float, low: float, high: float) -> str:
    """Return overhead and interval in the same form and with the same number of digits: '+0.2 % [−0.5 …
    +0.8]'."""
    half = (high - low) / 2 if low > -1 and math.isfinite(high) else None
    return f"{show_overhead(overhead, half_width=half)} {show_interval(low, high, factor=overhead >= 1)}"


def show_clock(seconds: float) -> str:
    """Return hours, minutes and seconds: '0:01:27'; '?' if the time is unknown."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _steps(unit: str, *, binary: bool) -> tuple[tuple[str, float, float], ...]:
    """Return each unit with its size in base units and the smallest value shown in it, in ascending order."""
    if unit == "s":
        return _TIMES
    if unit in _SCALED:
        prefixes = _PREFIXES_IEC if binary and unit.startswith("B") else _PREFIXES_SI
        return tuple((p + unit, f, f if p else 0.0) for p, f in prefixes)
    return ((unit, 1.0, 0.0),)


def _digits(scaled: float, unit: str, factor: float, half_width: float | None) -> str:
    if _known(half_width):
        return f"{scaled:.{_decimals(half_width / factor)}f}"
    if unit == "B" and scaled == round(scaled) and scaled < 1e15:
        return f"{scaled:.0f}"  # sizes are known exactly: '384 MB', not '384.0 MB'
    if scaled == 0:
        return "0"
    figures = 2 if unit == "s" else 3
    exponent = int(f"{scaled:.{figures - 1}e}".partition("e")[2])  # after rounding: 0.9996 has the exponent 0
    return f"{scaled:.{min(max(figures - 1 - exponent, 0), 12)}f}"


def _known(half_width: float | None) -> TypeGuard[float]:
    return half_width is not None and half_width > 0 and math.isfinite(half_width)


def _decimals(half_width: float) -> int:
    """Return how many decimals a value has so that its last digit is the first significant one of the
    half-width."""
    return min(max(0, -math.floor(math.log10(half_width))), 12) if half_width > 0 else 12


def _percent(share: float, half_width: float | None) -> str:
    """Return a share in percent: '+1.1', '−0.2', '0.0'.

    It has one decimal, up to three if the interval is narrow, none if it is wide.
    """
    decimals = 1
    if _known(half_width):
        decimals = 0 if half_width >= 0.1 else min(max(1, _decimals(half_width * 100)), 3)
    text = f"{abs(share) * 100:.{decimals}f}"
    sign = "" if float(text) == 0 else MINUS if share < 0 else "+"
    return f"{sign}{text}"


def _factor(factor: float, half_width: float | None) -> str:
    if math.isinf(factor):
        return INFINITY
    if _known(half_width):
        return f"{factor:.{_decimals(half_width)}f}"
    return f"{factor:.{1 if factor < 10 else 0}f}"
