"""The order of the arms in the rounds of a block."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.plan import TrialSpec
from nearmetal.model.study import Arm, Environment, Placement
from nearmetal.node.trial import Trial
from nearmetal.subjects.rounds import rounds

NO_NODE: Any = None


def arms(number: int) -> list[Trial]:
    place = Placement(name="1x1", instances=1, tasks=1)
    own = [Environment(name=f"a{i}", backend="native", placements=("1x1",)) for i in range(number)]
    return [
        Trial(
            spec=TrialSpec(id=f"1.{i}", block=1, position=i, arm=f"a{i}/1x1", aa=False),
            arm=Arm(environment=own[i], placement=place),
            node=NO_NODE,
            nodes=(),
            directory=Path("/d"),
            log=Path("/l"),
        )
        for i in range(number)
    ]


@given(st.integers(3, 6), st.integers(0, 20), st.integers(0, 99), st.booleans())
def test_every_round_has_every_arm_and_none_follows_itself(
    number: int, count: int, seed: int, preceded: bool
) -> None:
    some = arms(number)
    before = some[seed % number] if preceded else None
    found = list(rounds(some, random.Random(seed), count, after=before))
    for r in range(count):
        assert {id(s) for s in found[r * number : (r + 1) * number]} == set(map(id, some))
    assert all(s is not t for s, t in pairwise([before, *found]))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_few_arms_are_in_every_order(number: int) -> None:
    some = arms(number)
    found = list(rounds(some, random.Random(1), 50, after=some[0] if some else None))
    assert len(found) == 50 * number
    orders = {tuple(map(some.index, found[r : r + number])) for r in range(0, len(found), number or 1)}
    assert orders == (set(permutations(range(number))) if number else set())


def test_no_arm_leads_more_often() -> None:
    some = arms(3)
    found = list(rounds(some, random.Random(7), 3000))
    first = Counter(some.index(s) for s in found[::3])
    assert all(abs(n / 3000 - 1 / 3) < 0.04 for n in first.values())


def test_a_failed_arm_is_left_out_and_changes_no_order() -> None:
    some, broken = arms(4), arms(4)
    broken[2].found.failure = "died"
    for last in range(4):
        whole = [some.index(s) for s in rounds(some, random.Random(3), 20, after=some[last])]
        left = [broken.index(s) for s in rounds(broken, random.Random(3), 20, after=broken[last])]
        assert left == [i for i in whole if i != 2]
