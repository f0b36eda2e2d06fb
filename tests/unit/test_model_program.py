"""What a program of one's own brings along: interpreters, names of files, bounds; expressions that end."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.expression import Match, mistake, search
from nearmetal.model.study import Better, CommandWorkload, MetricSpec, Reference, VerifySpec
from nearmetal.model.workloads.script import Bounds, interpreter_of, meets, misnamed


@pytest.mark.parametrize(
    ("script", "tokens"),
    [
        ("#!/bin/sh\necho", ("/bin/sh",)),
        ("#! /usr/bin/env -S python3 -u \n", ("/usr/bin/env", "-S python3 -u")),
        ("#!/bin/sh -e\r\n", ("/bin/sh", "-e")),
        ("#!\t/bin/sh\t-e\t-x\n", ("/bin/sh", "-e\t-x")),
        ("#!sh\n", None),
        ("#!\n", None),
        ("echo\n#!/bin/sh", None),
        ("", None),
    ],
)
def test_an_interpreter_is_read_as_linux_reads_it(script: str, tokens: tuple[str, ...] | None) -> None:
    assert interpreter_of(script) == tokens


def test_a_script_is_run_by_its_interpreter_and_holds_no_placeholders() -> None:
    load = CommandWorkload(name="w", script="#!/bin/bash -e\necho ${ranks}")
    assert load.argv_on(4) == ("/bin/bash", "-e", "./script")


@pytest.mark.parametrize("name", ["", "/", "/etc/x", "..", "a/../b", "./", "."])
def test_names_that_lie_elsewhere(name: str) -> None:
    assert misnamed(name)


@pytest.mark.parametrize("name", ["a", "a/b.txt", "./a", "..a", "a b"])
def test_names_below_the_directory(name: str) -> None:
    assert misnamed(name) == ""


def test_names_that_meet() -> None:
    assert meets("a/b", ["x", "./a"]) == "./a"
    assert meets("a", ["a//b/c"]) == "a//b/c"
    assert meets("ab", ["a", "b"]) is None


def test_bounds_hold_their_ends_and_nothing_that_is_no_number() -> None:
    between = Bounds(least=-1.5, most=2)
    assert [between.hold(v) for v in (-1.5, 2, 0, -1.6, 2.1, math.inf, math.nan)] == [True] * 3 + [False] * 4
    assert str(between) == "at least -1.5 and at most 2" and str(Bounds(most=3)) == "at most 3"
    assert not Bounds() and Bounds(least=0) and not Bounds().hold(math.nan)


def test_program_with_files_has_its_own_directory() -> None:
    plain = CommandWorkload(name="w", argv=("p",))
    told = CommandWorkload(name="w", argv=("p",), verify=VerifySpec(reference=Reference(path="/r")))
    wrote = CommandWorkload(name="w", argv=("p",), verify=VerifySpec(regex="x", file="out"))
    brought = CommandWorkload(name="w", argv=("p",), files={"/a": "a"})
    assert [w.own_directory for w in (plain, told, wrote, brought)] == [False, False, True, True]
    assert wrote.outputs == ("out",)


@pytest.mark.parametrize("expression", [r"(a|aa)+$", r"(?:a|aa)+(b)c$", r"^(?:a?){40}(a{40})b"])
def test_a_search_without_an_end_is_given_up(expression: str) -> None:
    begin = time.process_time()
    with contextlib.suppress(TimeoutError):
        assert search(expression, "a" * 5000 + "!", limit=0.2) is None
    assert time.process_time() - begin < 60, "else it takes years"


@pytest.mark.parametrize(
    ("expression", "held", "told"),
    [
        ("(", "it", "not a regular expression"),
        ("(a)(b)", "it", "2 groups; one group ( ) must hold it"),
        ("a", None, ""),
        ("(a)", "it", ""),
        ("(" * 400 + ")" * 400, "it", "not a usable regular expression"),
        ("a" * 1001, None, "longer than 1000"),
        ("(a{1,60000}){1,60000}", "it", ""),
    ],
)
def test_mistake_in_an_expression_is_explained(expression: str, held: str | None, told: str) -> None:
    found = mistake(expression, held)
    assert found.startswith(told) if told else found == ""


def test_a_match_says_where_its_group_is() -> None:
    assert [search(e, "a 15") for e in (r"\d+", r"a (\d)", r"a(x)?")] == [
        Match(text="15", group=None),
        Match(text="a 1", group="1", begin=2, end=3),
        Match(text="a", group=None),
    ]


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_a_mistake(text: str) -> None:
    if mistake(text, None) == "":
        search(text, "a1.5 b\nc", limit=1)


def test_metrics_of_files_are_outputs_once() -> None:
    specs = tuple(MetricSpec(name=n, file="log", unit="s", better=Better.LOWER, regex="(a)") for n in "ab")
    assert CommandWorkload(name="w", argv=("p",), metrics=specs).outputs == ("log",)
