"""Expected blocks and repetitions: the edges of the rules (their known answers stand in
tests/statistical)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.plan import expected_blocks, fewer_blocks, kalibera_jones_plan


@pytest.mark.parametrize(
    "max_time, seconds, n",
    [(None, 2.0, 40), (90.0, 2.0, 40), (90.0, 3.0, 28), (60.0, 5.0, 12), (10.0, 60.0, 12), (3600.0, 0.5, 40)],
)
def test_expected_blocks(max_time: float | None, seconds: float, n: int) -> None:
    assert expected_blocks(max_time, seconds) == n


def test_a_block_takes_time() -> None:
    with pytest.raises(ValueError, match="takes time"):
        expected_blocks(90.0, 0.0)


@pytest.mark.parametrize(
    "expected, done, seconds, left, n",
    [
        (19, 5, [10.0, 11.0, 12.0], 65.0, 12),  # 10 blocks would not bear a verdict
        (33, 8, [10.0, 11.0, 60.0], 92.0, 15),  # the median: one hiccup says little
        (40, 8, [2.0], 92.0, 40),  # never more
        (40, 8, [2.0], -1.0, 12),
    ],
)
def test_fewer_blocks(expected: int, done: int, seconds: list[float], left: float, n: int) -> None:
    assert fewer_blocks(expected, done, seconds, left) == n


def test_without_a_block_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="no block"):
        fewer_blocks(12, 0, [], 10.0)


@given(
    costs=st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=5),
    r_max=st.integers(1, 100),
    data=st.data(),
)
def test_repetitions_stay_in_bounds(costs: list[float], r_max: int, data: st.DataObject) -> None:
    t2 = data.draw(st.lists(st.floats(-10, 10), min_size=len(costs), max_size=len(costs)))
    plan = kalibera_jones_plan(costs=costs, t2=t2, r_max=r_max)
    assert len(plan.repetitions) == len(plan.optimum) == len(costs) - 1
    for i, r in enumerate(plan.repetitions):
        assert 1 <= r <= r_max
        if t2[i] <= 0:
            assert r == 1 and plan.optimum[i] is None
        elif t2[i + 1] <= 0:
            assert r == r_max and plan.optimum[i] is None


@pytest.mark.parametrize(
    "costs, t2, r_max",
    [((1.0,), (1.0,), 5), ((1.0, 2.0), (1.0,), 5), ((0.0, 1.0), (1.0, 1.0), 5), ((1.0, 1.0), (1.0, 1.0), 0)],
)
def test_what_makes_no_sense_is_refused(costs: tuple[float, ...], t2: tuple[float, ...], r_max: int) -> None:
    with pytest.raises(ValueError):
        kalibera_jones_plan(costs=costs, t2=t2, r_max=r_max)
