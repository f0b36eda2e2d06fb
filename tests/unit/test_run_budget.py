"""A time budget that does not hold two looks is said, with the one that would."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from nearmetal.model.plan import GROWING
from nearmetal.model.study import Design, Environment, EventSubject, Placement, Study
from nearmetal.run.budget import SLACK, too_short, two_looks
from nearmetal.subjects.start_stop import START

STUDY = Study(
    name="s",
    question="",
    environments=tuple(Environment(name=n, backend=n, placements=("one",)) for n in ("native", "namespaces")),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(EventSubject(name="start", facts=START),),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1, max_time=90.0),
)


def designed(**changes: Any) -> Study:
    return replace(STUDY, design=replace(STUDY.design, **changes))


def note(study: Study, *, spent: float = 5.0, done: int = 0, block_seconds: float) -> str | None:
    return too_short(study, GROWING, spent=spent, done=done, block_seconds=block_seconds)


def test_the_first_looks_that_can_give_a_verdict() -> None:
    assert two_looks(STUDY, GROWING) == (8, 12)
    assert two_looks(designed(min_blocks=20), GROWING) == (20, 20)
    assert two_looks(designed(primary=("start.start", "stop.stop")), GROWING) == (12, 18)


def test_a_budget_that_holds_two_looks_needs_no_word() -> None:
    assert note(STUDY, block_seconds=7.0) is None
    assert note(designed(max_time=None), block_seconds=1000.0) is None
    assert note(STUDY, done=10, block_seconds=30.0) is None
    assert note(designed(max_blocks=3), block_seconds=30.0) is None


@pytest.mark.parametrize(("block_seconds", "holds"), [(10.0, 8), (50.0, 1), (1000.0, 0)])
def test_the_time_that_would_hold_them_is_named(block_seconds: float, holds: int) -> None:
    said = note(STUDY, block_seconds=block_seconds)
    assert said is not None and said.startswith(f"about {holds} round")
    assert "after 8 rounds, then after 12" in said
    (asked,) = re.findall(r"--time (\d+)s", said)
    assert int(asked) == pytest.approx((5 + 12 * block_seconds) * SLACK, abs=1)
    assert note(designed(max_time=float(asked)), block_seconds=block_seconds) is None
