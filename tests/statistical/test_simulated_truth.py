"""Planted truths over 200 blocks: the primary and the sign interval miss at most 5 % of the time, at any
look, under everything that a machine does to its timings; and verdicts come as early as the method promises.

The truth of every scenario is 0. Runs are drawn along time (a machine that drifts, jumps, remembers), two
positions per block in an order drawn by a fair coin, as a plan draws them; d is what the block then shows.
Tolerances: three standard errors of a binomial share of 5 % in the number of replicates.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

from nearmetal.analysis.intervals.looks import look_and_carry, planned_looks, signed_rank_levels
from nearmetal.analysis.intervals.mean import anytime_mean
from nearmetal.analysis.intervals.sign import sign_interval
from nearmetal.analysis.intervals.signed_rank import Walsh, critical
from nearmetal.analysis.verdict import judge
from nearmetal.model.plan import GROWING, ExpectedLooks, GrowingLooks, Schedule
from nearmetal.model.result import Verdict

FloatArray = NDArray[np.float64]
BLOCKS, REPLICATES, ALPHA = 200, 2000, 0.05
SLACK = 3 * math.sqrt(ALPHA * (1 - ALPHA) / REPLICATES)


def in_random_order(time_line: FloatArray, rng: np.random.Generator) -> FloatArray:
    """d by block from noise along time, shape (replicates, 2 * blocks): which of two positions is the
    baseline's is drawn."""
    pairs = time_line.reshape(time_line.shape[0], -1, 2)
    coin = rng.choice((-1.0, 1.0), size=pairs.shape[:2])
    return coin * (pairs[:, :, 1] - pairs[:, :, 0])


def iid(rng: np.random.Generator) -> FloatArray:
    return in_random_order(rng.normal(size=(REPLICATES, 2 * BLOCKS)), rng)


def autocorrelated(rng: np.random.Generator) -> FloatArray:
    noise = rng.normal(size=(REPLICATES, 2 * BLOCKS))
    return in_random_order(np.asarray(signal.lfilter([1.0], [1.0, -0.95], noise, axis=1)), rng)


def trend_with_a_step(rng: np.random.Generator) -> FloatArray:
    line = np.linspace(0, 30, 2 * BLOCKS) + 15.0 * (np.arange(2 * BLOCKS) > 2 * 61)
    return in_random_order(line + 0.3 * rng.normal(size=(REPLICATES, 2 * BLOCKS)), rng)


def heavy_tails(rng: np.random.Generator) -> FloatArray:
    return in_random_order(rng.standard_t(1.5, size=(REPLICATES, 2 * BLOCKS)), rng)


def ties(rng: np.random.Generator) -> FloatArray:
    d = iid(rng)
    d[rng.random(d.shape) < 0.6] = 0.0
    return d


SCENARIOS: dict[str, Callable[[np.random.Generator], FloatArray]] = {
    "iid": iid,
    "AR(1) .95": autocorrelated,
    "trend with a step": trend_with_a_step,
    "t with 1.5 df": heavy_tails,
    "60 % ties": ties,
}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("schedule", [GROWING, ExpectedLooks(expected=40)], ids=["growing", "old"])
def test_primary_interval_misses_at_most_alpha(name: str, schedule: Schedule) -> None:
    d = SCENARIOS[name](np.random.default_rng(20261120))
    misses = 0
    for row in d:
        carried = look_and_carry(row, schedule=schedule, alpha=ALPHA)
        misses += not carried.low <= 0 <= carried.high
    assert misses / REPLICATES <= ALPHA + SLACK


@pytest.mark.parametrize("name", ["iid", "t with 1.5 df", "60 % ties"])
@pytest.mark.parametrize(
    "ends", [pytest.param(1, marks=pytest.mark.more), 3, pytest.param(12, marks=pytest.mark.more)]
)
def test_closing_looks_anywhere_keep_alpha(name: str, ends: int) -> None:
    """Runs that end, and are resumed, after numbers of blocks that do not depend on the data."""
    rng = np.random.default_rng(20261122)
    d = SCENARIOS[name](rng)
    misses = 0
    for row in d:
        closing = tuple(sorted(rng.choice(np.arange(5, 120), ends, replace=False).tolist()))
        carried = look_and_carry(row, schedule=GrowingLooks(closing=closing), alpha=ALPHA)
        misses += not carried.low <= 0 <= carried.high
    assert misses / REPLICATES <= ALPHA + SLACK


