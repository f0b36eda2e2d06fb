"""Quantities: text to base units and back, exactly; and how values look to a person."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.units import (
    EXAMPLES,
    INFINITY,
    MINUS,
    Dimension,
    UnitError,
    exact,
    parse,
    parse_count,
    parse_rate,
    parse_share,
    parse_size,
    parse_time,
    pattern,
    scale_of,
    show,
    show_clock,
    show_effect,
    show_interval,
    show_overhead,
    units_of,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False, min_value=0)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("512 MiB", Dimension.SIZE, 512 * 2**20),
        ("48 MB", Dimension.SIZE, 48_000_000),
        ("8B", Dimension.SIZE, 8),
        ("0.5 KiB", Dimension.SIZE, 512),
        ("2 ms", Dimension.TIME, 0.002),
        ("0.1 µs", Dimension.TIME, 1e-7),
        ("0.1 us", Dimension.TIME, 1e-7),
        ("10m", Dimension.TIME, 600),
        ("10 min", Dimension.TIME, 600),
        ("1h30m", Dimension.TIME, 5400),
        ("1 h 30 min 15 s", Dimension.TIME, 5415),
        ("1.5h", Dimension.TIME, 5400),
        ("2d", Dimension.TIME, 172_800),
        ("3 %", Dimension.SHARE, 0.03),
        ("3%", Dimension.SHARE, 0.03),
        ("-0.5 %", Dimension.SHARE, -0.005),
        ("2 ‰", Dimension.SHARE, 0.002),
        ("2 M", Dimension.COUNT, 2_000_000),
        ("1e3", Dimension.COUNT, 1000),
        ("4 Ki", Dimension.COUNT, 4096),
        ("12.5 MB/s", Dimension.RATE, 12.5e6),
        ("1 Gbit/s", Dimension.RATE, 1.25e8),
    ],
)
def test_text_becomes_base_units(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == value
    assert re.fullmatch(pattern(dimension), text.lstrip("-")), "editors take it too"


def test_the_dimensions_have_functions_of_their_own() -> None:
    assert parse_time("90 s") == 90.0
    assert parse_rate("1 kB/s") == 1000.0
    assert parse_share("3 %") == 0.03
    assert parse_size("4 MiB") == 4 * 2**20
    assert parse_count("2 M") == 2_000_000
    assert isinstance(parse_size("4 MiB"), int)


@pytest.mark.parametrize(
    ("text", "dimension", "told"),
    [
        ("3", Dimension.SHARE, '"3" has no unit; write "3 %"'),
        ("0.03", Dimension.SHARE, 'write "3 %" (or "0.03 %" if that is meant)'),
        ("90", Dimension.TIME, '"90" has no unit; write "90 s"'),
        ("512", Dimension.SIZE, 'write "512 B"'),
        ("512M", Dimension.SIZE, 'did you mean "512 MB"?'),
        ("5 KB", Dimension.SIZE, 'write "5 kB" (1000) or "5 KiB" (1024)'),
        ("5 mib", Dimension.SIZE, 'did you mean "5 MiB"?'),
        ("5 MB", Dimension.RATE, 'did you mean "5 MB/s"?'),
        ("5 S", Dimension.TIME, 'did you mean "5 s"?'),
        ("5 parsec", Dimension.TIME, "a time has one of ns, µs"),
        ("3 s", Dimension.COUNT, "is a plain number: write it without a unit"),
        ("fast", Dimension.TIME, 'write for example "2 ms"'),
        ("", Dimension.SHARE, 'write for example "3 %"'),
        ("1m2h", Dimension.TIME, "is not a time"),
        ("1h30", Dimension.TIME, "is not a time"),
        ("nan s", Dimension.TIME, "is not a time"),
        ("inf s", Dimension.TIME, "is not a time"),
        ("1e999 s", Dimension.TIME, "is too large"),
        ("3 4 %", Dimension.SHARE, "is not a share"),
        ("9" * 5000, Dimension.COUNT, "is not a count"),
        ("1,5 s", Dimension.TIME, "1,5 s"),
        ("٣ %", Dimension.SHARE, "is not a share"),
    ],
)
def test_mistakes_say_what_to_write(text: str, dimension: Dimension, told: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 250


def test_bytes_and_counts_are_whole_and_bounded() -> None:
    for text in ("0.3 B", "1.5 B"):
        with pytest.raises(UnitError, match="whole number of bytes"):
            parse_size(text)
    with pytest.raises(UnitError, match="not a whole number"):
        parse_count("0.5")
    with pytest.raises(UnitError, match="too large"):
        parse_count("9223372036854775808")


@given(FLOATS, st.sampled_from([Dimension.TIME, Dimension.RATE, Dimension.SHARE]))
def test_exact_text_gives_the_same_float_back(value: float, dimension: Dimension) -> None:
    text = exact(value, dimension)
    if value > 1e305 and dimension is Dimension.SHARE:
        return  # in percent beyond what a float holds; shares are bounded where they are read
    assert parse(text, dimension) == value


@given(st.integers(0, 2**63 - 1))
def test_exact_text_gives_the_same_whole_number_back(value: int) -> None:
    assert parse_size(exact(value, Dimension.SIZE)) == value
    assert parse_count(exact(value, Dimension.COUNT)) == value


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (1 << 30, Dimension.SIZE, "1 GiB"),
        (1000, Dimension.SIZE, "1 kB"),
        (0, Dimension.SIZE, "0 B"),
        (1.25e8, Dimension.RATE, "125 MB/s"),
        (60.0, Dimension.TIME, "60 s"),
        (5e-5, Dimension.TIME, "50 us"),
        (0.3, Dimension.TIME, "0.3 s"),
        (0.03, Dimension.SHARE, "3 %"),
        (2000, Dimension.COUNT, "2000"),
    ],
)
def test_exact_text_is_short(value: float, dimension: Dimension, text: str) -> None:
    assert exact(value, dimension) == text


@given(st.text(max_size=40), st.sampled_from(Dimension))
def test_any_text_is_a_quantity_or_a_unit_error(text: str, dimension: Dimension) -> None:
    try:
        assert math.isfinite(parse(text, dimension))
    except UnitError as e:
        assert str(e).isprintable()


@given(st.from_regex(r"\A[0-9+-.eE]{1,12} ?[A-Za-zµ%/]{0,6}\Z"), st.sampled_from(Dimension))
def test_schema_pattern_accepts_what_the_parser_accepts(text: str, dimension: Dimension) -> None:
    try:
        value = parse(text, dimension)
    except UnitError:
        return
    assert value < 0 or text.startswith("-") or re.fullmatch(pattern(dimension), text.strip())


@given(st.decimals(0, 999, places=2), st.data())
def test_every_unit_is_read_with_and_without_a_space(number: object, data: st.DataObject) -> None:
    dimension = data.draw(st.sampled_from(Dimension))
    unit = data.draw(st.sampled_from(units_of(dimension)))
    assert parse(f"{number} {unit}", dimension) == parse(f"{number}{unit}", dimension)


def test_the_examples_are_quantities() -> None:
    for dimension, texts in EXAMPLES.items():
        for text in texts:
            assert parse(text, dimension) > 0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (74.9e9, "B/s", "74.9 GB/s"),
        (6.61e9, "op/s", "6.61 Gop/s"),
        (183e6, "op/s", "183 Mop/s"),
        (1e-7, "s", "0.10 µs"),
        (95e-9, "s", "95 ns"),
        (4.4e-6, "s", "4.4 µs"),
        (2.1e-3, "s", "2.1 ms"),
        (12.3, "s", "12 s"),
        (137.4, "s", "137 s"),
        (384e6, "B", "384 MB"),
        (8, "B", "8 B"),
        (1_234_567, "B", "1.23 MB"),
        (0, "s", "0 s"),
        (0, "B/s", "0 B/s"),
        (-1.7e-3, "s", f"{MINUS}1.7 ms"),
        (999.96e6, "B/s", "1.00 GB/s"),
        (9.996e-4, "s", "1.0 ms"),
        (99.96e-9, "s", "0.10 µs"),
        (123.456, "ns/day", "123 ns/day"),
        (0.00123, "", "0.00123"),
        (math.inf, "s", f"{INFINITY} s"),
        (-math.inf, "", f"{MINUS}{INFINITY}"),
        (math.nan, "s", "unknown"),
    ],
)
def test_values_as_a_person_reads_them(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


def test_figures_follow_the_interval() -> None:
    assert show(74.912e9, "B/s", half_width=3e8) == "74.9 GB/s"
    assert show(74.912e9, "B/s", half_width=3e9) == "75 GB/s"
    assert show(74.912e9, "B/s", half_width=2e6) == "74.912 GB/s"
    assert show(1.7234e-3, "s", half_width=4e-6, signed=True) == "+1.723 ms"
    assert show(0, "s", half_width=2e-3) == "0 ms"
    assert show(1.7e-3, "s", half_width=math.inf) == "1.7 ms"
    assert show(4 * 2**20, "B", binary=True) == "4 MiB"
    assert show(1.5 * 2**30, "B/s", binary=True) == "1.50 GiB/s"


@given(st.floats(1e-12, 1e20), st.sampled_from(["s", "B", "B/s", "op/s", "FLOP/s", "items"]))
def test_a_shown_value_reads_back_within_its_figures(value: float, unit: str) -> None:
    text, _, shown_unit = show(value, unit).partition(" ")
    factor = {
        **{f"{p}{unit}": 10.0**n for p, n in zip(("", *"kMGTPE"), range(0, 21, 3), strict=True)},
        **({"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1} if unit == "s" else {}),
    }[shown_unit]  # fmt: skip
    assert float(text) * factor == pytest.approx(value, rel=0.055 if unit == "s" else 0.0055, abs=1e-12)
    if unit in ("B/s", "op/s", "FLOP/s") and 1 <= value < 1e20:
        assert 1 <= float(text) < 1000


@given(st.floats(1e-12, 1e20), st.sampled_from(["s", "B/s", "items"]))
def test_the_scale_is_that_of_the_shown_value(value: float, unit: str) -> None:
    shown = show(value, unit).partition(" ")[2]
    assert shown in (scale_of(value, unit)[0], scale_of(value * 1.06, unit)[0]), "the next one after rounding"


@pytest.mark.parametrize(
    ("overhead", "text"),
    [
        (0.011, "+1.1 %"),
        (-0.002, f"{MINUS}0.2 %"),
        (0.0, "0.0 %"),
        (-0.0001, "0.0 %"),
        (0.5, "+50.0 %"),
        (0.99, "+99.0 %"),
        (1.0, "×2.0"),
        (2.9, "×3.9"),
        (58, "×59"),
        (math.inf, f"×{INFINITY}"),
        (math.nan, "unknown"),
    ],
)
def test_overheads(overhead: float, text: str) -> None:
    assert show_overhead(overhead) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.005, 0.008, f"[{MINUS}0.5 … +0.8]"),
        (-0.02, 0.043, f"[{MINUS}2.0 … +4.3]"),
        (0.0101, 0.0107, "[+1.01 … +1.07]"),
        (-0.3, 0.4, f"[{MINUS}30 … +40]"),
        (2.4, 3.4, "[3.4 … 4.4]"),
        (56, 60, "[57 … 61]"),
        (-math.inf, 0.008, f"[{MINUS}{INFINITY} … +0.8]"),
        (-1, math.inf, "[no interval]"),
        (0.01, math.inf, f"[+1.0 … {INFINITY}]"),
        (math.nan, 0.1, "[unknown]"),
    ],
)
def test_intervals(low: float, high: float, text: str) -> None:
    assert show_interval(low, high) == text


def test_overhead_and_interval_are_of_one_form() -> None:
    assert show_effect(0.002, -0.005, 0.008) == f"+0.2 % [{MINUS}0.5 … +0.8]"
    assert show_effect(2.9, 2.4, 3.4) == "×3.9 [3.4 … 4.4]"
    assert show_effect(58, 56, 60) == "×59 [57 … 61]"
    assert show_effect(1.05, 0.8, 1.3) == "×2.0 [1.8 … 2.3]"
    assert show_effect(0.01234, 0.01226, 0.01242) == "+1.234 % [+1.226 … +1.242]"
    assert show_overhead(-0.99915287, half_width=1e-7) == f"{MINUS}99.915 %"


@given(st.floats(-0.9, 50), st.floats(0, 20), st.floats(0, 20))
def test_effects_contain_themselves(overhead: float, below: float, above: float) -> None:
    text = show_effect(overhead, max(overhead - below, -0.99), overhead + above)
    numbers = [float(n.replace(MINUS, "-")) for n in re.findall(rf"[{MINUS}+]?\d+(?:\.\d+)?", text)]
    assert len(numbers) == 3
    assert numbers[1] <= numbers[0] <= numbers[2]


def test_clock() -> None:
    assert show_clock(87) == "0:01:27"
    assert show_clock(3723.4) == "1:02:03"
    assert show_clock(-1) == "0:00:00"
    assert show_clock(math.inf) == "?"
