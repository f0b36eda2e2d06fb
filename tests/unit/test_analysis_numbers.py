"""Numbers of many rows are parsed at once: to the last bit as each row by itself, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.fold.numbers import NotPlain, concatenated

ticks = st.lists(st.integers(0, 2**53), min_size=1, max_size=40)
floats = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5)


def texts(rows: Sequence[Sequence[float]]) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(row, separators=(",", ":")).encode()) for row in rows]


def assert_same(rows: Sequence[Sequence[float]], numbers: np.ndarray, lengths: np.ndarray) -> None:
    wanted = np.array([float(x) for row in rows for x in row])
    assert numbers.tobytes() == wanted.tobytes(), "to the last bit"
    assert lengths.tolist() == [len(row) for row in rows]


@given(st.lists(ticks, min_size=1, max_size=8))
def test_whole_numbers_are_read_exactly(rows: list[list[int]]) -> None:
    assert_same(rows, *concatenated(texts(rows)))


@given(st.lists(floats | ticks, min_size=1, max_size=8))
def test_other_numbers_are_read_exactly(rows: list[list[float]]) -> None:
    assert_same(rows, *concatenated(texts(rows)))


@given(st.lists(floats, min_size=1, max_size=8))
def test_numbers_that_are_in_memory_are_joined(rows: list[list[float]]) -> None:
    assert_same(rows, *concatenated([tuple(row) for row in rows]))


def test_no_rows_have_no_numbers() -> None:
    numbers, lengths = concatenated([])
    assert (numbers.size, lengths.size) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        "[]",
        "[[1],[2]]",
        "[[1,2]]",
        '["1"]',
        "[null]",
        "[true]",
        "{}",
        '{"a":1}',
        "1",
        '"1,2"',
        "[1][2]",
        "[1,,2]",
    ],
)
@pytest.mark.parametrize("beside", [[], ["[1,2]"], ["[0.5]"]])
def test_what_is_no_array_of_numbers_is_refused(wrong: str, beside: list[str]) -> None:
    for rows in ([wrong, *beside], [*beside, wrong]):
        with pytest.raises(NotPlain):
            concatenated([msgspec.Raw(row.encode()) for row in rows])


@given(st.text(alphabet='[],0123456789. -e"', max_size=12))
def test_a_text_is_read_as_json_reads_it_or_refused(text: str) -> None:
    try:
        numbers, lengths = concatenated([msgspec.Raw(text.encode()), msgspec.Raw(b"[7]")])
    except NotPlain:
        return
    assert_same([json.loads(text), [7]], numbers, lengths)
