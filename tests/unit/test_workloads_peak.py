"""nm-dgemm's answer, and what is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import RunError
from nearmetal.workloads.peak import parse_peak

ANSWER = {
    "library": "/usr/lib/libblas.so.3",
    "core": "SkylakeX",
    "cpus": [0, 3],
    "sizes": [{"n": 100, "seconds": [1e-4, 2e-4]}, {"n": 200, "seconds": [4e-4, 4e-4]}],
}


def test_the_best_size_of_all_cpus_together() -> None:
    found = parse_peak(json.dumps(ANSWER))
    assert found.library.endswith("libblas.so.3") and found.core == "SkylakeX" and found.cpus == (0, 3)
    assert found.best() == pytest.approx((4e10, 4e10))
    assert parse_peak(json.dumps(ANSWER | {"core": None})).core is None


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": []},
        {"cpus": []},
        {"sizes": [{"n": 100, "seconds": [1e-4]}]},
        {"sizes": [{"n": 100, "seconds": [1e-4, 0]}]},
        {"sizes": [{"n": 100, "seconds": [1e-4, float("nan")]}]},
        {"sizes": [{"n": 0, "seconds": [1e-4, 1e-4]}]},
        {"library": None, "sizes": None},
    ],
)
def test_half_an_answer_is_none(change: dict[str, object]) -> None:
    with pytest.raises(RunError, match="nm-dgemm"):
        parse_peak(json.dumps(ANSWER | change))


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(RunError):
        parse_peak(text)
