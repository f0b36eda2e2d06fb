"""Upgrades with planted truths: a slowdown is found, none is found where there is none, and the levels hold
with correlated runs within a boot, skewed boots and drift over boots."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.sample_analysis import METRICS, cell

from nearmetal.analysis import compare_boots, compare_states, least_boots
from nearmetal.analysis.intervals.rank_sum import critical, least_size, rank_sum
from nearmetal.model.result import Analysis, NoiseFloor, Verdict
from nearmetal.model.study import Better

FloatArray = NDArray[np.float64]
Boots = Callable[[np.random.Generator, int], FloatArray]
ALPHA, REPLICATES = 0.05, 4000
SLACK = 3 * math.sqrt(ALPHA * (1 - ALPHA) / REPLICATES)


def normal(rng: np.random.Generator, count: int) -> FloatArray:
    return 0.01 * rng.normal(size=count)


def skewed(rng: np.random.Generator, count: int) -> FloatArray:
    """Most boots are alike, some are much slower."""
    return 0.01 * rng.exponential(size=count) ** 2


def correlated_runs(rng: np.random.Generator, count: int) -> FloatArray:
    """Means of five runs of each boot: an AR(1) series within the boot, on a level of the boot."""
    level = 0.01 * rng.normal(size=(count, 1))
    shocks = 0.02 * rng.normal(size=(count, 5))
    runs = np.zeros((count, 5))
    for i in range(5):
        runs[:, i] = shocks[:, i] + (0.8 * runs[:, i - 1] if i else 0.0)
    return np.asarray((level + runs).mean(axis=1), dtype=np.float64)


def attained(m: int, n: int, level: float) -> float:
    """The level of an interval of m and n values that must not exceed `level`, over all orders of them."""
    k, least = critical(m, n, level / 2), m * (m - 1) // 2
    return 2 * fmean(sum(ranks) - least <= k for ranks in combinations(range(m + n), m))


@pytest.mark.parametrize("boots", [normal, skewed, correlated_runs])
@pytest.mark.parametrize(("before", "after"), [(4, 4), (8, 8), (5, 12)])
def test_the_interval_keeps_its_level(boots: Boots, before: int, after: int) -> None:
    rng = np.random.default_rng(29)
    missed = 0
    for _ in range(REPLICATES):
        shift = rank_sum(boots(rng, before).tolist(), (0.05 + boots(rng, after)).tolist(), ALPHA)
        missed += not shift.low <= 0.05 <= shift.high
    level = attained(before, after, ALPHA)
    assert missed / REPLICATES == pytest.approx(level, abs=SLACK) and level <= ALPHA


@pytest.mark.parametrize(("before", "after"), [(8, 8), (4, 8), (8, 4), (12, 12)])
def test_the_level_holds_if_one_side_spreads_three_times_as_much(before: int, after: int) -> None:
    """By rank sums alone nearly 10 % are missed if the few boots are those that spread."""
    rng = np.random.default_rng(53)
    replicates, missed, ranks = 2000, 0, 0
    for _ in range(replicates):
        old, new = normal(rng, before).tolist(), (3 * normal(rng, after)).tolist()
        shift, alone = compare_boots(old, new, Better.LOWER, ALPHA), rank_sum(old, new, ALPHA)
        missed += not shift.low <= 0 <= shift.high
        ranks += not alone.low <= 0 <= alone.high
    assert missed / replicates <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / replicates)
    if (before, after) == (8, 4):
        assert ranks / replicates > 0.08


def test_alternating_boots_make_drift_harmless_and_one_after_the_other_does_not() -> None:
    """Each boot is slower than the one before by half a standard deviation."""
    rng = np.random.default_rng(31)
    alternating = in_order = 0
    for _ in range(1000):
        line = normal(rng, 16) + 0.005 * np.arange(16)
        first = rng.integers(2, size=8)
        pairs = line.reshape(8, 2)
        a, b = pairs[np.arange(8), first], pairs[np.arange(8), 1 - first]
        for found, (old, new) in enumerate(((a, b), (line[:8], line[8:]))):
            shift = compare_boots(old.tolist(), new.tolist(), Better.LOWER, ALPHA)
            wrong = not shift.low <= 0 <= shift.high
            alternating, in_order = alternating + (wrong and not found), in_order + (wrong and bool(found))
    assert alternating / 1000 <= ALPHA
    assert in_order / 1000 > 0.5


def test_the_least_number_of_boots_is_the_least_that_attains_the_level() -> None:
    for level in (0.2, 0.05, 0.05 / 18, 0.05 / 49, 0.001):
        n = least_size(level)
        assert critical(n, n, level / 2) >= 0 > critical(n - 1, n - 1, level / 2)


def boot(rng: np.random.Generator, *, native: float = 0.0, cost: float = 0.0) -> list[Analysis]:
    """One boot with one run: native, and a container at a cost. Boots differ by 1 %, their costs by 0.5 %."""
    level = native + 0.01 * float(rng.normal())
    cells = tuple(
        cell(
            "container/one",
            "native/one",
            m,
            overhead=math.expm1(cost + 0.005 * float(rng.normal())),
            base_value=m.native * math.exp(level * (1 if m.better is Better.LOWER else -1)),
        )
        for m in METRICS
    )
    floor = NoiseFloor(cells=(), trusted=True, proven=False, reason="")
    whole = Analysis(
        study="s",
        question="",
        seed=1,
        blocks=39,
        torn_blocks=0,
        failed_trials=0,
        elapsed=90.0,
        block_seconds=2.0,
        cells=cells,
        noise_floor=floor,
        unused=(),
        disturbance={},
    )
    return [whole]


def verdicts(rng: np.random.Generator, *, native: float, cost: float) -> tuple[set[Verdict], set[Verdict]]:
    """Verdicts of eight boots a side at a margin of 1 %: those of native itself, and those of the cost."""
    before = [boot(rng) for _ in range(8)]
    after = [boot(rng, native=native, cost=cost) for _ in range(8)]
    cells = compare_states(before, after, margin=0.01, confidence=0.95)
    assert least_boots(0.95, len(cells)).material <= 8
    return {c.verdict for c in cells if not c.baseline}, {c.verdict for c in cells if c.baseline}


def test_a_cost_of_five_percent_more_is_found() -> None:
    itself, cost = verdicts(np.random.default_rng(37), native=0.0, cost=math.log(1.05))
    assert cost == {Verdict.SLOWER} and Verdict.SLOWER not in itself


def test_bare_metal_that_became_slower_is_found_though_no_cost_changed() -> None:
    itself, cost = verdicts(np.random.default_rng(41), native=math.log(1.1), cost=0.0)
    assert itself == {Verdict.SLOWER} and Verdict.SLOWER not in cost


def test_no_upgrade_effect_is_found_without_one() -> None:
    """The margin is far below the spread of the boots, so that each verdict is one of chance."""
    rng = np.random.default_rng(43)
    replicates, metrics, false, alone = 400, 12, 0, 0
    for _ in range(replicates):
        sides = 0.05 * rng.normal(size=(2, metrics, 8))
        levels = [
            [compare_boots(a, b, Better.LOWER, level) for a, b in zip(*sides.tolist(), strict=True)]
            for level in (ALPHA, ALPHA / metrics)
        ]
        found = [any(not shift.low <= 0 <= shift.high for shift in shifts) for shifts in levels]
        alone, false = alone + found[0], false + found[1]
    assert alone / replicates > 0.25
    assert false / replicates <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / replicates)
