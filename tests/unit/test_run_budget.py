"""A time budget that does not hold two looks is said, with the one that would."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from nearmetal.cli.plan_text import show_plan
from nearmetal.model.environments.placement import NodeKind
from nearmetal.model.plan import GROWING, GrowingLooks
from nearmetal.model.study import Design, Environment, EventSubject, Placement, RealNodes, Study
from nearmetal.run.budget import (
    SLACK,
    Pace,
    RemainingRounds,
    no_verdict,
    rest_note,
    rest_of,
    too_short,
    two_looks,
)
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


def test_a_limit_of_rounds_below_the_first_look_over_drawn_machines_is_said() -> None:
    drawn = GrowingLooks(first=17)
    assert no_verdict(designed(max_blocks=17), drawn) is None
    assert no_verdict(designed(max_blocks=3), GROWING) is None
    said = no_verdict(designed(max_blocks=12), drawn)
    assert said is not None and said.startswith("17 rounds are needed before the first verdict, since")
    assert "max_blocks is 12; next: max_blocks: 17" in said


def test_a_plan_over_named_machines_that_are_drawn_knows_their_first_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = tuple(f"n{i}" for i in range(20))
    nodes = RealNodes(inventory="hosts.yaml", names=names, draw=True)
    place = replace(STUDY.placements[0], nodes=4, node_kind=NodeKind.MACHINE)
    asked = replace(designed(nodes=nodes, max_blocks=12, max_time=None), placements=(place,))
    show_plan(asked, json=False, blocks=1)
    assert "note: 17 rounds are needed before the first verdict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("block_seconds", "holds"),
    [
        (10.0, "about 8 rounds of"),
        (50.0, "about 1 round of"),
        (1000.0, "the first round of 1000.0 s lasts longer than the rest"),
    ],
)
def test_the_time_that_would_hold_them_is_named(block_seconds: float, holds: str) -> None:
    said = note(STUDY, block_seconds=block_seconds)
    assert said is not None and said.startswith(holds)
    assert "after 8 rounds, then after 12" in said
    (asked,) = re.findall(r"--time (\d+)s", said)
    assert int(asked) == pytest.approx((5 + 12 * block_seconds) * SLACK, abs=1)
    assert note(designed(max_time=float(asked)), block_seconds=block_seconds) is None


@pytest.mark.parametrize(
    ("max_time", "max_blocks", "lengths", "done", "elapsed", "rest"),
    [
        (90.0, 1000, (2.0, 2.0, 2.0, 2.0), 0, 10.0, (40, 80.0)),
        (90.0, 1000, (2.0, 2.0, 2.0, 2.0), 20, 50.0, (20, 40.0)),
        (90.0, 1000, (3.0, 3.0, 3.0, 3.0), 0, 10.0, (26, 78.0)),  # the 27th would end too late
        (90.0, 12, (2.0, 2.0, 2.0, 2.0), 0, 10.0, (12, 24.0)),
        (90.0, 12, (2.0, 2.0, 2.0, 2.0), 12, 34.0, (0, 0.0)),
        (None, 12, (2.0, 2.0, 2.0, 2.0), 5, 10.0, (7, 14.0)),
        (None, 1000, (2.0, 2.0, 2.0, 2.0), 5, 10.0, None),
        (100.0, 1000, (2.0, 4.0, 5.0, 8.0), 0, 0.0, (8 + 4 + 6 + 4, 16.0 + 16 + 30 + 32)),
        (100.0, 1000, (2.0, 4.0, 5.0, 8.0), 10, 20.0, (2 + 6 + 5, 8.0 + 30 + 40)),
        (50.0, 1000, (2.0, 4.0, 5.0, 8.0), 0, 0.0, (8 + 4 + 3, 16.0 + 16 + 15)),
        (100.0, 10, (2.0, 4.0, 5.0, 8.0), 0, 0.0, (10, 24.0)),
        (90.0, 1000, (2.0, 2.0, 2.0, 2.0), 5, 91.0, (0, 0.0)),
    ],
)
def test_the_rest_of_a_run(
    max_time: float | None,
    max_blocks: int,
    lengths: tuple[float, ...],
    done: int,
    elapsed: float,
    rest: tuple[int, float] | None,
) -> None:
    """Rounds become longer after 8 of them, after 12 and after 18."""
    design = designed(max_time=max_time, max_blocks=max_blocks).design
    found = rest_of(design, lengths, done=done, elapsed=elapsed)
    assert (None if found is None else (found.rounds, found.seconds)) == rest


def test_the_pace_follows_the_last_rounds() -> None:
    pace = Pace()
    assert pace.lengths((1.0, 2.0, 4.0)) == [1.0, 2.0, 4.0]
    pace.saw(1.0, 1.5)
    assert pace.lengths((1.0, 2.0, 4.0)) == [1.5, 3.0, 6.0]
    for _ in range(6):
        pace.saw(2.0, 4.0)
    for _ in range(2):
        pace.saw(4.0, 4.0)
    # Of the last eight rounds six took twice as long as planned, and two as long: 32 s instead of 20 s.
    assert pace.lengths((1.0, 2.0, 4.0)) == [1.6, 3.2, 6.4]


def test_what_is_announced() -> None:
    rest = RemainingRounds(rounds=40, seconds=80.0)
    ends = "in all; fewer if every figure is decided before, more if decided environments drop out"
    assert rest_note(rest, done=0, elapsed=10.0) == f"about 40 rounds of 2 s, 0:01:30 {ends}"
    assert rest_note(rest, done=1, elapsed=12.0) == f"about 40 more rounds of 2 s, 0:01:32 {ends}"
    one = rest_note(RemainingRounds(rounds=1, seconds=2.5), done=1, elapsed=12.0)
    assert one.startswith("about 1 more round of 2.5 s, 0:00:14")
