"""Numbers in the output of programs: each is read as itself or refused, never as another number."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearmetal.model.study import DecimalMark
from nearmetal.workloads.numbers import NoNumber, number, read_number, unit_size
from nearmetal.workloads.program_output import number_by

POINT, COMMA, LIST = DecimalMark
WRITTEN = (
    "{:g}",
    "{:.3g}",
    "{:e}",
    "{:.2E}",
    "{:f}",
    "{:.1f}",
    "{!r}",
    "{:+g}",
    "{:+.4f}",
    "{:,.2f}",
    "{:_.2f}",
)
BEFORE = ("", " ", "=", "x= ", "(", "took:", "T ", "[", "1 ", "a,", "value\t")
BEHIND = ("", " ", "s", " ms", ", next", ")", ".", "%", " 2", ";5 ", "\n7", " ,", "/s")


def read(
    regex: str, text: str, decimal: DecimalMark | None = None, unit: str = "", scale: float = 1.0
) -> float:
    return number_by(regex, text, decimal=decimal, unit=unit, scale=scale).value


def written(value: float, form: str, *, comma: bool) -> str:
    text = form.format(value)
    return text.translate(str.maketrans(",.", ".,")) if comma else text


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@given(
    st.floats(),
    st.sampled_from(WRITTEN),
    st.booleans(),
    st.sampled_from(BEFORE),
    st.sampled_from(BEHIND),
    st.data(),
)
def test_any_part_of_a_printed_number_is_the_number_or_refused(
    value: float, form: str, comma: bool, before: str, behind: str, data: st.DataObject
) -> None:
    assume(math.isfinite(value) or not behind[:1].isalpha())  # infs is a word
    printed = written(value, form, comma=comma)
    # 1.234 with a point that divides thousands cannot be told from 1.234; so a comma is asked for.
    decimal = data.draw(
        st.sampled_from([COMMA] if comma and "," not in printed else [None, COMMA if comma else POINT])
    )
    text = f"{before}{printed}{behind}"
    begin = data.draw(st.integers(len(before), len(text) - len(behind)))
    end = data.draw(st.integers(begin, len(text) - len(behind)))
    expected = float(form.replace(",", "").format(value))
    try:
        found = read_number(text, begin, end, decimal=decimal)
    except NoNumber as e:
        complete = (begin, end) == (len(before), len(before) + len(printed))
        assert not complete or (decimal is None and "," in printed and "has a comma" in str(e))
    else:
        assert same(found.value, expected)


@given(st.floats(), st.sampled_from(WRITTEN))
def test_the_parsers_of_applications_read_plain_finite_numbers_alone(value: float, form: str) -> None:
    printed = form.format(value)
    plain = math.isfinite(float(form.replace(",", "").format(value))) and not {",", "_"} & set(printed)
    assert number(printed) == (float(printed) if plain else None)


@given(
    st.text(max_size=30),
    st.sampled_from([None, *DecimalMark]),
    st.sampled_from(["", "s", "B/s", "x"]),
    st.data(),
)
def test_any_text_is_read_or_refused(
    text: str, decimal: DecimalMark | None, unit: str, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    try:
        found = read_number(text, begin, end, decimal=decimal, unit=unit)
    except NoNumber as e:
        assert str(e)
    else:
        assert found.text and isinstance(found.value, float)


@pytest.mark.parametrize(
    ("regex", "text", "unit", "part", "complete"),
    [
        (r"^W[RC].*?([\d.]+)$", "WR11C2R4 35000 192 1224.34 2.3352e+01", "FLOP/s", "01", "2.3352e+01"),
        (r"([\d.]+) s/step", "mean 9.5e-05 s/step", "s", "05", "9.5e-05"),
        (r"E=-?([\d.]+)", "E=-0.5", "s", "0.5", "-0.5"),
        (r"E=.([\d.]+)", "E=\u22120.5", "s", "0.5", "\u22120.5"),
        (r"took (\d+)", "took 1.5e3 s", "s", "1", "1.5e3"),
        (r"took (\d)", "took 42", "s", "4", "42"),
        (r"e=([\d.]+)", "e=1.5D-03", "1", "1.5", "1.5D-03"),
        (r"(\d+) files", "of 12'345 files", "1", "345", "12'345"),
        (r"(\d+) files", "of 12\u202f345 files", "1", "345", "12\u202f345"),
        (r"(\d+)$", "of 1_000_000", "1", "000", "1_000_000"),
        (r"v(\d+\.\d+)", "v2.5.1", "1", "2.5", "2.5.1"),
        (r"=.?(\d+)", "x=.5", "1", "5", ".5"),
        (r"x=(\d+)", "x=0x1f", "1", "0", "0x1f"),
        (r"rate ([\d.]+)", "rate 1.5x10^-3", "1", "1.5", "1.5x10^-3"),
        (r"real\s+\d+m([\d.]+)s", "real\t1m2.345s", "s", "2.345", "1m2.345s"),
        (r"wall.*:([\d.]+)", "Elapsed (wall clock) time (h:mm:ss): 1:02.50", "s", "02.50", "1:02.50"),
    ],
)  # fmt: skip
def test_a_part_of_a_number_is_refused(regex: str, text: str, unit: str, part: str, complete: str) -> None:
    with pytest.raises(NoNumber) as caught:
        read(regex, text, unit=unit)
    assert f"takes {part!r} out of {complete!r}; let it hold all of it" in str(caught.value)


@pytest.mark.parametrize(
    ("regex", "text", "unit", "value"),
    [
        (r"([-\d.e]+) s/step", "mean 9.5e-05 s/step", "s", 9.5e-5),
        (r"E=(\S+)", "E=\u22120.5", "1", -0.5),
        (r"x (\S+)", "x 1'234.5", "1", 1234.5),
        (r"\+([\d.]+)", "x +0.5", "1", 0.5),
        (r"\d+-(\d+)", "pages 12-34", "1", 34.0),
        (r"size-(\d+)", "size-4096", "1", 4096.0),
        (r"/-([\d.]+)", "5 +/-0.2", "1", 0.2),
        (r"run_1_(\d+)", "run_1_5", "1", 5.0),
        (r"v([\d.]+)", "v2.5 12", "1", 2.5),
        (r"\.+([\d.]+)", "took.....5.5", "1", 5.5),
        (r"took ([\d.]+)", "took 5. Then", "1", 5.0),
        (r"took (\S+)", "took 5., then", "1", 5.0),
        (r"\((\S+)", "98MiB/s (103MB/s), 98MiB/s-98MiB/s", "B/s", 103e6),
        (r"(\d+) s", "in 12 s, 3", "1", 12.0),
        (r"(\d+):", "12:30:00", "1", 12.0),
        (r"real\s+\d+m([\d.]+)s", "real\t0m2.345s", "s", 2.345),
        (r"real\s+(\S+)", "real\t1m2.345s", "s", 62.345),
        (r"m:ss\): (\S+)", "Elapsed (wall clock) time (h:mm:ss or m:ss): 1:02:03.5", "s", 3723.5),
    ],
)  # fmt: skip
def test_whole_numbers_are_read(regex: str, text: str, unit: str, value: float) -> None:
    assert read(regex, text, unit=unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1,234.5", POINT, 1234.5),
        ("1,234", POINT, 1234.0),
        ("1.5", POINT, 1.5),
        ("1,5", POINT, None),
        ("1.234,5", COMMA, 1234.5),
        ("1.234", COMMA, 1234.0),
        ("-1,5e3", COMMA, -1500.0),
        (",5", COMMA, 0.5),
        ("1.5", COMMA, None),
        ("1.5,2.5", LIST, 1.5),
        ("1,234", LIST, 1.0),
        ("1.234.567", None, None),
        ("12,34,567", POINT, None),
    ],
)
def test_a_comma_means_what_the_study_says(text: str, decimal: DecimalMark, value: float | None) -> None:
    regex = r"=([-\d.e]+)" if decimal is LIST else r"=(\S+)"
    if value is None:
        with pytest.raises(NoNumber, match="is not a number"):
            read(regex, f"x={text}", decimal)
    else:
        assert read(regex, f"x={text}", decimal) == value


@pytest.mark.parametrize("regex", [r"=(\S+)", r"=(\d+)", r",(\d+)", r"=(\d+),"])
def test_a_comma_without_a_word_on_it_is_refused(regex: str) -> None:
    for text in ("x=1,234", "x=1,5", "x=1,234,567", "x=1,234.5"):
        with pytest.raises(NoNumber, match="has a comma; write what it means: decimal: point"):
            read(regex, text)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.1 GB/s", "B/s", 1.1e9),
        ("942 MB/s", "B/s", 942e6),
        ("1.5GiB/s", "B/s", 1.5 * 2**30),
        ("8 Gbit/s", "B/s", 1e9),
        ("9.4 Gbits/sec", "B/s", 9.4e9 / 8),
        ("512 KiB", "B", 524288.0),
        ("64 kB", "B", 64e3),
        ("3 ms", "s", 3e-3),
        ("3 us", "s", 3e-6),
        ("3 \u00b5s", "s", 3e-6),
        ("3 \u03bcs", "s", 3e-6),
        ("250 ns", "s", 250e-9),
        ("2 min", "s", 120.0),
        ("12.3k", "op/s", 12300.0),
        ("2 Mop/s", "op/s", 2e6),
        ("51.2 GFLOP/s", "FLOP/s", 51.2e9),
        ("51.2 Gflops", "FLOP/s", 51.2e9),
        ("1.1 GB/s", "MB/s", 1100.0),
        ("2.5 Matom-step/s", "atom-step/s", 2.5e6),
        ("98.5 %", "%", 98.5),
        ("inf MB/s", "B/s", math.inf),
    ],
)
def test_a_unit_in_the_group_is_converted(text: str, unit: str, value: float) -> None:
    found = number_by("x: (.+)$", f"x: {text}", unit=unit)
    assert found.value == pytest.approx(value, rel=1e-15) and found.text == text


@pytest.mark.parametrize(
    ("text", "unit", "scale", "told"),
    [
        ("3 ms", "B/s", 1.0, "how many B/s one ms is, is not known"),
        ("3 furlongs", "s", 1.0, "how many s one furlongs is, is not known"),
        ("3 KB", "B", 1.0, "how many B one KB is, is not known"),
        ("12.3k", "B/s", 1.0, "how many B/s one k is, is not known"),
        ("1.1 GB/s", "B/s", 1e6, "'1.1 GB/s' holds its unit; leave out scale"),
        ("3 s", "", 1.0, "'3 s' is not a number"),
        ("3 4", "s", 1.0, "how many s one 4 is, is not known"),
    ],
)
def test_a_unit_that_cannot_be_converted_is_refused(text: str, unit: str, scale: float, told: str) -> None:
    with pytest.raises(NoNumber) as caught:
        read("x: (.+)$", f"x: {text}", unit=unit, scale=scale)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "unit", "scale"),
    [
        ("1.1 GB/s", "B/s", 1e6),
        ("5 ms", "s", 1.0),
        ("12.3k", "op/s", 1.0),
        ("5 min", "s", 1.0),
        ("5 ms", "B/s", 1.0),
        ("98 KiB/s", "B/s", 1e6),
        ("12.3M", "B/s", 1e3),
        ("2.5 Matoms/s", "atoms/s", 1e3),
    ],
)
def test_a_unit_behind_the_group_that_contradicts_the_scale_is_refused(
    text: str, unit: str, scale: float
) -> None:
    with pytest.raises(NoNumber, match=r"contradicts unit: .*, scale: .*; let the group hold the unit too"):
        read(r"([\d.]+)", text, unit=unit, scale=scale)


@pytest.mark.parametrize(
    ("text", "unit", "scale"),
    [
        ("942 MB/s", "B/s", 1e6),
        ("942 MB/s", "B/s", 2**20),
        ("942 MB/s, in all", "B/s", 1e6),
        ("942 KB/s", "B/s", 1e3),
        ("9.4 Gbit/s", "B/s", 1.25e8),
        ("5 min 3 max 9", "s", 1e-6),
        ("5 steps", "s", 1.0),
        ("5 ms", "1", 1.0),
        ("5", "s", 1e-3),
        ("12.3k", "op/s", 1e3),
        ("5 k", "op/s", 1.0),
        ("3 MFLOP/s", "FLOP/s", 1e6),
    ],
)
def test_a_unit_behind_the_group_that_fits_is_no_fault(text: str, unit: str, scale: float) -> None:
    assert read(r"([\d.]+)", text, unit=unit, scale=scale) == float(text.split()[0].rstrip("k")) * scale


@given(st.floats(1e-9, 1e15), st.sampled_from(["kB/s", "MiB/s", "GB/s", "Gbit/s", "B/s", "TB/s"]))
def test_a_printed_unit_is_the_same_quantity_in_any_of_them(value: float, word: str) -> None:
    size = unit_size(word, "B/s")
    assume(size is not None)
    assert size is not None and read("x (.+)", f"x {value!r} {word}", unit="B/s") == value * size


def test_a_number_of_any_length_is_read_in_time() -> None:
    begin = time.process_time()
    for text in ("1" * 100_000, "1" * 50_000 + "_1", "1.1" * 30_000, " " * 100_000 + "1", "+" * 100_000):
        for unit in ("", "s"):
            try:
                read_number(text, 0, len(text), unit=unit)
            except NoNumber as e:
                assert len(str(e)) < 400
    assert time.process_time() - begin < 60, "else it takes hours"
