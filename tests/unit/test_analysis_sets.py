"""Slow machines and links follow from the sets of machines on which blocks ran."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.fold.pieces import Measured
from nearmetal.analysis.nodes.outliers import Rows
from nearmetal.analysis.nodes.sets import unlike_sets
from nearmetal.model.change import replace
from nearmetal.model.node_results import SetEvidence
from nearmetal.model.plan import nodes_of_block
from nearmetal.model.study import Better
from nearmetal.report.tables.nodes import alert_sentences

MACHINES = tuple("abcdef")
ARM, ROW = "native/2x1x1", ("cg", "rate")
MARGIN, SEED = 0.03, 11


def measured(values: list[float], better: Better) -> Measured:
    blocks = np.arange(1, len(values) + 1)
    return Measured(
        blocks=blocks,
        middles=np.array(values, dtype=np.float64),
        seconds=np.full(len(values), np.nan),
        work=np.full(len(values), np.nan),
        drawn=np.empty(0),
        unit="s",
        better=better,
    )


def rows(
    blocks: int,
    slow: dict[frozenset[str], float],
    *,
    noise: float = 0.01,
    size: int = 2,
    seed: int = 1,
    better: Better = Better.LOWER,
) -> Rows:
    """The baseline twice in each block, on a set of machines.

    slow: by machines that have to be in the set, how much longer it then takes.
    """
    rng = np.random.default_rng(seed)
    runs: tuple[list[float], list[float]] = [], []
    for block in range(1, blocks + 1):
        used = set(nodes_of_block(block, MACHINES, SEED)[:size])
        factor = max([1.0, *(by for names, by in slow.items() if names <= used)])
        for run in runs:
            seconds = factor * math.exp(noise * rng.standard_normal())
            run.append(seconds if better is Better.LOWER else 1 / seconds)
    return {(ARM, ROW): (measured(runs[0], better), measured(runs[1], better))}


def found(of: Rows, *, size: int = 2, machines: tuple[str, ...] = MACHINES) -> tuple[SetEvidence, ...]:
    return unlike_sets(of, machines, {ARM: size}, seed=SEED, alpha=0.05, margin=MARGIN)


@pytest.mark.parametrize("better", list(Better))
def test_a_slow_machine_is_named_and_its_neighbours_are_not(better: Better) -> None:
    (evidence,) = found(rows(48, {frozenset("c"): 1.08}, better=better))
    assert evidence.machines == ("c",) and evidence.n == 16 and evidence.others == 32
    assert evidence.ratio.low > 1.03 and evidence.ratio.centre == pytest.approx(1.08, rel=0.01)


def test_a_slow_link_is_named_and_its_ends_are_not() -> None:
    evidence = found(rows(300, {frozenset("be"): 1.10}))
    assert [e.machines for e in evidence] == [("b", "e")]
    assert evidence[0].ratio.centre == pytest.approx(1.10, rel=0.01)


def test_a_machine_within_the_margin_is_not_named() -> None:
    assert found(rows(300, {frozenset("c"): 1.02})) == ()


def test_sets_of_all_machines_say_nothing() -> None:
    assert found(rows(48, {frozenset("c"): 1.08}), size=6) == ()
    assert found(rows(48, {frozenset("c"): 1.08}), machines=()) == ()


def test_alike_machines_are_seldom_named() -> None:
    """Rounds are so far apart that some of them exceed the margin by themselves."""
    runs = 150
    wrong = sum(bool(found(rows(36, {}, noise=0.05, seed=seed))) for seed in range(runs))
    assert wrong <= 0.05 * runs


def test_three_machines_suffice_to_tell_which_is_slow() -> None:
    """Every set of two contains the slow machine, but one."""
    machines = ("a", "b", "c")
    rng = np.random.default_rng(3)
    values: tuple[list[float], list[float]] = [], []
    for block in range(1, 37):
        used = nodes_of_block(block, machines, SEED)[:2]
        for run in values:
            run.append((1.08 if "b" in used else 1.0) * math.exp(0.01 * rng.standard_normal()))
    pair = {(ARM, ROW): (measured(values[0], Better.LOWER), measured(values[1], Better.LOWER))}
    assert [e.machines for e in found(pair, machines=machines)] == [("b",)]


def test_a_report_says_which_machine_and_which_link_is_slow() -> None:
    sets = (*found(rows(48, {frozenset("c"): 1.08})), *found(rows(300, {frozenset("be"): 1.10})))
    analysis = replace(sample.analysis(), sets=sets)
    machine, link = alert_sentences(sample.study(), analysis)
    assert machine.startswith("c is slow: the baseline takes +8")
    assert "longer in 16 rounds with it than in 32 rounds without it, in CG.rate" in machine
    assert link.startswith("The link between b and e is slow: the baseline takes +")
    assert "with both than in" in link and link.endswith("rounds with one of them, in CG.rate")
