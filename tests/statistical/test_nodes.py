"""Several nodes with planted truths: coverage of both estimands, equal nodes that seldom disagree, and a slow
node that is named.

48 rounds, nodes 1 % apart, rounds 2 %, as in docs/method.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from nearmetal.analysis.decision import Criteria
from nearmetal.analysis.fold.pieces import Measured
from nearmetal.analysis.intervals.looks import look_and_carry
from nearmetal.analysis.intervals.signed_rank import Walsh
from nearmetal.analysis.intervals.stratified import StratifiedSample
from nearmetal.analysis.nodes.centres import centre_of, sample_of_nodes
from nearmetal.analysis.nodes.factor import Nodes, carried_over_nodes, nodes_of_run
from nearmetal.analysis.nodes.findings import disagree
from nearmetal.analysis.nodes.outliers import unlike_nodes
from nearmetal.analysis.nodes.spread import largest_p
from nearmetal.model.design import Estimand
from nearmetal.model.node_results import NodeDeviation
from nearmetal.model.plan import GROWING, NodeState
from nearmetal.model.study import Better

FloatArray = NDArray[np.float64]
ALPHA, APART, ROUNDS = 0.05, 0.01, 0.02


CRITERIA = Criteria(schedule=GROWING, alpha=ALPHA, node_alpha=ALPHA, margin=0.03, min_blocks=0)


def slack(replicates: int, level: float = ALPHA) -> float:
    return 3 * math.sqrt(level * (1 - level) / replicates)


def nodes_of(owners: Sequence[int], estimand: Estimand) -> Nodes:
    found = nodes_of_run(range(1, len(owners) + 1), [NodeState(name=f"node{k}") for k in owners], estimand)
    assert found is not None
    return found


def drawn(rng: np.random.Generator, sizes: Sequence[int]) -> tuple[FloatArray, list[FloatArray]]:
    """The true centre of each node, and the values of its rounds."""
    truth = APART * rng.normal(size=len(sizes))
    return truth, [c + ROUNDS * rng.normal(size=n) for c, n in zip(truth, sizes, strict=True)]


def misses(interval: tuple[float, float], truth: float) -> bool:
    return not interval[0] <= truth <= interval[1]


@pytest.mark.parametrize(
    ("sizes", "pooled_alike", "pooled_these"),
    [([6] * 8, 0.14, 0), ([16] * 3, 0.28, 0), ([27] + [3] * 7, 0.25, 0.18), ([32, 8, 8], 0.3, 0.14)],
    ids=["8 nodes", "3 nodes", "a fast one of 8", "a fast one of 3"],
)
def test_both_intervals_cover_and_pooled_rounds_do_not(
    sizes: list[int], pooled_alike: float, pooled_these: float
) -> None:
    """pooled_alike, pooled_these: least share that Student's interval of all rounds misses."""
    replicates, rng = 1500, np.random.default_rng(17)
    missed = dict.fromkeys(("pooled alike", "pooled these", "these", "alike"), 0)
    for _ in range(replicates):
        truth, values = drawn(rng, sizes)
        whole, mean = np.concatenate(values), float(truth.mean())
        half = float(student.ppf(1 - ALPHA / 2, whole.size - 1)) * whole.std(ddof=1) / math.sqrt(whole.size)
        pooled = (float(whole.mean()) - half, float(whole.mean()) + half)
        missed["pooled alike"] += misses(pooled, 0)
        missed["pooled these"] += misses(pooled, mean)
        missed["these"] += misses(StratifiedSample(values).interval(ALPHA), mean)
        missed["alike"] += misses(sample_of_nodes([centre_of(d) for d in values]).interval(ALPHA), 0)
    shares = {name: count / replicates for name, count in missed.items()}
    assert shares["these"] <= ALPHA + slack(replicates)
    assert shares["alike"] <= ALPHA + slack(replicates)
    assert shares["pooled alike"] > pooled_alike and shares["pooled these"] >= pooled_these


def test_if_nodes_are_alike_the_stratified_level_is_exact() -> None:
    replicates, rng = 3000, np.random.default_rng(19)
    missed, level = 0, StratifiedSample([np.arange(6.0)] * 8).ranks.attained(ALPHA)
    for _ in range(replicates):
        missed += misses(StratifiedSample(list(ROUNDS * rng.standard_t(2, size=(8, 6)))).interval(ALPHA), 0)
    assert missed / replicates == pytest.approx(level, abs=slack(replicates)) and level > 0.045


@pytest.mark.parametrize("estimand", list(Estimand))
@pytest.mark.parametrize("count", [8, 3])
def test_the_carried_interval_ever_misses_in_at_most_5_percent(estimand: Estimand, count: int) -> None:
    """Looks after 8, 12, 18, 27 and 41 rounds that go to the nodes in turn."""
    replicates, rng = 1000, np.random.default_rng(23)
    owners = [k % count for k in range(48)]
    nodes, missed, widths, pooled = nodes_of(owners, estimand), 0, [], []
    for _ in range(replicates):
        truth = APART * rng.normal(size=count)
        d = truth[owners] + ROUNDS * rng.normal(size=48)
        found = carried_over_nodes(d, range(1, 49), nodes, schedule=GROWING, alpha=ALPHA)
        missed += misses((found.low, found.high), float(truth.mean()) if estimand is Estimand.THESE else 0.0)
        widths.append(found.high - found.low)
        pooled.append(look_and_carry(d, schedule=GROWING, alpha=ALPHA))
    assert missed / replicates <= ALPHA + slack(replicates)
    if estimand is Estimand.THESE:  # it costs little: the interval is about as wide as that of pooled rounds
        assert np.median(widths) < 1.15 * np.median([c.high - c.low for c in pooled])


