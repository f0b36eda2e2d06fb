"""Scopes of counters and their text in records."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.scope import GUEST, HUB, INSTANCE, NODE, TIMED, Scope

WORDS = st.text(string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=8)
KINDS = WORDS.filter(lambda kind: kind != "runs")


@given(KINDS, st.one_of(st.just(""), WORDS, st.lists(WORDS, min_size=2).map(".".join)), WORDS | st.just(""))
def test_a_scope_is_found_again_in_its_text(kind: str, name: str, runs: str) -> None:
    scope = Scope(kind=kind, name=name, runs=runs)
    assert Scope.parse(str(scope)) == scope


@given(st.text())
def test_every_text_is_a_scope_and_keeps_its_text(text: str) -> None:
    assert str(Scope.parse(text)) == text.removesuffix(".") or text.endswith(".")


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("node", NODE),
        ("instance.nm1-0", Scope.instance("nm1-0")),
        ("timed.cg", Scope(kind=TIMED, name="cg")),
        ("runs.lammps.node", NODE.over_runs("lammps")),
        ("runs.lammps.guest.nm1-0", Scope(kind=GUEST, name="nm1-0", runs="lammps")),
        ("runs", Scope(kind="runs")),
    ],
)
def test_texts_of_records(text: str, scope: Scope) -> None:
    assert (Scope.parse(text), str(scope)) == (scope, text)


def test_a_report_names_an_instance_by_its_host_name() -> None:
    assert Scope.instance("nm0").place == "nm0" and HUB.place == "hub"
    assert Scope(kind=INSTANCE, name="nm0", runs="app").place == "runs.app.instance.nm0"
