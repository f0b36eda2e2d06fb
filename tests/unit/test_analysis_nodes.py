"""Runs on several nodes: known answers of both estimands, looks, and what the analysis says of the nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kruskal, ranksums

from nearmetal.analysis import analyse, decided
from nearmetal.analysis.decision import Criteria
from nearmetal.analysis.intervals.looks import look_and_carry, planned_looks, spent_levels
from nearmetal.analysis.intervals.signed_rank import Walsh
from nearmetal.analysis.intervals.stratified import NodeRanks, StratifiedSample
from nearmetal.analysis.nodes.centres import centre_of, sample_of_nodes
from nearmetal.analysis.nodes.factor import Nodes, StratifiedBlocks, carried_over_nodes, nodes_of_run
from nearmetal.analysis.nodes.findings import disagree, node_effect_p
from nearmetal.analysis.nodes.spread import over_metrics, standing_out
from nearmetal.api.catalog import catalog
from nearmetal.api.results import load
from nearmetal.model.design import Estimand
from nearmetal.model.node_results import NodeDeviation
from nearmetal.model.plan import GROWING, NodeState
from nearmetal.model.record import TrialRecord
from nearmetal.model.result import Analysis, Verdict
from nearmetal.model.study import (
    Attachment,
    Better,
    CommandWorkload,
    Design,
    Environment,
    Placement,
    Study,
)
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory
from nearmetal.report.forms.terminal import terminal_text
from nearmetal.study_file import dump_study
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate


def sample(*nodes: Sequence[float]) -> StratifiedSample:
    return StratifiedSample([np.array(d, dtype=np.float64) for d in nodes])


def nodes_of(owners: Sequence[int], estimand: Estimand = Estimand.THESE) -> Nodes:
    """Blocks 1, 2, ... on the given nodes."""
    found = nodes_of_run(range(1, len(owners) + 1), [NodeState(name=f"node{k}") for k in owners], estimand)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------ these nodes


def test_two_nodes_of_two_blocks_by_hand() -> None:
    """Walsh averages 1, 2, 3 and 2, 4, 6. Each rank sum is 0, 1, 2 or 3 with probability 1/4."""
    ranks = NodeRanks((2, 2))
    tails = [ranks.lower_tail(k) for k in range(-1, 7)]
    assert tails == pytest.approx([0, 1 / 16, 3 / 16, 6 / 16, 10 / 16, 13 / 16, 15 / 16, 1])
    found = sample([1, 3], [2, 6])
    assert found.interval(2 / 16) == (1, 6)
    assert found.interval(6 / 16) == (2, 4)
    assert found.interval(0.12) == (-math.inf, math.inf)
    assert found.centre() == 2.5
    # Only the Walsh averages 1, 2 and 2 are at or below 2, and only 6 is at or above 6.
    assert found.below(2) == pytest.approx(10 / 16) and found.above(6) == pytest.approx(3 / 16)


def test_a_node_with_more_blocks_has_the_same_weight() -> None:
    found = sample([1, 3], [5])
    assert found.centre() == 4.0, "half way between 3, all of the first node, and 5, all of the second"
    assert Walsh(np.array([1.0, 3, 5])).centre() == 3.0
    assert found.ranks.attained(0.25) == pytest.approx(2 / 8) and found.interval(0.25) == (1, 5)


def test_the_null_distribution_is_that_of_all_signs() -> None:
    ranks = NodeRanks((3, 1, 2))
    scores = []
    for signs in product((0, 1), repeat=6):
        own = (signs[:3], signs[3:4], signs[4:])
        sums = [sum(rank * s for rank, s in enumerate(part, 1)) for part in own]
        wholes = [len(part) * (len(part) + 1) // 2 for part in own]
        scores.append(sum(t * ranks.grid // whole for t, whole in zip(sums, wholes, strict=True)))
    for k in sorted(set(scores)):
        assert ranks.lower_tail(k) == pytest.approx(np.mean([s <= k for s in scores]), rel=1e-12)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=30),
    st.sampled_from([0.3, 0.05, 0.01]),
)
def test_one_node_is_the_signed_rank_interval(values: list[float], level: float) -> None:
    d = np.array(values)
    assert StratifiedSample([d]).interval(level) == Walsh(d).interval(level)


def test_counted_and_listed_samples_agree() -> None:
    """From 129 blocks of a node on, Walsh averages are counted and the distribution has a grid."""
    rng = np.random.default_rng(3)
    many = [rng.normal(size=n) for n in (129, 60)]
    listed = np.concatenate([Walsh(d)._listed for d in many if Walsh(d)._listed is not None])
    low, high = StratifiedSample(many).interval(0.05)
    found = StratifiedSample(many)
    k = found.ranks.critical(0.025)
    assert found._lower.score(low) <= k < found._lower.score(low + 1e-9)
    assert found._upper.score(-high) <= k < found._upper.score(-high + 1e-9)
    assert listed.size and low < found.centre() < high


def test_many_blocks_have_about_the_normal_tail() -> None:
    """500 blocks on each of 8 nodes are beyond the exact distribution of one node."""
    ranks, n, nodes = NodeRanks((500,) * 8), 500, 8
    sd = math.sqrt(nodes * n * (n + 1) * (2 * n + 1) / 24) / (n * (n + 1) / 2) * ranks.grid
    for z, tail in ((-1.959964, 0.025), (-3.0902, 0.001)):
        k = round(nodes * ranks.grid / 2 + z * sd)
        assert tail * 0.98 <= ranks.lower_tail(k) <= tail * 1.08


def test_failed_blocks_count_as_infinitely_slow() -> None:
    low, high = sample([0.1, 0.2, math.inf], [0.1, 0.3, 0.2]).interval(0.1)
    assert low == pytest.approx(0.1) and high == math.inf
    assert sample([math.inf, -math.inf], [0.0, 1.0]).interval(2 / 16) == (-math.inf, math.inf)


# ------------------------------------------------------------------------------------- nodes like these


def test_few_nodes_have_students_interval() -> None:
    """1, 2, 3: mean 2, standard error 1/sqrt(3), t(2, .975) = 4.302653."""
    found = sample_of_nodes([1, 2, 3])
    low, high = found.interval(0.05)
    assert (found.centre(), low, high) == pytest.approx((2, 2 - 2.484138, 2 + 2.484138))
    assert found.below(low) == pytest.approx(0.025) and found.above(high) == pytest.approx(0.025)
    assert sample_of_nodes([1.0]).interval(0.05) == (-math.inf, math.inf), "one node says nothing of others"
    assert sample_of_nodes([1, 2, math.inf]).interval(0.05) == (-math.inf, math.inf)


def test_eight_nodes_have_the_exact_interval() -> None:
    found = sample_of_nodes([3, 1, 2, 8, 5, 4, 7, 6])
    assert found.interval(0.0078125) == (1, 8) and found.interval(0.0078) == (-math.inf, math.inf)
    assert found.centre() == 4.5


def test_centre_of_a_node_with_failures() -> None:
    assert centre_of(np.array([1.0, 2, 4])) == 2.25, "Walsh averages 1, 1.5, 2, 2.5, 3, 4"
    assert centre_of(np.array([1.0, math.inf, math.inf])) == math.inf
    assert centre_of(np.array([1.0, 2, 3, -math.inf])) == pytest.approx(1.25)


# ------------------------------------------------------------------------------------------------ looks


def test_a_look_before_every_node_has_a_round_is_spent_but_not_carried_on() -> None:
    owners = [0, 1] * 5 + [2, 0, 1, 2] * 3
    d = np.linspace(-0.01, 0.012, len(owners))
    carried = carried_over_nodes(d, range(1, len(owners) + 1), nodes_of(owners), schedule=GROWING, alpha=0.05)
    assert [look.n for look in carried.looks] == [8, 12, 18]
    assert carried.looks[0].low == -math.inf and carried.looks[1].low > -math.inf
    comparison = StratifiedBlocks(d, range(1, len(owners) + 1), nodes_of(owners))
    levels = spent_levels(GROWING, planned_looks(GROWING, range(1, 23)), 0.05, comparison.level)
    assert levels[0] == pytest.approx(2 / 256), "four rounds on each of two nodes"
    assert 0 < levels[1] <= 0.05 * 0.44 - levels[0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.sampled_from(list(Estimand)))
def test_the_levels_never_exceed_alpha(owners: list[int], estimand: Estimand) -> None:
    numbers = range(1, len(owners) + 1)
    if len(set(owners)) == 1:
        estimand = Estimand.ALIKE
    comparison = StratifiedBlocks(np.zeros(len(owners)), numbers, nodes_of(owners, estimand))
    levels = spent_levels(GROWING, planned_looks(GROWING, numbers), 0.05, comparison.level)
    assert sum(levels) <= 0.05 and all(level >= 0 for level in levels)


def test_two_kernels_of_a_node_are_two_strata_and_one_node() -> None:
    old, new = NodeState("a", "6.1", "CPU"), NodeState("a", "6.12", "CPU")
    found = nodes_of_run([1, 2, 3], [old, new, NodeState("b", "6.1", "CPU")], Estimand.ALIKE)
    assert found is not None
    assert found.strata == ("a (Linux 6.1, CPU)", "a (Linux 6.12, CPU)", "b") and found.names == ("a", "b")
    assert found.states == {"a": "Linux 6.1, CPU; Linux 6.12, CPU", "b": "Linux 6.1, CPU"}
    comparison = StratifiedBlocks(np.array([1.0, 3.0, 10.0]), [1, 2, 3], found)
    whole = comparison.sample(3)
    assert comparison.replicates == 2 and whole is not None and whole.centre() == 6.0


# ----------------------------------------------------------------------------------------- disagreement


def test_the_test_of_node_effects_is_a_permutation_test() -> None:
    """Of the 70 ways to choose four of eight blocks, two separate them as clearly. Two tests double that."""
    d, owners = np.arange(8.0), np.repeat([0, 1], 4)
    assert node_effect_p(d, owners) == pytest.approx(2 * 2 / 70, abs=0.02)
    assert node_effect_p(np.zeros(8), owners) == 1.0
    assert node_effect_p(d, np.arange(8)) == 1.0, "one block on each node says nothing"
    assert node_effect_p(d, np.zeros(8, dtype=np.int64)) == 1.0


def test_one_node_among_many_is_found() -> None:
    """Five blocks of 40 are the largest: 8 nodes and 658,008 choices. Kruskal and Wallis give .05."""
    d, owners = np.arange(40.0), np.concatenate([np.arange(35) % 7, np.full(5, 7)])
    assert node_effect_p(d, owners) == pytest.approx(2 / 4000)


def test_many_blocks_use_the_approximations() -> None:
    rng = np.random.default_rng(5)
    d, owners = rng.normal(size=450), np.arange(450) % 3
    whole = kruskal(*(d[owners == k] for k in range(3))).pvalue
    one = min(3 * ranksums(d[owners == k], d[owners != k]).pvalue for k in range(3))
    assert node_effect_p(d, owners) == pytest.approx(min(1.0, 2 * min(whole, one)), rel=0.01)


# ------------------------------------------------------------------------------------- the whole analysis

METRIC = SimulatedMetric(workload="app", metric="wall", unit="s", better=Better.LOWER, value=2.0)
RATE = SimulatedMetric(workload="app", metric="rate", unit="op/s", better=Better.HIGHER, value=5e6)


def a_study(estimand: Estimand = Estimand.THESE) -> Study:
    return Study(
        name="nodes",
        question="",
        environments=(
            Environment(name="native", backend="native", placements=("one",)),
            Environment(
                name="container", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("one",)
            ),
        ),
        placements=(Placement(name="one", instances=1, tasks=1),),
        workloads=(CommandWorkload(name="app", argv=("app",)),),
        design=Design(baselines=("native",), seed=11, estimand=estimand),
    )


def records_of(
    study: Study, blocks: int, costs: Sequence[float], slow: Mapping[int, float] | None = None
) -> list[TrialRecord]:
    """Blocks in turn on one node for each overhead in `costs`; `slow`: slowness of some nodes."""
    plan = make_plan(study, blocks=blocks)
    out = []
    for k, cost in enumerate(costs):
        factor = 1 + (slow or {}).get(k, 0.0)
        found = simulate(
            study,
            plan,
            metrics=[
                replace(METRIC, value=METRIC.value * factor),
                replace(RATE, value=RATE.value / factor),
            ],
            overheads={"container/one": cost},
            spread=Spread(instance=0.007, run=0.0),
            run=f"worker{k}",
        )
        out += [r for r in found if r.block % len(costs) == k]
    return sorted(out, key=lambda r: (r.block, r.position))


def analysed(
    study: Study, records: Sequence[TrialRecord], names: Sequence[str], *, detail: bool = True
) -> Analysis:
    plan = make_plan(study, nodes={f"worker{k}": NodeState(name) for k, name in enumerate(names)})
    return analyse(study, plan, records, detail=detail)


NAMES = [f"node{k}" for k in range(8)]


def test_several_workers_on_one_node_change_nothing() -> None:
    study = a_study()
    records = records_of(study, 24, [0.05] * 3)
    plain = analysed(study, [msgspec.structs.replace(r, run="one") for r in records], [])
    same = analysed(study, [msgspec.structs.replace(r, run="one") for r in records], ["a"])
    workers = analysed(study, records, ["a", "a", "a"])
    assert plain.nodes is None and same == plain
    # Only the clock knows that the rounds of several workers overlap.
    untimed = [
        replace(c, seconds_needed=None, decided_seconds=None, spread=None)
        for c in (*workers.cells, *plain.cells)
    ]
    assert workers.nodes is None and untimed[:2] == untimed[2:] and plain.cells[0].nodes is None


def test_both_estimands_are_shown_side_by_side() -> None:
    study = a_study()
    found = analysed(study, records_of(study, 48, [0.05] * 8), NAMES)
    assert found.nodes is not None and found.nodes.rounds == dict.fromkeys(NAMES, 6)
    for cell in found.cells:
        assert cell.nodes is not None and cell.nodes.estimand is Estimand.THESE
        these, alike = (cell.nodes.estimates[e] for e in (Estimand.THESE, Estimand.ALIKE))
        assert (these.low, these.overhead, these.high) == (cell.low, cell.overhead, cell.high)
        assert these.low < 0.05 < these.high and alike.low < 0.05 < alike.high
        assert these.verdict is cell.verdict is Verdict.SLOWER and alike.verdict is Verdict.SLOWER
        assert (these.n, alike.nodes, alike.approximate) == (48, 8, False)
        assert not cell.nodes.disagree and [v.n for v in cell.nodes.values] == [6] * 8
    assert found.nodes.evidence == ()
    # Between blocks nothing but what a decision needs is computed, and the decision is the same.
    between = analysed(study, records_of(study, 48, [0.05] * 8), NAMES, detail=False)
    assert [(c.low, c.high, c.verdict) for c in between.cells] == [
        (c.low, c.high, c.verdict) for c in found.cells
    ]


def test_the_study_names_the_estimand_of_the_verdict() -> None:
    study = a_study(Estimand.ALIKE)
    found = analysed(study, records_of(study, 48, [0.05] * 8), NAMES)
    (cell, _), aa = found.cells, found.noise_floor.cells
    assert cell.nodes is not None and cell.nodes.estimand is Estimand.ALIKE
    alike = cell.nodes.estimates[Estimand.ALIKE]
    assert (cell.low, cell.high) == (alike.low, alike.high)
    assert all(c.verdict is Verdict.EQUIVALENT for c in aa), "the baseline is judged on these nodes"
    three = analysed(study, records_of(study, 48, [0.02, 0.05, 0.08]), NAMES[:3])
    (cell, _) = three.cells
    assert cell.verdict is Verdict.NONE and cell.blocks_needed is None
    assert cell.reason == "3 nodes: the interval reaches across 3 %; more nodes narrow it"
    assert cell.nodes is not None and cell.nodes.estimates[Estimand.ALIKE].approximate


def test_one_node_says_nothing_about_nodes_like_it() -> None:
    study = a_study(Estimand.ALIKE)
    found = analysed(study, records_of(study, 24, [0.05]), NAMES[:1])
    (cell, _) = found.cells
    assert (cell.low, cell.high) == (-1.0, math.inf) and cell.verdict is Verdict.NONE
    assert cell.reason.startswith("one node gives no information about other nodes")
    assert cell.nodes is not None
    assert cell.nodes.estimates[Estimand.THESE].verdict is Verdict.SLOWER


def test_where_nodes_disagree_that_is_the_finding() -> None:
    study = a_study()
    found = analysed(study, records_of(study, 48, [0.0] * 3 + [0.12]), NAMES[:4])
    for cell in found.cells:
        assert cell.nodes is not None and cell.nodes.disagree
        assert [round(v.overhead, 2) for v in cell.nodes.values] == pytest.approx([0, 0, 0, 0.12], abs=0.011)
        assert cell.verdict is Verdict.NONE and cell.reason.startswith("the nodes disagree")
    assert not found.undecided and decided(found), "more rounds do not change that"
    unequal = analysed(study, records_of(study, 48, [0.06, 0.06, 0.06, 0.12]), NAMES[:4])
    for cell in unequal.cells:
        assert cell.nodes is not None and cell.nodes.disagree and cell.verdict is Verdict.SLOWER
    assert decided(unequal) == all(c.verdict is Verdict.EQUIVALENT for c in unequal.noise_floor.cells)


def test_slow_node_is_named_and_results_without_it_are_shown() -> None:
    study = a_study()
    found = analysed(study, records_of(study, 48, [0.05] * 7 + [0.10], slow={7: 0.08}), NAMES)
    assert found.nodes is not None and found.nodes.left_out == ("node7",)
    assert {(e.node, e.unlike) for e in found.nodes.evidence} == {("node7", NodeDeviation.SLOW)}
    for e in found.nodes.evidence:
        assert e.ratio.low > 1.03 and e.ratio.low < 1.08 < e.ratio.high and (e.others, e.n) == (7, 6)
    for cell in found.cells:
        assert cell.nodes is not None
        assert cell.nodes.without[Estimand.THESE].n == 42
        assert cell.nodes.without[Estimand.ALIKE].nodes == 7
        assert cell.nodes.without[Estimand.THESE].overhead < cell.overhead


def test_no_node_is_left_out_if_half_of_them_are_named() -> None:
    study = a_study()
    records = records_of(study, 48, [0.05] * 4, slow={2: 0.2, 3: 0.2})
    found = analysed(study, records, NAMES[:4])
    assert found.nodes is not None and found.nodes.left_out == ()
    two = analysed(study, records_of(study, 24, [0.05] * 2, slow={1: 0.2}), NAMES[:2])
    assert two.nodes is not None and two.nodes.evidence == (), "of two, either may be the exception"


def test_node_is_an_outlier_only_beyond_the_spread_of_the_others() -> None:
    alike = {node: 0.001 * node for node in range(7)}
    assert standing_out({**alike, 9: 0.05}, 0.05) == {9}
    apart = {node: 0.02 * node for node in range(7)}
    assert standing_out({**apart, 9: 0.17}, 0.05) == frozenset()
    assert standing_out({**alike, 8: 0.05, 9: 0.05}, 0.05) == {8, 9}, "two do not hide each other"
    assert standing_out({0: 0.0, 1: 0.0, 2: 0.1}, 0.05) == {2}, "two equal nodes, and one that is not"
    assert standing_out({0: 0.0, 1: 0.1}, 0.05) == frozenset(), "of two, either may be the exception"
    assert standing_out(dict.fromkeys(range(4), 0.0), 0.05) == frozenset()


def test_metrics_of_different_spread_have_the_same_weight() -> None:
    fine = {node: 0.001 * (node % 3) for node in range(6)}
    coarse = {node: 100 * value for node, value in fine.items()}
    missing = {node: value for node, value in coarse.items() if node != 2}
    both = over_metrics([fine, coarse])
    assert both == pytest.approx(over_metrics([fine]))
    assert over_metrics([fine, missing])[1] == pytest.approx(both[1] / 2), "a metric without a node has none"
    assert set(over_metrics([dict.fromkeys(range(3), 1.0)]).values()) == {0.0}


def test_an_exceptionally_fast_node_does_not_make_the_others_slow() -> None:
    study = a_study()
    found = analysed(study, records_of(study, 48, [0.05] * 3, slow={0: -0.2}), NAMES[:3])
    assert found.nodes is not None and found.nodes.evidence == ()


def test_an_interval_of_equal_nodes_resembles_that_of_one() -> None:
    rng = np.random.default_rng(8)
    d = 0.02 * rng.normal(size=48)
    whole = look_and_carry(d, schedule=GROWING, alpha=0.05)
    apart = carried_over_nodes(
        d, range(1, 49), nodes_of([k % 4 for k in range(48)]), schedule=GROWING, alpha=0.05
    )
    assert apart.high - apart.low == pytest.approx(whole.high - whole.low, rel=0.3)
    assert apart.centre == pytest.approx(whole.centre, abs=0.003)


def test_a_results_directory_holds_the_node_of_each_worker(tmp_path: Path) -> None:
    study = a_study()
    directory = ResultsDirectory.create(tmp_path, "s", study_yaml=dump_study(study, catalog()))
    directory.freeze(seed=11, arms=[arm.name for arm in study.arms()], provenance={})
    records = records_of(study, 24, [0.0, 0.0, 0.12])
    (directory.path / "nodes").mkdir()
    for k, kernel in enumerate(("6.1", "6.1", "6.12")):
        with directory.writer(f"worker{k}") as writer:
            for record in records:
                if record.run == f"worker{k}":
                    writer.append(record)
        state = {"run": f"worker{k}", "node": f"node{k}", "kernel": {"release": kernel}}
        (directory.path / "nodes" / f"worker{k}.json").write_text(json.dumps(state))
    found = load(directory.path)
    assert found.analysis.nodes is not None
    assert found.analysis.nodes.rounds == {"node0": 8, "node1": 8, "node2": 8}
    assert found.analysis.nodes.states["node2"] == "Linux 6.12, unknown CPU"
    text = terminal_text(study, found.analysis, results_dir="r", report=None, width=200).plain
    assert "Nodes: 3 nodes with 8 rounds each; verdicts hold for these nodes" in text
    assert "The nodes disagree in 2 of 2 figures: app.wall of container" in text
    assert "node0 and node1: Linux 6.1, unknown CPU; node2: Linux 6.12" in text
    assert text.count("nodes like these: ") == 2, "the other estimand stands beside every verdict"


@pytest.mark.parametrize("comparisons", [1, 10, 30])
def test_a_node_unlike_the_others_is_found_however_many_comparisons_there_are(comparisons: int) -> None:
    """The alpha of a comparison of a confirmatory study is smaller than any p value of the test of nodes."""
    owners = [k % 8 for k in range(48)]
    d = np.array([0.5 * (k == 3) for k in owners]) + 0.01 * np.random.default_rng(1).normal(size=48)
    criteria = Criteria(
        schedule=GROWING, alpha=0.05 / comparisons, node_alpha=0.05, margin=0.03, min_blocks=0
    )
    assert disagree(d, range(1, 49), nodes_of(owners), criteria)
