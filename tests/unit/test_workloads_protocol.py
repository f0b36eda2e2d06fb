"""nm-micro's lines: good ones as dataclasses, everything else a TrialFailedError that shows the line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import TrialFailedError
from nearmetal.model.record import RankPlace
from nearmetal.workloads.protocol import (
    PagesLine,
    PartLine,
    ReadyLine,
    SliceLine,
    VerifyLine,
    parse_line,
    parse_report,
)

PLACE = {"rank": 0, "host": "n0", "cpu": 1, "affinity": [1, 3], "namespaces": {"mnt": 4026531841, "net": 7}}
READY: dict[str, Any] = {
    "event": "ready",
    "mpi": "Open MPI v4.1.4",
    "ranks": 2,
    "init_s": 0.02,
    "prepare_s": 0.5,
    "places": [PLACE, {**PLACE, "rank": 1}],
    "pages": [
        {"kernel": 0, "huge_kb": 4096, "total_kb": 6144},
        {"kernel": 1, "huge_kb": None, "total_kb": 8},
    ],
}
SLICE: dict[str, Any] = {
    "event": "slice",
    "kernel": 3,
    "name": "cg",
    "parts": [{"metric": "rate", "seconds": 0.01, "comm_seconds": 0.002, "work": 4443600}],
    "used": {"run_delay": 0.001, "page_faults": 3, "cycles": None},
}
VERIFY: dict[str, Any] = {
    "event": "verify",
    "kernel": 1,
    "name": "cg",
    "ok": True,
    "expected": {"zeta": 8.5971775078648},
    "found": {"zeta": 8.59717750786481, "counts": [1, 2]},
    "seconds": 0.02,
    "work": 66654000,
}


def test_ready() -> None:
    line = parse_line(json.dumps(READY))
    assert isinstance(line, ReadyLine)
    place = RankPlace(rank=0, host="n0", cpus=(1, 3), namespaces={"mnt": 4026531841, "net": 7})
    assert line.places[0] == place
    assert line.pages == (
        PagesLine(kernel=0, huge_kb=4096, total_kb=6144),
        PagesLine(kernel=1, huge_kb=None, total_kb=8),
    )
    assert (line.mpi, line.ranks, line.init_seconds, line.prepare_seconds) == (
        "Open MPI v4.1.4",
        2,
        0.02,
        0.5,
    )


def test_slice() -> None:
    part = PartLine(metric="rate", seconds=0.01, comm_seconds=0.002, work=4443600.0)
    assert parse_line(json.dumps(SLICE)) == SliceLine(
        kernel=3,
        name="cg",
        parts=(part,),
        used={"run_delay": 0.001, "page_faults": 3.0, "cycles": None},
    )


def test_verify() -> None:
    line = parse_line(json.dumps(VERIFY))
    assert isinstance(line, VerifyLine)
    assert line.ok and line.found == {"zeta": 8.59717750786481, "counts": [1, 2]}


def test_reported_error_is_named_with_its_rank() -> None:
    with pytest.raises(TrialFailedError, match=r"nm-micro \(rank 1\): no memory"):
        parse_line('{"event":"error","program":"nm-micro","process":"rank 1","what":"no memory"}')


def test_place_of_nm_rank() -> None:
    used = {
        "status": 0,
        "wall": 0.5,
        "user": 0.25,
        "system": 0,
        "max_rss": 4096,
        "io": {"rchar": 832, "wchar": 4},
        "left": ["sleep"],
        "used": {"run_delay": 0.125, "cycles": None},
    }
    report = parse_report(json.dumps({"place": {**PLACE, "rank": 5}, **used}))
    assert (report.place.rank, report.wall, report.max_rss) == (5, 0.5, 4096)
    assert report.io == {"rchar": 832, "wchar": 4}
    assert report.used == {"run_delay": 0.125, "cycles": None}
    with pytest.raises(TrialFailedError, match="nm-rank"):
        parse_report("{}")


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        (SLICE, {"event": "slicer"}, "slicer"),
        (SLICE, {"kernel": -1}, "kernel"),
        (SLICE, {"kernel": True}, "kernel"),
        (SLICE, {"parts": []}, "length >= 1"),
        (SLICE, {"parts": {}}, "Expected `array`"),
        (
            SLICE,
            {"parts": [{"metric": "rate", "seconds": "1", "comm_seconds": 0, "work": 1}]},
            "Expected `float`",
        ),
        (SLICE, {"parts": [{"metric": "rate", "seconds": -1, "comm_seconds": 0, "work": 1}]}, ">= 0"),
        (
            SLICE,
            {"parts": [{"metric": "rate", "seconds": 10**400, "comm_seconds": 0, "work": 1}]},
            "out of range",
        ),
        (SLICE, {"surprise": 1}, "surprise"),
        (SLICE, {"used": {"run_delay": -1}}, ">= 0"),
        (SLICE, {"used": []}, "Expected `object`"),
        (READY, {"places": [PLACE]}, "ranks 0 to 1"),
        (READY, {"ranks": 10**15}, "ranks 0 to 999999999999999"),
        (READY, {"places": [PLACE, PLACE]}, "ranks 0 to 1"),
        (READY, {"ranks": 0}, "ranks"),
        (VERIFY, {"ok": 1}, "Expected `bool`"),
        (VERIFY, {"expected": []}, "Expected `object`"),
    ],
)
def test_message_with_a_wrong_value_is_refused(
    base: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(TrialFailedError, match=words):
        parse_line(json.dumps({**base, **change}))


@pytest.mark.parametrize("base", [READY, SLICE, VERIFY])
def test_every_key_is_needed(base: dict[str, Any]) -> None:
    for key in base:
        with pytest.raises(TrialFailedError):
            parse_line(json.dumps({k: v for k, v in base.items() if k != key}))


@pytest.mark.parametrize("text", ["", "x", "[]", "1", "null", '{"event":NaN}', "[" * 100_000, '"a' * 9])
def test_line_that_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(TrialFailedError):
        parse_line(text)


def test_only_the_beginning_of_a_bad_line_is_shown() -> None:
    with pytest.raises(TrialFailedError) as caught:
        parse_line("y" * 5000)
    assert "y" * 200 in caught.value.what and len(caught.value.what) < 400


@given(st.text())
def test_any_text_is_refused_with_words(text: str) -> None:
    with pytest.raises(TrialFailedError):
        parse_line(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([READY, SLICE, VERIFY]), st.data())
def test_any_value_in_any_place_parses_or_is_refused(base: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(base)))
    try:
        line = parse_line(json.dumps({**base, key: data.draw(JSON)}))
    except TrialFailedError:
        return
    assert isinstance(line, ReadyLine | SliceLine | VerifyLine)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8),
            st.floats(0, 1e300, allow_nan=False),
            st.floats(0, 1e300, allow_nan=False),
            st.integers(0, 1 << 62),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_slices_come_back_as_written(parts: list[tuple[str, float, float, int]]) -> None:
    names = ("metric", "seconds", "comm_seconds", "work")
    text = json.dumps({**SLICE, "parts": [dict(zip(names, p, strict=True)) for p in parts]})
    line = parse_line(text)
    assert isinstance(line, SliceLine)
    assert [(p.metric, p.seconds, p.comm_seconds, p.work) for p in line.parts] == [
        (m, s, c, float(w)) for m, s, c, w in parts
    ]