def test_a_run_that_keeps_its_budget_misses_at_most_alpha() -> None:
    """A block lasts as long as the work in it, which is the very noise that d is made of. The last block that
    a budget holds then depends on the sizes of the noise, though not on its signs."""
    rng = np.random.default_rng(20261121)
    noise = np.exp(0.8 * rng.standard_normal((REPLICATES, 2 * 60)))
    d = in_random_order(np.log(noise), rng)
    seconds = noise.reshape(REPLICATES, 60, 2).sum(axis=2)
    misses = 0
    for row, lasting in zip(d, seconds, strict=True):
        ended = int(np.searchsorted(np.cumsum(lasting), 40.0))
        again = int(np.searchsorted(np.cumsum(lasting), 90.0))
        schedule = GrowingLooks(closing=(ended, again))
        carried = look_and_carry(row[:again], schedule=schedule, alpha=ALPHA)
        misses += not carried.low <= 0 <= carried.high
    assert misses / REPLICATES <= ALPHA + SLACK


@pytest.mark.parametrize("name", SCENARIOS)
def test_sign_interval_misses_at_most_alpha(name: str) -> None:
    d = SCENARIOS[name](np.random.default_rng(20261121))
    misses = 0
    for row in d:
        interval = sign_interval(row, ALPHA)
        misses += not interval.low <= 0 <= interval.high
    assert misses / REPLICATES <= ALPHA + SLACK


def test_each_look_spends_what_it_attains_and_no_more() -> None:
    """The levels of the first looks, held against how often each alone misses, so that neither a forgotten
    share nor a doubled alpha can hide behind the union bound."""
    replicates = 40_000
    d = np.random.default_rng(3).normal(size=(replicates, 27))
    planned = planned_looks(GROWING, range(1, 28))
    levels = signed_rank_levels(GROWING, planned, ALPHA)
    for look, level in zip(planned, levels, strict=True):
        assert abs(_misses(d[:, : look.n], level) - level) < 3.5 * math.sqrt(level / replicates)
    for row in d[:200]:
        low, high = -math.inf, math.inf
        for seen, look, level in zip(
            look_and_carry(row, schedule=GROWING, alpha=ALPHA).looks, planned, levels, strict=True
        ):
            lower, upper = Walsh(row[: look.n]).interval(level)
            low, high = max(low, lower), min(high, upper)
            assert (seen.n, seen.low, seen.high) == (look.n, low, high)


def _misses(d: FloatArray, alpha: float) -> float:
    """How often 0 lies outside of the signed-rank interval at alpha: from rank sums, independent of Walsh
    averages."""
    ranks = np.argsort(np.argsort(np.abs(d), axis=1), axis=1) + 1
    up = np.sum(np.where(d > 0, ranks, 0), axis=1)
    whole = d.shape[1] * (d.shape[1] + 1) // 2
    k = critical(d.shape[1], alpha / 2)
    return float(np.mean(np.minimum(up, whole - up) <= k))


def test_half_width_at_n() -> None:
    """Median half-width of the carried interval in standard deviations of d, as docs/method.md prints it."""
    rng = np.random.default_rng(5)
    for n, printed in HALF_WIDTHS.items():
        carried = [look_and_carry(row, schedule=GROWING, alpha=ALPHA) for row in rng.normal(size=(1000, n))]
        assert np.median([(c.high - c.low) / 2 for c in carried]) == pytest.approx(printed, rel=0.04)


HALF_WIDTHS = {8: 1.40, 12: 0.84, 18: 0.66, 27: 0.53, 41: 0.45, 62: 0.37}


def first_verdict(d: FloatArray, *, margin: float) -> tuple[int, Verdict]:
    """After how many blocks a series first has a verdict, and which; all blocks where it never has."""
    for look in look_and_carry(d, schedule=GROWING, alpha=ALPHA).looks:
        verdict = judge(look.low, look.high, margin=margin)
        if verdict is not Verdict.NONE:
            return look.n, verdict
    return int(d.size), Verdict.NONE


