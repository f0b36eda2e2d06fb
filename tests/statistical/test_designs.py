"""The comparison of designs: what the usual ways of running and testing do on a shared machine where there
is no overhead at all, and what this one does.

A machine is noise along time: an AR(1) part, a slow random walk, and white noise, in percent of the run
time. Three of them stand for a quiet, a typical and a noisy machine."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, special

from nearmetal.analysis.intervals.looks import look_and_carry
from nearmetal.analysis.two_level import compare_boots
from nearmetal.model.plan import GROWING
from nearmetal.model.study import Better

FloatArray = NDArray[np.float64]
#: AR(1) coefficient, its innovation, step of the random walk, white noise (SD, percent).
MACHINES = {
    "quiet": (0.5, 0.5, 0.02, 0.5),
    "typical": (0.73, 1.0, 0.06, 0.7),
    "noisy": (0.9, 2.0, 0.15, 1.0),
}
ALPHA = 0.05


def machine(name: str, rng: np.random.Generator, replicates: int, runs: int) -> FloatArray:
    """Log run times along time, shape (replicates, runs)."""
    phi, step, walk, white = MACHINES[name]
    shape = (replicates, runs + 50)
    remembered = np.asarray(signal.lfilter([1.0], [1.0, -phi], step * rng.normal(size=shape), axis=1))
    wandering = np.cumsum(walk * rng.normal(size=shape), axis=1)
    line = remembered + wandering + white * rng.normal(size=shape)
    return 0.01 * line[:, 50:]


def welch_p(a: FloatArray, b: FloatArray) -> FloatArray:
    """Welch's two-sided p, row by row."""
    va, vb = a.var(axis=1, ddof=1) / a.shape[1], b.var(axis=1, ddof=1) / b.shape[1]
    df = (va + vb) ** 2 / (va**2 / (a.shape[1] - 1) + vb**2 / (b.shape[1] - 1))
    t = (a.mean(axis=1) - b.mean(axis=1)) / np.sqrt(va + vb)
    return np.asarray(2 * special.stdtr(df, -np.abs(t)), dtype=np.float64)


@pytest.mark.parametrize("name", MACHINES)
def test_runs_in_sequence_find_false_differences_and_random_order_does_not(name: str) -> None:
    """50 runs of A, then 50 of B, Welch's t: false far above 5 %. The same runs in random order: 5 %."""
    rng = np.random.default_rng(17)
    replicates = 3000
    line = machine(name, rng, replicates, 100)
    grouped = np.mean(welch_p(line[:, :50], line[:, 50:]) < ALPHA)
    shuffled = rng.permuted(line, axis=1)
    random_order = np.mean(welch_p(shuffled[:, :50], shuffled[:, 50:]) < ALPHA)
    assert grouped > 0.2
    assert random_order <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / replicates)


def block_differences(line: FloatArray, rng: np.random.Generator) -> FloatArray:
    pairs = line.reshape(line.shape[0], -1, 2)
    return rng.choice((-1.0, 1.0), size=pairs.shape[:2]) * (pairs[:, :, 1] - pairs[:, :, 0])


@pytest.mark.parametrize("name", MACHINES)
def test_looking_after_every_pair_is_wrong_unless_the_interval_allows_it(name: str) -> None:
    """Random pairs and a t-test after each: about half find something. The same pairs, look-and-carry: at
    most 5 %."""
    rng = np.random.default_rng(19)
    replicates, blocks = 1500, 200
    d = block_differences(machine(name, rng, replicates, 2 * blocks), rng)
    n = np.arange(1, blocks + 1)
    mean = np.cumsum(d, axis=1) / n
    square = np.cumsum(d**2, axis=1) / n - mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean) / np.sqrt(square / (n - 1))
    peeking = np.mean(np.any(t[:, 1:] > special.stdtrit(n[1:] - 1, 0.975), axis=1))
    ours = 0
    for row in d:
        carried = look_and_carry(row, schedule=GROWING, alpha=ALPHA)
        ours += not carried.low <= 0 <= carried.high
    assert 0.4 < peeking < 0.6
    assert 0.005 < ours / replicates <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / replicates)


def test_the_boot_is_the_replicate() -> None:
    """Boots differ by half of what runs do. One boot each, 50 runs, analysed by run: 58 % false. 10 boots of
    5 runs, analysed by boot: 5 %. Six boots of 30 pooled as independent: about half."""
    rng = np.random.default_rng(23)
    replicates, spread = 3000, 0.48

    def boots(count: int, runs: int) -> FloatArray:
        level = spread * rng.normal(size=(replicates, count, 1))
        return level + rng.normal(size=(replicates, count, runs))

    single = welch_p(boots(1, 50)[:, 0], boots(1, 50)[:, 0])
    assert float(np.mean(single < ALPHA)) == pytest.approx(0.58, abs=0.04)
    pooled = welch_p(boots(6, 30).reshape(replicates, -1), boots(6, 30).reshape(replicates, -1))
    assert 0.4 < float(np.mean(pooled < ALPHA)) < 0.61
    a, b = boots(10, 5).mean(axis=2).tolist(), boots(10, 5).mean(axis=2).tolist()
    false = 0
    for left, right in zip(a, b, strict=True):
        interval = compare_boots(left, right, Better.LOWER, ALPHA)
        false += not interval.low <= 0 <= interval.high
    slack = 3 * math.sqrt(ALPHA * (1 - ALPHA) / replicates)
    assert 0.02 < false / replicates <= ALPHA + slack
