"""Properties of the signed-rank interval and of look-and-carry: fast equals naive, and the symmetries
hold."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearmetal.analysis.intervals import signed_rank
from nearmetal.analysis.intervals.looks import Carried, look_and_carry
from nearmetal.analysis.intervals.signed_rank import LIST_UP_TO, Walsh, attained, critical, lower_tail
from nearmetal.model.plan import GROWING, GrowingLooks

FloatArray = NDArray[np.float64]

VALUES = st.floats(-5, 5, allow_subnormal=False)
SAMPLES = st.lists(VALUES, min_size=1, max_size=60).map(lambda x: np.array(x, dtype=np.float64))
ALPHAS = st.floats(0.001, 0.5)


def naive(d: FloatArray) -> FloatArray:
    """All Walsh averages by the definition, sorted."""
    return np.array(sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(d.tolist(), 2)))


def draw(kind: str, n: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    match kind:
        case "normal":
            return rng.normal(size=n)
        case "heavy":
            return rng.standard_t(1.2, size=n)
        case "ties":
            return rng.normal(size=n) * (rng.random(n) < 0.4)
        case "rounded":
            return np.round(rng.normal(size=n), 1)
        case _:
            return np.full(n, 0.1)


@pytest.mark.parametrize("kind", ["normal", "heavy", "ties", "rounded", "constant"])
@pytest.mark.parametrize("n", [LIST_UP_TO + 1, 300, 700])
def test_counting_equals_listing(kind: str, n: int) -> None:
    d = draw(kind, n, n)
    i, j = np.triu_indices(n)
    listed = np.sort((d[i] + d[j]) / 2)
    walsh = Walsh(d)
    exact = 4 * np.finfo(np.float64).eps * float(np.max(np.abs(d)))
    for rank in (1, 2, 17, n, walsh.count // 3, walsh.count // 2, walsh.count - 5, walsh.count):
        assert walsh.lower(rank) == pytest.approx(listed[rank - 1], rel=0, abs=exact)
    for theta in (0.0, 0.05, -0.3, 1e9, -1e9):
        # Within the grid of 2^-53 of the largest value, ties count as equal.
        assert (
            np.sum(listed <= theta - exact) <= walsh.number_at_most(theta) <= np.sum(listed <= theta + exact)
        )
        assert np.sum(listed < theta - exact) <= walsh.number_below(theta) <= np.sum(listed < theta + exact)


@given(d=st.lists(VALUES, min_size=LIST_UP_TO + 1, max_size=LIST_UP_TO + 20).map(np.array), data=st.data())
def test_counting_equals_listing_on_anything(d: FloatArray, data: st.DataObject) -> None:
    walsh = Walsh(d)
    rank = data.draw(st.integers(1, walsh.count))
    scale = float(np.max(np.abs(d)))
    assert walsh.lower(rank) == pytest.approx(naive(d)[rank - 1], rel=0, abs=1e-15 * scale + 1e-300)


@given(d=SAMPLES, alpha=ALPHAS)
def test_interval_is_that_of_the_definition(d: FloatArray, alpha: float) -> None:
    k = critical(d.size, alpha / 2)
    listed = naive(d)
    expected = (listed[k], listed[listed.size - 1 - k]) if k >= 0 else (-math.inf, math.inf)
    assert Walsh(d).interval(alpha) == pytest.approx(expected, abs=1e-14)


@given(d=SAMPLES, alpha=ALPHAS, by=st.floats(-3, 3))
def test_shift(d: FloatArray, alpha: float, by: float) -> None:
    low, high = Walsh(d).interval(alpha)
    assert Walsh(d + by).interval(alpha) == pytest.approx((low + by, high + by), abs=1e-12)


@given(d=SAMPLES, alpha=ALPHAS)
def test_turning_the_sign_swaps_the_ends(d: FloatArray, alpha: float) -> None:
    low, high = Walsh(d).interval(alpha)
    assert Walsh(-d).interval(alpha) == pytest.approx((-high, -low), abs=1e-14)


@given(d=SAMPLES, alphas=st.tuples(ALPHAS, ALPHAS))
def test_a_smaller_alpha_never_gives_a_shorter_interval(d: FloatArray, alphas: tuple[float, float]) -> None:
    strict, loose = sorted(alphas)
    wide, narrow = Walsh(d).interval(strict), Walsh(d).interval(loose)
    assert wide[0] <= narrow[0] and narrow[1] <= wide[1]


@given(d=SAMPLES, alpha=ALPHAS)
def test_the_centre_lies_inside(d: FloatArray, alpha: float) -> None:
    walsh = Walsh(d)
    low, high = walsh.interval(alpha)
    assert low <= walsh.centre() <= high


@given(d=SAMPLES, alpha=ALPHAS, seed=st.integers(0, 1000))
def test_order_within_a_look_does_not_matter(d: FloatArray, alpha: float, seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(d)
    assert Walsh(shuffled).interval(alpha) == Walsh(d).interval(alpha)
    moved = np.concatenate([np.random.default_rng(seed).permutation(d[:8]), d[8:]])
    assert carried(moved, alpha) == carried(d, alpha)


def carried(d: FloatArray, alpha: float) -> Carried:
    return look_and_carry(d, schedule=GROWING, alpha=alpha)


@given(d=SAMPLES, closing=st.lists(st.integers(1, 60), max_size=3), alpha=ALPHAS)
def test_the_carried_interval_only_narrows(d: FloatArray, closing: list[int], alpha: float) -> None:
    schedule = GrowingLooks(closing=tuple(sorted(closing)))
    found = look_and_carry(d, schedule=schedule, alpha=alpha)
    for a, b in itertools.pairwise(found.looks):
        assert a.n < b.n and a.low <= b.low and b.high <= a.high
    if found.looks:
        assert (found.low, found.high) == (found.looks[-1].low, found.looks[-1].high)
    else:
        assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.low > found.high or found.low <= found.centre <= found.high


def test_contradicting_looks_leave_an_empty_interval() -> None:
    """A machine that is one thing for 30 blocks and another thereafter is not averaged away."""
    d = np.concatenate([np.full(30, 0.0), np.full(600, 0.2)]) + np.linspace(0, 1e-3, 630)
    found = carried(d, 0.05)
    assert found.low > found.high


@pytest.mark.parametrize("n", [401, 600, 1200])
def test_large_n_is_on_the_safe_side_and_close(n: int) -> None:
    """Against the exact distribution, which the tables stop using at 400: never below it, within 7/n of
    it."""
    exact = signed_rank.null_cdf(n)
    for p in np.geomspace(1e-7, 0.2, 40):
        k = int(np.searchsorted(exact, p, side="right")) - 1
        assert exact[k] <= lower_tail(n, k) <= (1 + 7 / n) * exact[k]
        assert 0 <= k - critical(n, p) <= 12


@given(n=st.integers(1, 600), level=st.floats(1e-9, 0.5))
def test_the_attained_level_is_the_nearest_below(n: int, level: float) -> None:
    found = attained(n, level)
    assert 0 <= found <= level
    k = critical(n, level / 2)
    assert found == (2 * lower_tail(n, k) if k >= 0 else 0.0)
    assert critical(n, found / 2) == k  # the interval at the attained level is the same
    assert 2 * lower_tail(n, k + 1) > level


def test_symmetry_and_ends_of_the_distribution() -> None:
    for n in (1, 2, 7, 50, 400, 401):
        whole = n * (n + 1) // 2
        assert lower_tail(n, -1) == 0.0 and lower_tail(n, whole) == pytest.approx(1.0, abs=1e-12)
    assert lower_tail(3, 0) == 0.125 and lower_tail(3, 3) == 0.625
    assert critical(5, 0.01) == -1


def test_twenty_thousand_blocks_take_well_under_a_second_and_grow_gently() -> None:
    def seconds(n: int) -> float:
        d = draw("normal", n, 1)
        best = math.inf
        for _ in range(3):
            begin = time.process_time()
            carried(d, 0.05)
            best = min(best, time.process_time() - begin)
        return best

    carried(draw("normal", 500, 1), 0.05)
    assert seconds(20_000) < 0.5
    # Quadratic growth would be a factor of 16.
    assert seconds(40_000) < 6 * seconds(10_000) + 0.02


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1])
def test_alpha_is_checked(bad: float) -> None:
    with pytest.raises(ValueError):
        carried(np.array([1.0]), bad)
