"""How random faults are drawn and judged, with planted outcomes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.system.random_draws import HITS, LEAST, MOST, Fault, faults, judge
from tests.system.test_random_faults import KINDS, SEEDS


def hit(kind: str) -> Fault:
    return kind, True, []


def test_faults_that_miss_are_drawn_again_until_all_have_hit() -> None:
    rng = Random(1)
    made = list(faults(rng, KINDS, lambda kind: (kind, rng.random() < 0.3, [])))
    hits = Counter(kind for kind, (_, met, _) in made if met)
    assert hits.total() == HITS < len(made) <= MOST
    assert set(hits) == set(KINDS) and max(hits.values()) - min(hits.values()) <= 1
    judge(1, KINDS, made)


def test_the_seeds_have_300_hits_of_all_kinds() -> None:
    assert SEEDS * HITS == 300
    for seed in range(SEEDS):
        made = list(faults(Random(seed), KINDS, hit))
        assert len(made) == HITS
        assert min(Counter(kind for kind, _ in made).values()) > LEAST


def test_a_kind_that_never_hits_fails_the_test_after_a_bounded_number() -> None:
    made = list(faults(Random(1), KINDS, lambda kind: (kind, kind != KINDS[0], [])))
    assert len(made) == MOST
    with pytest.raises(AssertionError, match="too few faults met their event"):
        judge(1, KINDS, made)


def test_what_a_miss_leaves_is_wrong_too() -> None:
    made = [(kind, hit(kind)) for kind in KINDS * LEAST]
    judge(1, KINDS, made)
    with pytest.raises(AssertionError, match="a copy is left"):
        judge(1, KINDS, [*made, (KINDS[0], (KINDS[0], False, ["a copy is left"]))])
