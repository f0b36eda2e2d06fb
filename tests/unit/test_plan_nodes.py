"""Blocks are dealt to nodes equally, in an order that the seed alone determines."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.small_study import small_study

from nearmetal.model.change import replace
from nearmetal.model.plan import GROWING, nodes_of_block, turn_of_nodes
from nearmetal.model.study import Placement, RealNodes, Study
from nearmetal.plan import looks_over_sets, node_of

NODES = st.lists(st.text("abcdef-0123456789", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)
SEEDS = st.integers(0, 2**64)


@given(NODES, SEEDS, st.integers(1, 200))
def test_every_turn_gives_each_node_one_block(nodes: list[str], seed: int, blocks: int) -> None:
    counts = Counter(node_of(b, 1, nodes, seed, nodes) for b in range(1, blocks + 1))
    assert counts.keys() <= set(nodes)
    assert max(counts.values()) - min(counts[n] for n in nodes) <= 1
    turn = 1 + (blocks - 1) // len(nodes)
    first = (turn - 1) * len(nodes) + 1
    assert {node_of(b, 1, nodes, seed, nodes) for b in range(first, first + len(nodes))} == set(nodes)


@given(NODES, SEEDS, st.integers(1, 10**9), st.integers(1, 9))
def test_the_order_depends_on_the_seed_and_the_set_of_nodes_only(
    nodes: list[str], seed: int, block: int, attempt: int
) -> None:
    mixed = sorted(nodes, reverse=True)
    assert node_of(block, attempt, mixed, seed, set(nodes)) == node_of(block, attempt, nodes, seed, nodes)


@given(NODES, SEEDS, st.integers(1, 10**6), st.data())
def test_a_block_goes_to_a_usable_node_and_stays_where_it_can(
    nodes: list[str], seed: int, block: int, data: st.DataObject
) -> None:
    usable = data.draw(st.sets(st.sampled_from(nodes)))
    found = node_of(block, 1, nodes, seed, usable)
    assert (found in usable) if usable else found == ""
    own = node_of(block, 1, nodes, seed, nodes)
    assert own not in usable or found == own, "a node that can be used keeps its blocks"


@given(NODES.filter(lambda nodes: len(nodes) > 1), SEEDS, st.integers(1, 10**6))
def test_a_further_attempt_goes_elsewhere(nodes: list[str], seed: int, block: int) -> None:
    tried = [node_of(block, attempt, nodes, seed, nodes) for attempt in range(1, len(nodes) + 1)]
    assert sorted(tried) == sorted(nodes)


def test_the_order_of_a_turn_is_a_uniform_permutation() -> None:
    """Of 6,000 turns over three nodes each of the six orders has 1,000, give or take five standard errors."""
    counts = Counter(turn_of_nodes(turn, ("a", "b", "c"), 7) for turn in range(6000))
    assert len(counts) == 6 and max(abs(n - 1000) for n in counts.values()) < 150


def test_without_nodes_any_worker_runs_the_block() -> None:
    assert node_of(1, 1, (), 1, ()) == ""


@given(NODES, SEEDS, st.integers(0, 1000), st.data())
def test_in_every_turn_each_node_is_equally_often_in_the_set_of_a_block(
    nodes: list[str], seed: int, turn: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(nodes)))
    blocks = range(turn * len(nodes) + 1, (turn + 1) * len(nodes) + 1)
    sets = [nodes_of_block(block, nodes, seed)[:size] for block in blocks]
    assert all(len(set(used)) == size for used in sets)
    assert Counter(name for used in sets for name in used) == dict.fromkeys(nodes, size)


def test_any_two_nodes_meet_in_some_blocks_and_not_in_others() -> None:
    nodes = ("a", "b", "c", "d", "e")
    met = Counter(frozenset(nodes_of_block(block, nodes, 7)[:2]) for block in range(1, 2001))
    assert len(met) == 10 and max(abs(n - 200) for n in met.values()) < 80


@given(NODES, SEEDS, st.data())
def test_looks_over_drawn_sets_begin_when_every_machine_was_in_one(
    nodes: list[str], seed: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, len(nodes)), min_size=1, max_size=3))
    study = over(sizes, draw=True)
    first = looks_over_sets(study, len(nodes)).first

    def used(blocks: int) -> set[str]:
        sets = (nodes_of_block(block, nodes, seed)[: min(sizes)] for block in range(1, blocks + 1))
        return {name for names in sets for name in names}

    assert used(first) == set(nodes) != used(first - 1)
    assert looks_over_sets(over(sizes, draw=False), len(nodes)) == GROWING


def over(sizes: list[int], *, draw: bool) -> Study:
    """A study with placements over so many machines each."""
    study = small_study("box")
    placements = tuple(
        Placement(name=f"{size}x1x1-{at}", nodes=size, instances=1, tasks=1) for at, size in enumerate(sizes)
    )
    nodes = RealNodes(inventory="hosts.yaml", draw=draw)
    (native,) = study.environments
    return replace(
        study,
        environments=(replace(native, placements=tuple(p.name for p in placements)),),
        placements=placements,
        design=replace(study.design, nodes=nodes),
    )
