"""The companions: sign interval, means, quantiles, and the defects of other tools that must not come back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearmetal.analysis.intervals.fieller import fieller
from nearmetal.analysis.intervals.mean import Moments, anytime_mean, variance, welch
from nearmetal.analysis.intervals.quantiles import (
    median_interval,
    quantile_interval,
    quantile_ranks,
    quantiles,
)
from nearmetal.analysis.intervals.rank_sum import rank_sum
from nearmetal.analysis.intervals.sign import log_e_value, sign_interval
from nearmetal.analysis.intervals.variance_components import components_of_moments, group_moments

FloatArray = NDArray[np.float64]
SAMPLES = st.lists(st.floats(-5, 5), min_size=1, max_size=80).map(lambda x: np.array(x, dtype=np.float64))


@given(d=SAMPLES)
def test_sign_interval_is_that_of_the_definition(d: FloatArray) -> None:
    low, high = -math.inf, math.inf
    for n in range(1, d.size + 1):
        k = next((k for k in range(n // 2 + 1) if log_e_value(n, k) < math.log(20)), None)
        assert k is not None
        if k > 0:
            ordered = np.sort(d[:n])
            low, high = max(low, ordered[k - 1]), min(high, ordered[n - k])
    interval = sign_interval(d, 0.05)
    assert (interval.low, interval.high) == (low, high)


def test_sign_e_value_is_that_of_the_definition() -> None:
    for n, k in ((7, 0), (7, 3), (12, 5)):
        beta = math.gamma(k + 0.5) * math.gamma(n - k + 0.5) / math.gamma(n + 1)
        assert math.exp(log_e_value(n, k)) == pytest.approx(2**n * beta / math.pi)
    # 2^n no longer fits a float, its logarithm does.
    assert math.isfinite(log_e_value(5000, 2000))
    # The mixture is a probability: averaged over the fair coin's outcomes it is 1.
    total = sum(math.comb(20, k) / 2**20 * math.exp(log_e_value(20, k)) for k in range(21))
    assert total == pytest.approx(1.0)


@given(d=SAMPLES, by=st.floats(-3, 3))
def test_sign_interval_moves_with_the_data(d: FloatArray, by: float) -> None:
    a, b = sign_interval(d, 0.05), sign_interval(d + by, 0.05)
    assert (b.low, b.high) == pytest.approx((a.low + by, a.high + by), abs=1e-12)
    turned = sign_interval(-d, 0.05)
    assert (turned.low, turned.high) == (-a.high, -a.low)


def test_sign_interval_with_all_values_tied_is_that_value() -> None:
    interval = sign_interval(np.zeros(40), 0.05)
    assert (interval.low, interval.centre, interval.high) == (0.0, 0.0, 0.0)


def test_anytime_mean_is_that_of_the_definition() -> None:
    d = np.random.default_rng(4).normal(0.3, 1.0, 50)
    g, low, high = 8 / 40, -math.inf, math.inf
    for n in range(2, 51):
        c = ((1 + n * g) / 0.05**2) ** (1 / n)
        if c < 1 + n * g:
            s = float(np.std(d[:n], ddof=1))
            half = s * math.sqrt((n - 1) * (c - 1) / (n * (1 - c / (1 + n * g))))
            low, high = max(low, float(np.mean(d[:n])) - half), min(high, float(np.mean(d[:n])) + half)
    interval = anytime_mean(d, alpha=0.05)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-12)
    assert math.isfinite(low)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_anytime_mean_of_few_is_infinite(n: int) -> None:
    interval = anytime_mean(np.arange(float(n)), alpha=0.05)
    assert (interval.low, interval.high) == (-math.inf, math.inf)


def test_spread_of_one_value_is_unknown_not_zero() -> None:
    assert math.isnan(variance(np.array([3.0])))
    for call in (
        lambda: welch(Moments.of([1.0]), Moments.of([1.0, 2.0]), 0.95),
        lambda: rank_sum([], [1.0], 0.05),
        lambda: fieller(np.array([1.0]), np.array([1.0]), 0.95),
        lambda: unequal_components(np.array([[1.0, 2.0], [2.0, 3.0]]), np.array([2, 1])),
    ):
        with pytest.raises(ValueError):
            call()


def unequal_components(
    values: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> tuple[float, float]:
    return components_of_moments(*group_moments(values, lengths), lengths)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_components_of_groups_of_any_length(groups: int, longest: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(groups, longest))
    lengths = rng.integers(2, longest, size=groups, endpoint=True)
    within, between = unequal_components(values, lengths)
    own = [values[i, :n] for i, n in enumerate(lengths)]
    assert within == pytest.approx(np.mean([x.var(ddof=1) for x in own]))
    owed = np.mean([x.var(ddof=1) / x.size for x in own])
    assert between == pytest.approx(np.var([x.mean() for x in own], ddof=1) - owed)
    behind = np.where(np.arange(longest) < lengths[:, None], values, np.nan)
    assert unequal_components(behind, lengths) == (within, between)


def test_variance_does_not_subtract_squares() -> None:
    """Sum of squares minus square of the sum gives 0 or less here."""
    values = 1e9 + np.array([0.1, 0.2, 0.3])
    assert variance(values) == pytest.approx(0.01, rel=1e-5)
    assert float(np.mean(values**2) - np.mean(values) ** 2) != pytest.approx(0.01, rel=0.5)


@given(n=st.integers(2, 120), q=st.sampled_from([0.5, 0.9, 0.95]), conf=st.sampled_from([0.9, 0.95]))
def test_quantile_ranks_cover(n: int, q: float, conf: float) -> None:
    """By adding up the binomial: covers enough, and no shorter pair would."""

    def coverage(j: int, k: int) -> float:
        return math.fsum(math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(j, k))

    ranks = quantile_ranks(n, q, conf)
    if ranks is None:
        assert coverage(1, n) < conf
        return
    j, k = ranks
    assert 1 <= j < k <= n and coverage(j, k) >= conf - 1e-12
    assert all(coverage(i, i + k - j - 1) < conf + 1e-12 for i in range(1, n - (k - j) + 2))


def test_quantiles_below_the_least_n_are_refused() -> None:
    q = quantiles(np.arange(1.0, 31.0), np.arange(5.0), 0.95)
    assert q.n == 30 and q.p50 is not None and q.p90 is not None and q.p95 is None and q.p99 is None
    assert (q.p50.low, q.p50.high) == (10.0, 21.0)
    assert q.values[-1] == 30.0 and q.baseline_values == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert q.p90.low <= q.p90.centre <= q.p90.high == 30.0


def test_time_outs_are_right_censored() -> None:
    values = np.array([1.0] * 20 + [math.inf] * 10)
    p50, p90 = quantile_interval(values, 0.5, 0.95), quantile_interval(values, 0.9, 0.95)
    assert p50 is not None and p50.low == 1.0 and p50.high == math.inf
    assert p90 is not None and p90.centre == p90.high == math.inf


def test_median_interval_of_few_has_no_ends() -> None:
    interval = median_interval(np.array([1.0, 2.0, 4.0]), 0.95)
    assert (interval.low, interval.centre, interval.high) == (-math.inf, 2.0, math.inf)