def test_equal_nodes_seldom_disagree_and_unequal_ones_often_do() -> None:
    replicates, rng = 400, np.random.default_rng(29)
    owners = [k % 8 for k in range(48)]
    nodes = nodes_of(owners, Estimand.THESE)
    found = dict.fromkeys(("equal", "unequal"), 0)
    for _ in range(replicates):
        shifts = np.where(np.array(owners) == 5, 0.08, 0.0)
        heavy, normal = ROUNDS * rng.standard_t(3, size=48), ROUNDS * rng.normal(size=48)
        for name, values in (("equal", heavy), ("unequal", normal + shifts)):
            found[name] += disagree(values, range(1, 49), nodes, CRITERIA)
    assert found["equal"] / replicates <= ALPHA + slack(replicates)
    assert found["unequal"] / replicates > 0.9


def measured(values: FloatArray) -> Measured:
    none = np.empty(0)
    blocks = np.arange(1, values.size + 1)
    return Measured(
        unit="s",
        better=Better.LOWER,
        blocks=blocks,
        middles=np.exp(values),
        seconds=none,
        work=none,
        drawn=none,
    )


Noise = Callable[[np.random.Generator], FloatArray]


def normal(rng: np.random.Generator) -> FloatArray:
    return rng.normal(size=48)


def named(
    rng: np.random.Generator,
    *,
    apart: float,
    slow: float = 0.0,
    unsteady: float = 1.0,
    metrics: int = 3,
    count: int = 8,
    exceptions: Sequence[int] = (5,),
    rounds: float = ROUNDS,
    noise: Noise = normal,
) -> set[tuple[str, NodeDeviation]]:
    """48 rounds on `count` nodes, of which `exceptions` are slow or unsteady. d of two instances spreads by
    `rounds`, 2 %, so one instance by 1.4 %."""
    owners = np.arange(48) % count
    nodes = nodes_of(owners.tolist(), Estimand.THESE)
    rows = {}
    for metric in range(metrics):
        level = apart * rng.normal(size=count)
        level[[k for k in exceptions if k < count]] += math.log1p(slow)
        spread = np.where(np.isin(owners, exceptions), unsteady, 1.0) * rounds / math.sqrt(2)
        runs = [level[owners] + spread * noise(rng) for _ in range(2)]
        rows["native/one", ("app", f"metric{metric}")] = (measured(runs[0]), measured(runs[1]))
    evidence = unlike_nodes(rows, nodes, alpha=ALPHA, margin=0.03)
    return {(e.node, e.unlike) for e in evidence}


@pytest.mark.parametrize(
    ("apart", "metrics", "least"),
    [(0.0, 1, 0.9), (0.0, 3, 0.95), (0.005, 1, 0.8), (0.01, 3, 0.9), (0.0, 12, 0.95), (0.01, 1, 0.55)],
)
def test_a_slow_node_is_named_and_a_sound_one_is_not(apart: float, metrics: int, least: float) -> None:
    """A node that is 5 % slower is named in 9 of 10 runs if the others are alike, any sound node in at most 1
    of 20.

    Of 3,000 runs, the shares are .92, 1, .80, .90, 1 and .56. With one metric and other nodes that are 1 %
    apart, no rule reaches .9: see test_no_rule_finds_more_than_grubbs().
    """
    replicates, rng = 300, np.random.default_rng(31)
    slow, sound = ("node5", NodeDeviation.SLOW), 0
    found = 0
    for _ in range(replicates):
        got = named(rng, slow=0.05, apart=apart, metrics=metrics)
        found += slow in got
        sound += bool(got - {slow}) or bool(named(rng, slow=0.0, apart=apart, metrics=metrics))
    assert found / replicates >= least - slack(replicates, least)
    assert sound / replicates <= 0.05


def test_a_node_within_the_margin_is_seldom_named() -> None:
    """The other nodes are alike, so it stands out of their spread, and only the margin keeps it from that."""
    replicates, rng = 600, np.random.default_rng(59)
    for metrics in (1, 3):
        found = sum(bool(named(rng, slow=0.03, apart=0.0, metrics=metrics)) for _ in range(replicates))
        assert found / replicates <= ALPHA + slack(replicates)


