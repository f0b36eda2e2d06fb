"""Which code paths benchmarks.npb shows, and which reference belongs to each."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.npb import Case, Run, default_marches, notes_on, reference_of

from nearmetal.environments import Tools


def test_a_processor_with_avx512_is_shown_without_it_too() -> None:
    assert default_marches(frozenset({"avx2", "avx512f"})) == ["native", "x86-64-v3"]
    assert default_marches(frozenset({"avx2"})) == ["native"]


@pytest.mark.parametrize(
    ("given", "native", "v3"),
    [
        ([], None, None),
        (["/all"], "/all", "/all"),
        (["native=/n", "x86-64-v3=/v3"], "/n", "/v3"),
        (["x86-64-v3=/v3"], None, "/v3"),
        (["/others", "x86-64-v3=/v=3"], "/others", "/v=3"),
    ],
)
def test_a_reference_is_for_one_march_or_for_all(
    given: list[str], native: str | None, v3: str | None
) -> None:
    expected = [path and Path(path) for path in (native, v3)]
    assert [reference_of(given, march) for march in ("native", "x86-64-v3")] == expected


def run(*, march: str, wrong: str = "") -> Run:
    return Run(wrong=wrong, seconds=1.0, mops=100.0, memory=1 << 20, march=march)


def test_a_reference_for_another_march_and_a_wrong_result_are_noted() -> None:
    case = Case(
        kernel="ep", size="S", ranks=2, march="x86-64-v3", tools=Tools(directory=Path("/bin")), program=None
    )
    own = [run(march="x86-64-v3", wrong="expected 1, found 2")]
    assert notes_on(case, own, [run(march="x86-64-v3"), run(march="")]) == [
        "NOT VERIFIED: ep for x86-64-v3 on 2 ranks: expected 1, found 2"
    ]
    assert notes_on(case, [run(march="x86-64-v3")], [run(march="native")]) == [
        "UNFAIR: x86-64-v3 against a reference compiled for native"
    ]
