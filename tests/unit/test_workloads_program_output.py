"""Numbers, bounds and references of a user's own program: what is found, what is refused, and why."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.change import replace
from nearmetal.model.record import Row, Status
from nearmetal.model.study import (
    Better,
    Bounds,
    CommandWorkload,
    MetricSpec,
    Reference,
    Stream,
    VerifySpec,
)
from nearmetal.workloads.command import ResourceUse, parse
from nearmetal.workloads.numbers import NoNumber
from nearmetal.workloads.program_output import metric_value, number_by
from nearmetal.workloads.reference import MOST_NUMBERS, difference


def metric(**more: object) -> MetricSpec:
    base: dict[str, object] = {"name": "m", "unit": "s", "better": Better.LOWER, "regex": r"m=(\S+)"}
    return MetricSpec(**{**base, **more})  # type: ignore[arg-type]


def rows(
    stdout: str = "",
    *,
    files: dict[str, str] | None = None,
    verify: VerifySpec | None = None,
    difference: str | None = None,
    spec: MetricSpec | None = None,
) -> dict[str, Row]:
    metrics = () if spec is None else (spec,)
    load = CommandWorkload(name="w", argv=("p",), metrics=metrics, verify=verify)
    found = parse(load, stdout, ResourceUse(wall=1.0), files=files, difference=difference)
    return {r.metric: r for r in found}


@pytest.mark.parametrize(
    ("text", "value"), [("m=1.5D+03", 1500.0), ("m=2d-1", 0.2), ("m=.5", 0.5), ("m=-7e2", -700.0)]
)
def test_exponents_of_fortran_are_numbers(text: str, value: float) -> None:
    assert metric_value(metric(), text).value == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no output"),
        ("m=", "the output ends in 'm='"),
        ("m=1,5", "'1,5' has a comma; write what it means: decimal: point (1,234.5), decimal: comma"),
        ("m=fast", "'fast' is not a number"),
        ("m=١٢x", "is not a number"),
        ("\0\xff\ufffd m", "nothing like"),
    ],
)
def test_missing_number_is_explained(text: str, told: str) -> None:
    with pytest.raises(NoNumber, match=r"^metric 'm': ") as caught:
        metric_value(metric(), text)
    assert told in str(caught.value)


def test_a_cut_number_is_refused_with_what_it_was() -> None:
    with pytest.raises(NoNumber, match=r"takes '15' out of '15.25'; let it hold all of it: \(\\S\+\)$"):
        number_by(r"m=(\d+)", "m=15.25")


def test_the_whole_of_the_output_that_is_searched_counts() -> None:
    """dd and time print their figures to standard error."""
    spec = metric(regex=r"took (\S+)", stream=Stream.STDERR)
    load = CommandWorkload(name="w", argv=("p",), metrics=(spec,))
    assert parse(load, "took 1", ResourceUse(wall=1.0), stderr="took 2")[-1].values == (2.0,)
    for stream, values in ((Stream.BOTH, (2.0,)), (Stream.STDOUT, ())):
        load = CommandWorkload(name="w", argv=("p",), metrics=(replace(spec, stream=stream),))
        assert parse(load, "", ResourceUse(wall=1.0), stderr="took 2\n\nx\n")[-1].values == values
    verify = VerifySpec(regex="^ok$")
    load = CommandWorkload(name="w", argv=("p",), verify=verify)
    assert "1 line: write stream: stderr" in parse(load, "", ResourceUse(wall=1.0), stderr="ok")[0].reason
    verify = VerifySpec(regex="^ok$", stream=Stream.STDERR)
    load = CommandWorkload(name="w", argv=("p",), verify=verify)
    assert parse(load, "", ResourceUse(wall=1.0), stderr="ok")[0].status is Status.OK


@pytest.mark.parametrize(
    ("stream", "stdout", "stderr", "told"),
    [
        (Stream.STDOUT, " \n", "a\n\nb\n", "stdout was empty; stderr has 2 lines: write stream: stderr"),
        (Stream.STDERR, "m=1", "", "metric 'm': stderr was empty; stdout has 1 line: write stream: stdout"),
        (Stream.BOTH, "", "", "metric 'm': stdout and stderr were empty"),
        (Stream.STDOUT, "", "", "metric 'm': stdout was empty"),
        (Stream.STDOUT, "m=x", "m=1", "metric 'm': 'x' is not a number"),
        (Stream.STDOUT, "x", "m=1", "the output ends in 'x'; stderr has 1 line: write stream: stderr"),
    ],
)  # fmt: skip
def test_the_reason_says_where_text_is(stream: Stream, stdout: str, stderr: str, told: str) -> None:
    load = CommandWorkload(name="w", argv=("p",), metrics=(metric(stream=stream),))
    assert parse(load, stdout, ResourceUse(wall=1.0), stderr=stderr)[-1].reason.endswith(told)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("m=-0.5", "m: '-0.5': -0.5 op/s is not a positive number"),
        ("m=0.00", "m: '0.00': 0 op/s is not a positive number"),
        ("m=-nan", "m: '-nan': nan op/s is not a positive number"),
        ("m=Inf", "m: 'Inf': inf op/s is not a positive number"),
    ],
)
def test_a_value_that_cannot_be_compared_is_a_failure_with_its_text(printed: str, told: str) -> None:
    row = rows(printed, spec=metric(unit="op/s"))["m"]
    assert row.status is Status.FAILED and row.values == () and row.reason == told


def test_the_key_of_a_json_pointer_holds_anything() -> None:
    document = {
        "a.b": {"c d": [5, {"~/": "1.5 ms"}]},
        "": 7,
        "99.000000": 8,
        "p": {"99": {"x": 1}, "99.5": 9},
    }
    text = f"note: {{ is read\n[x] {json.dumps(document, indent=1)} 2 errors}}\n{{}}"
    for path, value in (
        ("/a.b/c d/0", 5.0),
        ("/a.b/c d/1/~0~1", 0.0015),
        ("/", 7.0),
        ("/99.000000", 8.0),
        ("99.000000", 8.0),
        ("p.99.5", 9.0),
        ("p.99.x", 1.0),
    ):
        assert metric_value(metric(regex=None, json_path=path), text).value == value
    for path in ("/a.b/c d/2", "/a.b/c d/-", "/a", "p.99.6", "/p.99.5", "//"):
        with pytest.raises(NoNumber, match="the output contains no "):
            metric_value(metric(regex=None, json_path=path), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('fio: note\n{"v": 1}\nfio: done {}\n', 1.0),
        ('RESULT: {"v": 1} {"v": 2}', 1.0),
        ('[1, 2]\n  {"v": 1}', 1.0),
        ('[note] {"v": 1}', 1.0),
        ('\ufeff\n {"v": 1}', 1.0),
        ('{"w": 1,\n "x":\nWARNING: slow\n {"v": 2}\n}\n{"v": 1}', 2.0),
        ('{"x": {"v": 2},', None),
        ('{"x": [{"v": 2},\n {"v": 3}', None),
        ('{"v": ' + "9" * 5000 + "}", None),
        ("[" * 100_000, None),
        ('{"v":' * 100_000, None),
        ("{\n" * 100_000, None),
        ('{"v": 1e999}', math.inf),
        ('{"v": NaN}', math.nan),
        ('{"v": ' + "9" * 400 + "}", None),
    ],
)
def test_json_is_found_among_other_text(text: str, value: float | None) -> None:
    spec = metric(regex=None, json_path="v")
    if value is None:
        with pytest.raises(NoNumber):
            metric_value(spec, text)
    else:
        assert metric_value(spec, text).value == pytest.approx(value, nan_ok=True)


def test_a_number_in_a_file_and_a_file_that_was_not_written() -> None:
    found = rows(files={"log": "m=3"}, spec=metric(file="log"))
    assert found["m"].values == (3.0,)
    found = rows("m=3", spec=metric(file="log"))
    assert (
        found["m"].reason == "metric 'm': the program wrote no file log" and found["wall"].status is Status.OK
    )
    text = json.dumps({"a": [1, {"b": 4}]})
    assert rows(files={"j": text}, spec=metric(regex=None, json_path="a.1.b", file="j"))["m"].values == (4.0,)


def test_a_metric_outside_its_bounds_fails_the_run_and_is_kept() -> None:
    inside = rows("m=3", spec=metric(bounds=Bounds(least=1, most=3)))
    assert inside["wall"].verification == {"ok": True, "expected": "m at least 1 and at most 3", "found": "3"}
    outside = rows("m=4", spec=metric(bounds=Bounds(most=3)))
    assert {r.status for r in outside.values()} == {Status.FAILED} and outside["m"].values == (4.0,)
    assert outside["wall"].reason == "verification failed: expected m at most 3, found 4"
    assert rows("", spec=metric(bounds=Bounds(most=3)))["wall"].status is Status.FAILED
    assert rows("m=nan", spec=metric(bounds=Bounds(most=3)))["wall"].status is Status.FAILED


def test_a_verified_number_may_be_zero_or_below() -> None:
    spec = VerifySpec(regex=r"^E=(\S+)$", bounds=Bounds(least=-5.3, most=-5.1))
    assert rows("E=-5.2", verify=spec)["wall"].status is Status.OK
    for text in ("E=0", "E=nan", "E=x", ""):
        assert rows(text, verify=spec)["wall"].status is Status.FAILED


def test_every_failed_check_is_reported() -> None:
    spec = VerifySpec(regex="^ok$", reference=Reference(path="/want"))
    found = rows(
        "m=9", verify=spec, difference="byte 3 is 0x00, not 0x01", spec=metric(bounds=Bounds(most=1))
    )
    reason = found["wall"].reason
    for part in ("m at most 1", "output like ^ok$", "what /want holds", "byte 3 is 0x00"):
        assert part in reason
    good = rows("ok", verify=spec, difference="")
    assert good["wall"].verification["found"] == "ok; the same"


def test_a_verified_file_that_was_not_written() -> None:
    spec = VerifySpec(regex="^ok$", file="log")
    assert "expected a file log, found none" in rows("ok", verify=spec)["wall"].reason
    assert rows("", files={"log": "ok"}, verify=spec)["wall"].status is Status.OK


def differ(found: str | bytes, wanted: str | bytes, **how: float) -> str:
    own, other = (t.encode() if isinstance(t, str) else t for t in (found, wanted))
    return difference(io.BytesIO(own), io.BytesIO(other), Reference(path="/r", **how))


def test_byte_by_byte() -> None:
    assert differ("abc", "abc") == "" and differ("", "") == ""
    assert differ("abd", "abc") == "byte 3 is 0x64, not 0x63"
    assert differ("abcd", "abc") == "it goes on after byte 3, where the reference does not"
    assert differ("ab", "abc") == "it ends after byte 2, where the reference does not"
    large = bytes(3 << 20)
    assert differ(large + b"x", large + b"y") == f"byte {len(large) + 1} is 0x78, not 0x79"


def test_by_numbers() -> None:
    assert differ("T = 1.0000001\n", "T =  1.0D0", tolerance=1e-6) == ""
    assert differ("T = 1.1", "T = 1.0", tolerance=1e-6) == "number 1 is 1.1, not 1.0"
    assert differ("1e-12", "0", tolerance=1e-6) != "" and differ("1e-12", "0", absolute=1e-9) == ""
    assert differ("a 1 b", "a 1 c", tolerance=0.1) == "'b' precedes number 2, not 'c'"
    assert differ("1 2 3", "1 2", tolerance=0.1) == "it goes on with '3'"
    assert differ("1 2", "1 2 3", tolerance=0.1) == "it ends before '3'"
    assert differ("nan", "1", tolerance=1) and differ("1", "nan", tolerance=1)
    assert differ("\xff\x00" * 9, "\xff\x00" * 9, tolerance=0.1) == ""
    assert "not compared" in differ(b"1" * (MOST_NUMBERS + 1), b"1", tolerance=0.1)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_two_files_are_compared(found: bytes, wanted: bytes) -> None:
    assert (differ(found, wanted) == "") == (found == wanted)
    if found == wanted:
        assert differ(found, wanted, tolerance=0.0) == ""
    differ(found, wanted, tolerance=0.1, absolute=1.0)