def test_no_rule_finds_more_than_grubbs() -> None:
    """The largest centre in standard deviations of the others is the best that does not assume their spread.
    With the same rate of sound nodes, centres by median and MAD find less. Who knew mean and spread of the
    sound nodes would find .98."""
    replicates, rng = 20_000, np.random.default_rng(61)
    sound = rng.normal(size=(replicates, 8))
    spread = math.hypot(0.01, ROUNDS / math.sqrt(2) / math.sqrt(12))  # two runs in each of six rounds
    slow = spread * rng.normal(size=(replicates, 8))
    slow[:, 5] += math.log1p(0.05)
    powers = {}
    for name, statistic in (("Grubbs", by_others), ("MAD", by_mad), ("known", lambda x: np.max(x, axis=1))):
        scale = spread if name == "known" else 1.0
        limit = np.quantile(statistic(sound), 1 - ALPHA)
        powers[name] = np.mean((statistic(slow / scale) > limit) & (np.argmax(slow, axis=1) == 5))
    assert powers["MAD"] < 0.6 and powers["Grubbs"] == pytest.approx(0.72, abs=0.02)
    assert powers["known"] == pytest.approx(0.98, abs=0.02)


def by_others(x: FloatArray) -> FloatArray:
    ordered = np.sort(x, axis=1)
    others = ordered[:, :-1]
    found: FloatArray = (ordered[:, -1] - others.mean(axis=1)) / others.std(axis=1, ddof=1)
    return found


def by_mad(x: FloatArray) -> FloatArray:
    distance = x - np.median(x, axis=1, keepdims=True)
    found: FloatArray = distance.max(axis=1) / np.median(np.abs(distance), axis=1)
    return found


@pytest.mark.parametrize("apart", [0.01, 0.02, 0.05])
@pytest.mark.parametrize(("count", "metrics"), [(3, 3), (8, 1), (8, 3), (16, 3)])
def test_sound_nodes_that_differ_are_seldom_named(count: int, metrics: int, apart: float) -> None:
    """Whatever the spread of sound nodes is, any of them is named in at most 1 of 20 runs."""
    replicates, rng = 300, np.random.default_rng(43)
    found = sum(bool(named(rng, apart=apart, metrics=metrics, count=count)) for _ in range(replicates))
    assert found / replicates <= 0.05 + slack(replicates)


@pytest.mark.parametrize(
    "noise",
    [normal, lambda rng: rng.standard_t(3, size=48) / math.sqrt(3), lambda rng: rng.lognormal(size=48)],
    ids=["normal", "heavy tails", "skewed"],
)
def test_alike_nodes_are_seldom_named_whatever_the_shape_of_their_rounds(noise: Noise) -> None:
    """16 nodes with 3 rounds each, which spread far more than the margin. Centres of few skewed rounds are
    not normal, so only the rank-sum interval holds; of 3,000 runs, 0.6, 1.1 and 2.9 % name a node."""
    replicates, rng = 600, np.random.default_rng(67)
    options: dict[str, Any] = {"apart": 0.0, "metrics": 1, "count": 16, "rounds": 0.5, "noise": noise}
    found = sum(bool(named(rng, **options)) for _ in range(replicates))
    assert found / replicates <= ALPHA + slack(replicates)


def test_the_p_value_of_the_largest_centre_is_exact() -> None:
    """Student's t of the largest of n, times n, is exact if no second centre can be as exceptional."""
    replicates, rng = 20_000, np.random.default_rng(47)
    for count in (3, 8, 16):
        centres = np.sort(rng.normal(size=(replicates, count)), axis=1)
        p = np.array([largest_p(own) for own in centres])
        for level in (0.01, 0.05):
            assert np.mean(p <= level) == pytest.approx(level, abs=slack(replicates, level))


def test_two_slow_nodes_do_not_hide_each_other() -> None:
    replicates, rng = 200, np.random.default_rng(53)
    found = [named(rng, slow=0.1, apart=0.0, exceptions=(2, 5)) for _ in range(replicates)]
    both = {("node2", NodeDeviation.SLOW), ("node5", NodeDeviation.SLOW)}
    assert sum(both <= got for got in found) / replicates > 0.9
    assert sum(bool(got - both) for got in found) / replicates <= 0.05 + slack(replicates)


def test_an_unsteady_node_is_named() -> None:
    replicates, rng = 100, np.random.default_rng(37)
    found = sum(
        ("node5", NodeDeviation.UNSTEADY) in named(rng, slow=0.0, apart=0.0, unsteady=12.0)
        for _ in range(replicates)
    )
    assert found / replicates >= 0.9


def test_nodes_far_apart_move_the_centre_to_the_middle_node() -> None:
    """The stratified centre of nodes that differ by many times the spread of rounds is their median, not
    their mean. Nodes that differ so much disagree, which is the finding."""
    rng = np.random.default_rng(41)
    values = [centre + ROUNDS * rng.normal(size=16) for centre in (0.0, 0.02, 0.4)]
    found = StratifiedSample(values)
    assert found.centre() == pytest.approx(0.03, abs=0.03)
    assert float(np.mean([Walsh(d).centre() for d in values])) == pytest.approx(0.14, abs=0.01)
    d = np.concatenate([np.array(x) for x in zip(*values, strict=True)])
    nodes = nodes_of([k % 3 for k in range(48)], Estimand.THESE)
    assert disagree(d, range(1, 49), nodes, CRITERIA)
