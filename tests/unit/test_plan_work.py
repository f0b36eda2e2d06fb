"""How much work fills a slice, from trial slices of a kernel whose cost is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearmetal.plan.work import (
    SLICE_SECONDS,
    SLOWEST_SECONDS,
    TOKEN_SHARE,
    capped_units,
    fitting_units,
    next_trial,
    target_seconds,
)


def fitted(cost: float, fixed: float, least: int, token: float) -> tuple[int, int]:
    """Units found, and how many trial slices it took, for a kernel of `cost` seconds a unit."""
    target, units, trials = target_seconds(token), least, 1
    while (more := next_trial(units, fixed + cost * units, least=least, target=target)) is not None:
        assert more > units and more % least == 0
        units, trials = more, trials + 1
    return fitting_units(units, [fixed + cost * units] * 3, least=least, target=target), trials


@given(st.floats(1e-10, 1e-2), st.floats(0, 1e-6), st.sampled_from([1, 64, 2_000_000]), st.floats(1e-6, 1e-3))
def test_the_work_found_takes_the_target_or_cannot_be_divided(
    cost: float, fixed: float, least: int, token: float
) -> None:
    units, trials = fitted(cost, fixed, least, token)
    target = target_seconds(token)
    assert units % least == 0 and units >= least and trials <= 12
    assert units == least or 0.5 * target <= fixed + cost * units <= 1.05 * target
    assert units == least or cost * (units + least) > 0.7 * target


def test_slice_is_a_millisecond_or_longer_if_passing_the_token_is_slow() -> None:
    assert target_seconds(20e-6) == SLICE_SECONDS
    assert target_seconds(300e-6) == TOKEN_SHARE * 300e-6


@given(
    st.integers(1, 10**6),
    st.floats(1e-4, 1e-2),
    st.lists(st.floats(1, 100), max_size=4),
    st.sampled_from([1, 16]),
    st.floats(1e-6, 1e-3),
)
def test_a_slow_arm_shortens_slices_until_a_round_has_ten_tokens_for_each(
    units: int, baseline: float, slower: list[float], least: int, token: float
) -> None:
    units *= least
    arms = [baseline, *(baseline * s for s in slower)]
    found = capped_units(units, arms, least=least, token=token)
    assert least <= found <= units and found % least == 0
    if max(arms) <= SLOWEST_SECONDS:
        assert found == units
    elif found > least:
        share = (found + least) / units
        assert share * max(arms) >= SLOWEST_SECONDS * 0.99
        assert share * sum(arms) >= 0.99 * min(sum(arms), TOKEN_SHARE * token * len(arms)) or share >= 1


@given(st.floats(1e-10, 1e-2), st.sampled_from([1, 64, 1024]), st.integers(1, 10**7))
def test_a_slice_holds_no_more_than_it_may(cost: float, least: int, most: int) -> None:
    target, units = target_seconds(1e-6), least
    while (more := next_trial(units, cost * units, least=least, target=target, most=most)) is not None:
        assert units < more <= most
        units = more
    found = fitting_units(units, [cost * units], least=least, target=target, most=most)
    assert found == least or least < found <= most
    assert found > most - least or cost * (found + least) > 0.99 * target