@pytest.mark.parametrize(
    ("factor", "deviation", "verdict", "mean_blocks", "error"),
    [
        (2.0, 0.02, Verdict.SLOWER, 8.0, 0.0),
        (2.0, 0.15, Verdict.SLOWER, 8.0, 0.0),
        (1.1, 0.02, Verdict.SLOWER, 8.0, 0.1),
        (1.1, 0.05, Verdict.SLOWER, 10.9, 0.5),
        (1.1, 0.15, Verdict.SLOWER, 62.0, 6.0),
        (1.0, 0.02, Verdict.EQUIVALENT, 11.2, 0.4),
        (1.0, 0.05, Verdict.EQUIVALENT, 49.0, 3.0),
    ],
)
def test_blocks_to_a_verdict(
    factor: float, deviation: float, verdict: Verdict, mean_blocks: float, error: float
) -> None:
    """At a margin of 3 %, at most 210 blocks: the mean number of blocks is what docs/method.md prints. error:
    about three standard errors of 500 runs."""
    rng = np.random.default_rng(31)
    d = math.log(factor) + deviation * rng.normal(size=(500, 210))
    found = [first_verdict(row, margin=0.03) for row in d]
    assert np.mean([v is verdict for _, v in found]) >= 0.98
    assert np.mean([n for n, _ in found]) == pytest.approx(mean_blocks, abs=error)


def test_the_chance_of_ever_missing_is_that_of_the_method() -> None:
    """3.0 to 3.7 % over 210 blocks, for any truth and spread: the interval moves with both."""
    rng = np.random.default_rng(33)
    replicates = 3000
    misses = 0
    for row in rng.normal(size=(replicates, 210)):
        carried = look_and_carry(row, schedule=GROWING, alpha=ALPHA)
        misses += not carried.low <= 0 <= carried.high
    error = 3 * math.sqrt(0.035 * 0.965 / replicates)
    assert 0.03 - error <= misses / replicates <= 0.037 + error


def test_blocks_to_material() -> None:
    """Truth 3 %, SD 2 %, margin 1 %: median 12 blocks, 90 % within 27."""
    rng = np.random.default_rng(7)
    d = math.log(1.03) + 0.02 * rng.normal(size=(1000, 62))
    needed = np.sort([first_verdict(row, margin=0.01)[0] for row in d])
    assert needed[len(needed) // 2] == 12
    assert np.mean(needed <= 27) >= 0.9


def test_blocks_to_equivalent() -> None:
    """Truth 0, SD 2 %, margin 3 %: equivalent by 12 blocks with probability .92."""
    rng = np.random.default_rng(9)
    replicates = 2000
    d = 0.02 * rng.normal(size=(replicates, 12))
    share = np.mean([first_verdict(row, margin=0.03)[1] is Verdict.EQUIVALENT for row in d])
    assert float(share) == pytest.approx(0.92, abs=0.005 + 3 * math.sqrt(0.92 * 0.08 / replicates))


def test_planted_overhead_is_covered() -> None:
    """The interval covers the planted 3 % as often as it covers nothing."""
    rng = np.random.default_rng(11)
    d = math.log(1.03) + 0.02 * rng.standard_t(3, size=(1000, 90))
    misses = 0
    for row in d:
        carried = look_and_carry(row, schedule=GROWING, alpha=ALPHA)
        misses += not carried.low <= math.log(1.03) <= carried.high
    assert misses / 1000 <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 1000)


def test_anytime_mean_covers_when_normal_and_not_under_jitter() -> None:
    """Why the mean carries no verdict: right for normal noise, wrong for one-sided jitter."""
    rng = np.random.default_rng(13)
    normal = rng.normal(size=(1500, BLOCKS))
    # Rare one-sided stalls, mean 1: most series have not seen their mean yet.
    jitter = rng.exponential(size=(1500, BLOCKS)) ** 3 / 6.0
    missed = []
    for d, mean in ((normal, 0.0), (jitter, 1.0)):
        intervals = [anytime_mean(row, alpha=ALPHA) for row in d]
        missed.append(np.mean([not i.low <= mean <= i.high for i in intervals]))
    assert missed[0] <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 1500)
    assert 0.17 <= missed[1] <= 0.70
