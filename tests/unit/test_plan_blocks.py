"""Blocks from a seed: complete, independent of each other, uniformly ordered, the same everywhere."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.plan import GrowingLooks
from nearmetal.model.study import Attachment, Design, Environment, EventSubject, Placement, Study
from nearmetal.plan import make_block, make_plan
from nearmetal.subjects.start_stop import START


def study(seed: int = 1, *, placements: tuple[str, ...] = ("one",)) -> Study:
    """Native (on `placements`), native over TCP, and a container in two placements."""
    return Study(
        name="s",
        question="",
        environments=(
            Environment(name="native", backend="native", placements=placements),
            Environment(name="tcp", backend="native", attachment=Attachment.LOOPBACK, placements=("one",)),
            Environment(name="box", backend="namespaces", placements=("one", "two")),
        ),
        placements=(
            Placement(name="one", instances=1, tasks=2),
            Placement(name="two", instances=2, tasks=1),
        ),
        workloads=(EventSubject(name="start", facts=START),),
        design=Design(baselines=("native", "tcp"), margin=0.03, confidence=0.95, seed=seed),
    )


@given(seed=st.integers(0, 2**64), number=st.integers(0, 10**9))
def test_a_block_holds_every_arm_once_and_the_baseline_twice(seed: int, number: int) -> None:
    block = make_block(study(seed), number)
    assert sorted((t.arm, t.aa) for t in block.trials) == [
        ("box/one", False),
        ("box/two", False),
        ("native/one", False),
        ("native/one", True),
        ("tcp/one", False),
    ]
    assert [t.position for t in block.trials] == [0, 1, 2, 3, 4]
    assert {t.block for t in block.trials} == {number}
    ids = [t.id for t in block.trials]
    assert len(set(ids)) == 5
    assert all(t.id == f"{number}.{t.arm}" + ".aa" * t.aa for t in block.trials)


def test_a_block_does_not_depend_on_how_many_there_are() -> None:
    long = make_plan(study(7), blocks=30)
    short = make_plan(study(7), blocks=12)
    assert long.blocks[:12] == short.blocks
    assert long.blocks[16] == make_block(study(7), 17)
    assert [b.number for b in long.blocks] == list(range(1, 31))
    assert (long.seed, long.schedule) == (7, GrowingLooks())


def test_the_order_is_written_in_stone() -> None:
    """Bytes of SHA-256 alone decide, so a plan made elsewhere or by a later Python is the same."""
    block = make_block(study(32_634), 17)
    assert [t.id for t in block.trials] == [
        "17.native/one",
        "17.native/one.aa",
        "17.box/one",
        "17.tcp/one",
        "17.box/two",
    ]
    assert block.slice_seed == 16534378610217286767


def test_every_order_is_equally_likely() -> None:
    """6000 blocks of 120 orders: chi-squared with 119 degrees of freedom has mean 119 and SD 15.4; 5 SD."""
    counts = Counter(tuple((t.arm, t.aa) for t in make_block(study(3), k).trials) for k in range(6000))
    assert len(counts) == 120
    assert abs(sum((n - 50) ** 2 / 50 for n in counts.values()) - 119) < 5 * 15.4


def test_order_of_the_two_baseline_runs_is_random() -> None:
    first = 0
    for number in range(4000):
        order = [t.aa for t in make_block(study(4), number).trials if t.arm == "native/one"]
        first += order[0]
    assert abs(first - 2000) < 5 * 32


def test_orders_of_successive_blocks_and_seeds_are_unrelated() -> None:
    same = sum(
        [t.arm for t in make_block(study(5), k).trials] == [t.arm for t in make_block(study(6), k).trials]
        for k in range(2000)
    )
    assert same < 2000 / 60 * 2
    assert len({make_block(study(5), k).slice_seed for k in range(1000)}) == 1000


def test_every_baseline_arm_that_is_compared_with_has_a_twin() -> None:
    assert [a.name for a in study().aa_arms()] == ["native/one"]
    assert [a.name for a in study(placements=("one", "two")).aa_arms()] == ["native/one", "native/two"]
    alone = study()
    alone = replace(alone, environments=alone.environments[:1])
    assert [a.name for a in alone.aa_arms()] == ["native/one"]
    assert sorted(t.aa for t in make_block(alone, 1).trials) == [False, True]
