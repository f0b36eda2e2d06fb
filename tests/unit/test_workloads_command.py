"""Rows out of a user's own program: regular expressions, JSON paths, and what is missing."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.record import TOO_SHORT, Row, Status
from nearmetal.model.study import Better, CommandWorkload, MetricSpec, VerifySpec
from nearmetal.workloads.command import ResourceUse, parse, used_rows, value_row
from nearmetal.workloads.program_output import SEARCHED


def by_regex(regex: str, name: str = "speed") -> MetricSpec:
    return MetricSpec(name=name, unit="op/s", better=Better.HIGHER, regex=regex)


def by_path(path: str) -> MetricSpec:
    return MetricSpec(name="speed", unit="op/s", better=Better.HIGHER, json_path=path)


def run(stdout: str, *metrics: MetricSpec, wall: float = 1.5) -> dict[str, Row]:
    load = CommandWorkload(name="mine", argv=("prog",), metrics=metrics)
    return {r.metric: r for r in parse(load, stdout, ResourceUse(wall=wall))}


def test_a_profile_divides_the_wall_time_and_nothing_else() -> None:
    parts = {"comm": 0.25, "compute": 1.0, "init": 0.125}
    load = CommandWorkload(name="mine", argv=("prog",), metrics=(by_regex(r"speed (\d+)"),))
    rows = parse(load, "speed 3", ResourceUse(wall=1.5, user=0.5, parts=parts))
    assert [(r.metric, r.parts) for r in rows] == [
        ("wall", {"comm": (0.25,), "compute": (1.0,), "init": (0.125,)}),
        ("user", {}),
        ("speed", {}),
    ]
    # A wall of the program's own is not what the profile divides; a wall that is no measurement has no parts.
    own = CommandWorkload(name="mine", argv=("prog",), metrics=(by_regex(r"speed (\d+)", "wall"),))
    rows = parse(own, "speed 3", ResourceUse(wall=1.5, user=0.5, parts=parts))
    assert not any(r.parts for r in rows)
    (row, *_) = parse(load, "", ResourceUse(wall=0.0, parts=parts))
    assert row.metric == "wall" and row.status is Status.FAILED and not row.parts


def test_command_has_wall_and_cpu_times_and_memory() -> None:
    load = CommandWorkload(name="mine", argv=("prog",))
    rows = parse(load, "", ResourceUse(wall=1.5, user=0.5, system=0.25, max_rss=4096))
    assert [(r.metric, r.unit, r.values, r.better) for r in rows] == [
        ("wall", "s", (1.5,), Better.LOWER),
        ("user", "s", (0.5,), Better.LOWER),
        ("system", "s", (0.25,), Better.LOWER),
        ("max_rss", "B", (4096.0,), Better.LOWER),
    ]
    assert all(r.workload == "mine" and r.status is Status.OK for r in rows)


def test_values_that_were_not_measured_have_no_row() -> None:
    assert list(run("")) == ["wall"]


def test_zero_seconds_are_a_failed_row() -> None:
    load = CommandWorkload(name="mine", argv=("prog",))
    user = parse(load, "", ResourceUse(wall=1, user=0.0))[1]
    assert user.status is Status.FAILED and user.values == () and "0 s" in user.reason


def test_first_match_counts_and_anchors_are_lines() -> None:
    row = run("step speed: 3\nspeed: 4e2 op/s\nspeed: 5\n", by_regex(r"^speed: (\S+)"))["speed"]
    assert row.values == (400.0,) and row.unit == "op/s"


@pytest.mark.parametrize("output", ["", "speed 7", "speed: fast", "speed: -1", "speed: nan", "speed: inf"])
def test_a_value_that_is_missing_or_none_fails_its_row_alone(output: str) -> None:
    rows = run(output, by_regex(r"speed: (\S+)"), by_regex(r"^(\d*)speed", "other"))
    assert rows["speed"].status is Status.FAILED and rows["speed"].reason and rows["speed"].values == ()
    assert rows["wall"].status is Status.OK


def test_an_optional_group_that_did_not_match_is_missing() -> None:
    assert run("speed", by_regex(r"speed(: \d+)?"))["speed"].status is Status.FAILED


def test_json_path_in_the_whole_output() -> None:
    text = json.dumps({"jobs": [{"read": {"bw": 12.5}}]}, indent=2)
    assert run(text, by_path("jobs.0.read.bw"))["speed"].values == (12.5,)


def test_json_path_in_the_first_line_that_holds_it() -> None:
    text = 'starting\n{"step": 1}\n{"rate": "3.5"}\n{"rate": 4}\n'
    assert run(text, by_path("rate"))["speed"].values == (3.5,)


@pytest.mark.parametrize("path", ["b", "a.b", "list.7", "list.x", "flag", "list", "null", "word"])
def test_json_path_without_a_number_fails(path: str) -> None:
    text = '{"a": 1, "list": [1], "flag": true, "null": null, "word": "w"}'
    assert run(text, by_path(path))["speed"].status is Status.FAILED


def test_a_metric_of_ones_own_takes_the_place_of_a_measured_one() -> None:
    rows = run("wall 9", by_regex(r"wall (\d+)", "wall"))
    assert rows["wall"].values == (9.0,)


def test_output_beyond_the_bound_is_not_searched() -> None:
    filler = "x" * SEARCHED
    assert run(filler + "speed: 4", by_regex(r"speed: (\d)"))["speed"].status is Status.FAILED
    assert run(filler[:-8] + "speed: 4", by_regex(r"speed: (\d)"))["speed"].values == (4.0,)


@given(st.text(), st.text(max_size=12))
def test_any_output_gives_rows(stdout: str, path: str) -> None:
    rows = run(stdout, by_regex(r"(\d[\d.e+-]*)", "number"), by_path(path))
    assert set(rows) == {"wall", "number", "speed"}
    for row in rows.values():
        assert (row.status is Status.OK) == bool(row.values) == (not row.reason)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_numbers_come_back_as_printed(value: float) -> None:
    rows = run(f"speed: {value!r}\n", by_regex(r"speed: (\S+)"))
    assert rows["speed"].values == (value,)
    assert run(json.dumps({"v": value}), by_path("v"))["speed"].values == (value,)


def test_a_printed_number_is_scaled_to_its_unit() -> None:
    metric = MetricSpec(name="rate", unit="op/s", better=Better.HIGHER, regex=r"(\S+) Mop/s", scale=1e6)
    assert run("12.5 Mop/s", metric)["rate"].values == (12.5e6,)


def verified(stdout: str, regex: str, expected: str | None = None) -> tuple[Row, ...]:
    load = CommandWorkload(
        name="mine",
        argv=("prog",),
        metrics=(by_regex(r"speed (\d+)"),),
        verify=VerifySpec(regex=regex, expected=expected),
    )
    return parse(load, stdout, ResourceUse(wall=1.5))


def test_a_verified_run_says_what_was_found() -> None:
    for rows in (
        verified("speed 3\ncheck: ok\n", r"^check: (\w+)$", "ok"),
        verified("speed 3\nok\n", "^ok$"),
    ):
        assert [r.metric for r in rows] == ["wall", "speed"]
        assert all(r.status is Status.OK and r.verification["ok"] is True for r in rows)


@pytest.mark.parametrize(
    ("stdout", "regex", "expected", "told"),
    [
        ("speed 3\ncheck: bad", r"^check: (\w+)$", "ok", "expected ok, found bad"),
        ("speed 3\n\n", r"^check: (\w+)$", "ok",
         r"expected ok, found nothing like ^check: (\w+)$; the output ends in 'speed 3'"),
        ("speed 3", "^ok$", None, "expected output like ^ok$, found none; the output ends in 'speed 3'"),
        ("check:", r"^check:(.+)?$", "ok", "expected ok, found "),
        ("", "ok", None, "expected output like ok, found none; there is no output"),
    ],
)  # fmt: skip
def test_an_unverified_run_fails_every_row(stdout: str, regex: str, expected: str | None, told: str) -> None:
    for row in verified(stdout, regex, expected):
        assert row.status is Status.FAILED and row.reason == f"verification failed: {told}"
        assert row.verification["ok"] is False
        assert bool(row.values) == (row.metric == "wall" or "speed" in stdout), "what was measured is kept"


def test_only_the_placeholder_of_ranks_is_replaced() -> None:
    load = CommandWorkload(
        name="mine", argv=("app.{ranks}", "{ranks}x{ranks}", "{Ranks}", "{0}", "{ranks", "%s")
    )
    assert load.argv_on(4) == ("app.4", "4x4", "{Ranks}", "{0}", "{ranks", "%s")


def test_a_time_below_the_clock_is_no_failure_but_has_no_value() -> None:
    """A program that sleeps uses no system time that the kernel's accounts could tell."""
    rows = {r.metric: r for r in used_rows("w", ResourceUse(wall=0.2, user=0.001, system=0.0, max_rss=1))}
    assert rows["system"].values == () and rows["system"].reason == f"system: {TOO_SHORT}"
    assert "nan s is not" in value_row("w", "m", "s", Better.LOWER, math.nan).reason
