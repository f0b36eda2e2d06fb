"""Lengths of blocks and repetitions: the edges of the rules (their known answers stand in
tests/statistical)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.plan import kalibera_jones_plan


@given(
    costs=st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=5),
    r_max=st.integers(1, 100),
    data=st.data(),
)
def test_repetitions_stay_in_bounds(costs: list[float], r_max: int, data: st.DataObject) -> None:
    t2 = data.draw(st.lists(st.floats(-10, 10), min_size=len(costs), max_size=len(costs)))
    plan = kalibera_jones_plan(costs=costs, t2=t2, r_max=r_max)
    assert len(plan) == len(costs) - 1
    for i, r in enumerate(plan):
        assert 1 <= r <= r_max
        if t2[i] <= 0:
            assert r == 1
        elif t2[i + 1] <= 0:
            assert r == r_max


@pytest.mark.parametrize(
    "costs, t2, r_max",
    [((1.0,), (1.0,), 5), ((1.0, 2.0), (1.0,), 5), ((0.0, 1.0), (1.0, 1.0), 5), ((1.0, 1.0), (1.0, 1.0), 0)],
)
def test_invalid_costs_and_variances_are_refused(
    costs: tuple[float, ...], t2: tuple[float, ...], r_max: int
) -> None:
    with pytest.raises(ValueError):
        kalibera_jones_plan(costs=costs, t2=t2, r_max=r_max)
