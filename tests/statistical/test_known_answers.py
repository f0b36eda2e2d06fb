"""Numbers that others computed first: R, Kalibera and Jones, Dyestuff, NIST, Le Boudec, Holm."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.multitest import multipletests

from nearmetal.analysis.intervals.fieller import fieller
from nearmetal.analysis.intervals.mean import Moments, variance, welch
from nearmetal.analysis.intervals.multiplicity import holm
from nearmetal.analysis.intervals.quantiles import quantile_ranks
from nearmetal.analysis.intervals.rank_sum import critical as rank_sum_critical
from nearmetal.analysis.intervals.rank_sum import rank_sum
from nearmetal.analysis.intervals.sign import sign_interval
from nearmetal.analysis.intervals.signed_rank import Walsh, critical, lower_tail
from nearmetal.analysis.intervals.variance_components import components_of_moments, group_moments
from nearmetal.model.looks import look_schedule
from nearmetal.model.plan import GROWING, ExpectedLooks
from nearmetal.plan import kalibera_jones_plan

#: R's `sleep`: extra hours of sleep of ten patients under two drugs (Student 1908).
SLEEP_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SLEEP_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
#: Yield of dyestuff in grams, five preparations from each of six batches (Davies 1947).
DYESTUFF = np.array(
    [
        [1545, 1440, 1440, 1520, 1580],
        [1540, 1555, 1490, 1560, 1495],
        [1595, 1550, 1605, 1510, 1560],
        [1445, 1440, 1595, 1465, 1545],
        [1595, 1630, 1515, 1635, 1625],
        [1520, 1455, 1450, 1480, 1445],
    ],
    dtype=np.float64,
)


def test_sleep_welch() -> None:
    test = welch(Moments.of(SLEEP_1.tolist()), Moments.of(SLEEP_2.tolist()), 0.95)
    assert test.df == pytest.approx(17.776, abs=5e-4) and test.t == pytest.approx(1.8608, abs=5e-5)


def test_rank_sum_of_the_permeability_of_membranes() -> None:
    """Hollander and Wolfe, Nonparametric Statistical Methods: P(W >= 35) = .1272, estimate .305."""
    at_term = (0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46)
    before = (1.15, 0.88, 0.90, 0.74, 1.21)
    assert rank_sum_critical(10, 5, 0.12725) == rank_sum_critical(10, 5, 0.12715) + 1
    shift = rank_sum(before, at_term, 0.05)
    assert shift.centre == pytest.approx(0.305)
    assert (shift.low, shift.high) == pytest.approx((-0.15, 0.76))


def test_kalibera_jones_plan_with_a_negative_variance() -> None:
    assert kalibera_jones_plan(costs=(1, 1, 1), t2=(16.5, -5.7, 2.3), r_max=50) == (50, 1)


def test_kalibera_jones_plan() -> None:
    """The optimum is 4.2937 and 1.3023."""
    assert kalibera_jones_plan(costs=(3, 20, 100), t2=(0.7267, 0.2628, 0.7747), r_max=50) == (5, 2)


def test_dyestuff_variance_components() -> None:
    """In a balanced design the unbiased components are the REML estimates where all are positive."""
    lengths = np.full(6, 5)
    within, between = components_of_moments(*group_moments(DYESTUFF, lengths), lengths)
    assert between == pytest.approx(1764.05, rel=1e-4)
    assert within == pytest.approx(2451.25, rel=1e-4)


def test_dyestuff_reml_agrees() -> None:
    batch = np.repeat(np.arange(6), 5)
    with warnings.catch_warnings():
        # statsmodels still calls numpy by names that numpy deprecates.
        warnings.simplefilter("ignore", category=DeprecationWarning)
        fitted = MixedLM(DYESTUFF.ravel(), np.ones((30, 1)), groups=batch).fit(
            reml=True, method="bfgs", gtol=1e-9
        )
    assert float(np.asarray(fitted.cov_re)[0, 0]) == pytest.approx(1764.05, rel=1e-4)
    assert float(fitted.scale) == pytest.approx(2451.25, rel=1e-4)


@pytest.mark.parametrize("level, digits", [(1.0, 9), (1e6, 9), (1e12, 3)])
def test_anova_needs_centring(level: float, digits: int) -> None:
    """NIST's SmLs design: nine treatments of 21 values, level + {.4, .3, .5} steps; F = 21 exactly. Centred
    first, scipy keeps the digits that the data hold."""
    treatments = []
    for step in (0.4, 0.3, 0.2, 0.5, 0.6, 0.4, 0.3, 0.2, 0.5):
        first = [level + step]
        treatments.append(np.array(first + [level + step - 0.1, level + step + 0.1] * 10))
    exact = _anova_by_fractions()
    centre = np.mean(np.concatenate(treatments))
    found = float(stats.f_oneway(*[t - centre for t in treatments]).statistic)
    assert found == pytest.approx(exact, rel=10.0**-digits)


def _anova_by_fractions() -> float:
    """F of the same design in exact arithmetic."""
    steps = [Fraction(s, 10) for s in (4, 3, 2, 5, 6, 4, 3, 2, 5)]
    groups = [[s] + [s - Fraction(1, 10), s + Fraction(1, 10)] * 10 for s in steps]
    means = [sum(g) / len(g) for g in groups]
    grand = sum(sum(g) for g in groups) / sum(len(g) for g in groups)
    between = sum(len(g) * (m - grand) ** 2 for g, m in zip(groups, means, strict=True)) / 8
    within = sum((x - m) ** 2 for g, m in zip(groups, means, strict=True) for x in g) / (9 * 20)
    return float(between / within)


def test_numacc4() -> None:
    """NIST StRD NumAcc4: 10000000.2 and 500 pairs 10000000.1, 10000000.3; its standard deviation is 0.1."""
    values = np.array([10000000.2] + [10000000.1, 10000000.3] * 500)
    assert math.sqrt(variance(values)) == pytest.approx(0.1, rel=1e-7)


@pytest.mark.parametrize("n, ranks", [(10, (2, 9)), (20, (6, 15)), (30, (10, 21))])
def test_le_boudec_median_ranks(n: int, ranks: tuple[int, int]) -> None:
    assert quantile_ranks(n, 0.5, 0.95) == ranks


@pytest.mark.parametrize("q, n", [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299)])
def test_least_n_of_quantiles(q: float, n: int) -> None:
    assert quantile_ranks(n, q, 0.95) is not None
    assert all(quantile_ranks(fewer, q, 0.95) is None for fewer in range(2, n))


def test_holm() -> None:
    p = [0.01, 0.02, 0.03, 0.04, 0.05]
    assert holm(p) == pytest.approx((0.05, 0.08, 0.09, 0.09, 0.09))
    rng = np.random.default_rng(2)
    for _ in range(20):
        p = rng.uniform(0, 0.3, size=rng.integers(1, 12)).tolist()
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])


@pytest.mark.parametrize("comparisons, n", [(1, 7), (5, 10), (10, 11)])
def test_sign_interval_is_finite_from(comparisons: int, n: int) -> None:
    assert math.isfinite(sign_interval(np.arange(float(n)), 0.05 / comparisons).low)
    assert math.isinf(sign_interval(np.arange(float(n - 1)), 0.05 / comparisons).low)


@pytest.mark.parametrize(
    "n, p, k",
    [
        (6, 0.025, 0),
        (8, 0.005, 0),
        (10, 0.025, 8),
        (12, 0.025, 13),
        (15, 0.05, 30),
        (20, 0.025, 52),
        (25, 0.005, 68),
    ],
)
def test_wilcoxon_critical_values(n: int, p: float, k: int) -> None:
    """The printed tables of the signed-rank test, one-sided p."""
    assert critical(n, p) == k


def test_signed_rank_distribution_agrees_with_scipy() -> None:
    """scipy's own exact p value (of another program's authors) at every statistic of n = 11."""
    for positives in range(12):
        d = np.arange(1.0, 12.0)
        d[positives:] *= -1
        t = int(np.sum(np.flatnonzero(d > 0) + 1))
        p = stats.wilcoxon(d, alternative="less", method="exact").pvalue
        assert lower_tail(11, t) == pytest.approx(float(p), rel=1e-12)


def test_schedule() -> None:
    looks = look_schedule(GROWING, 70)
    assert [n for n, _ in looks] == [8, 12, 18, 27, 41, 62]
    assert [round(s, 4) for _, s in looks] == [0.16, 0.28, 0.168, 0.1176, 0.0823, 0.0576]
    assert sum(s for _, s in look_schedule(GROWING, 10**30)) == pytest.approx(1.0, abs=1e-12)


def test_schedule_of_old_directories() -> None:
    old = ExpectedLooks(expected=40)
    assert [n for n, _ in look_schedule(old, 140)] == [27, 40, 60, 90, 135]
    assert [round(s, 4) for _, s in look_schedule(old, 140)] == [0.2, 0.5, 0.12, 0.072, 0.0432]
    assert sum(s for _, s in look_schedule(old, 10**30)) == pytest.approx(1.0, abs=1e-12)


def test_fieller_against_the_defining_property() -> None:
    """r is an end of the interval where the t statistic of y - r x is at its critical value. The t statistic
    is scipy's."""
    rng = np.random.default_rng(8)
    y, x = rng.normal(3.0, 0.4, 15), rng.normal(2.0, 0.3, 15)
    interval = fieller(y, x, 0.95)
    bound = float(stats.t.ppf(0.975, 14))
    for r in (interval.low, interval.high):
        assert abs(stats.ttest_1samp(y - r * x, 0).statistic) == pytest.approx(bound, rel=1e-9)
    assert fieller(y, x - 2.0, 0.95).high == math.inf


@pytest.mark.parametrize("alpha, misses", [(0.05, 10), (0.01, 2), (0.10, 20)])
def test_exact_level_over_every_sign(alpha: float, misses: int) -> None:
    """All 256 signs of eight fixed sizes, equally likely under a random order: the interval misses the truth
    0 in exactly as many as it may. Of the subsets of the ranks 1 to 8, 1 has a sum of 0, 5 at most 3, 10 at
    most 5, and 2 * 1, 2 * 5, 2 * 10 of 256 are the largest shares within 1, 5 and 10 %."""
    sizes = np.array([0.31, 0.5, 0.82, 1.3, 2.1, 3.4, 5.6, 9.1])
    found = 0
    for signs in itertools.product((-1.0, 1.0), repeat=8):
        low, high = Walsh(sizes * np.array(signs)).interval(alpha)
        found += not low <= 0 <= high
    assert found == misses
