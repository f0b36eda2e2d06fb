"""Dirty rates from samples of pages, predictions corrected by earlier moves, and bounds on the total time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from nearmetal.lifecycle import (
    Bounded,
    Candidate,
    Conditions,
    Costs,
    Estimate,
    Method,
    PageSample,
    PastMove,
    Prediction,
    choose,
    corrected,
    dirtying,
    guest_conditions,
    predict,
    process_conditions,
)
from nearmetal.lifecycle.dirty import LOOKS, SAMPLED

MIB = 1 << 20
PAGE = 4096


def sample(memory: int, dirtied: Callable[[float], float], pages: int = 1000, empty: int = 0) -> PageSample:
    """Of memory of which `dirtied` bytes change within so many seconds, without the noise of a sample."""
    looks = tuple((t, round(pages * dirtied(t) / memory)) for t in LOOKS)
    return PageSample(memory=memory, pages=pages, empty=empty, looks=looks)


def test_a_constant_rate_below_the_memory() -> None:
    """100 MB of 1 GB are dirtied each second, and the working set has no end within 1.6 s."""
    found = dirtying(sample(10**9, lambda t: 1e8 * t))
    assert found.rate.value == pytest.approx(1e8) and found.rate.low < 1e8 < found.rate.high < 3e8
    assert found.working_set.value == found.working_set.high == 10**9
    assert found.working_set.low == pytest.approx(1.38e8, rel=0.02)


def test_a_working_set_that_was_dirtied_before_the_first_look() -> None:
    found = dirtying(sample(10**9, lambda t: 4e8))
    assert found.rate.value == pytest.approx(4e9) and math.isinf(found.rate.high)
    assert found.working_set.value == pytest.approx(4e8) and found.working_set.high < 4.8e8
    assert found.working_set.low > 3.6e8


def test_a_working_set_that_fills_by_and_by_is_extrapolated() -> None:
    found = dirtying(sample(10**9, lambda t: 5e8 * (1 - math.exp(-t / 0.5)), pages=100_000))
    assert found.working_set.value == pytest.approx(5e8, rel=0.01)
    assert found.rate.value == pytest.approx(9.06e8, rel=0.01) and found.rate.high > 1e9


def test_nothing_that_changes_has_an_upper_end() -> None:
    """With none of 1000 pages changed, at most 0.4 % of the memory is dirtied."""
    found = dirtying(sample(256 * MIB, lambda t: 0.0, empty=250))
    assert found.rate.value == found.working_set.value == 0.0
    assert found.working_set.high == pytest.approx(0.0038 * 256 * MIB, rel=0.02)
    assert found.rate.high == pytest.approx(found.working_set.high / 0.1)
    assert found.full.value == 0.75 and 0.72 < found.full.low < 0.78


def test_an_unknown_dirty_rate_is_not_taken_as_none() -> None:
    """Only methods with rounds depend on it."""
    costs = Costs(fixed=Estimate.exactly(0.1), setup=Estimate.exactly(0.0))
    still = dirtying(sample(10**9, lambda _: 0.0))
    for inputs in (process_conditions, guest_conditions):
        known, unknown = (inputs(1e9, s, costs, Estimate.exactly(1e9), bound=0.3) for s in (still, None))
        assert predict(Method.CRIU_PRECOPY, known).converges
        assert not predict(Method.CRIU_PRECOPY, unknown).converges
        assert math.isinf(predict(Method.CRIU_PRECOPY, unknown).downtime.high)
    known, unknown = (
        process_conditions(1e9, s, costs, Estimate.exactly(1e9), bound=0.3) for s in (still, None)
    )
    for method in (Method.CRIU, Method.CRIU_LAZY, Method.CRIU_PAGESERVER):
        assert predict(method, known) == predict(method, unknown)


def test_impossible_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="two looks"):
        PageSample(memory=PAGE, pages=1, empty=0, looks=((0.1, 0),))
    with pytest.raises(ValueError, match="ascend"):
        PageSample(memory=PAGE, pages=9, empty=0, looks=((0.1, 5), (0.2, 4)))
    with pytest.raises(ValueError, match="ascend"):
        PageSample(memory=PAGE, pages=9, empty=0, looks=((0.2, 1), (0.1, 4)))


@dataclass(frozen=True)
class Program:
    """A program that writes pages of its working set in turn, or at random, at a rate in bytes per second."""

    memory: int
    hot: float
    rate: float
    scattered: bool

    def dirtied(self, seconds: float) -> float:
        if not self.hot:
            return 0.0
        written = self.rate * seconds
        return self.hot * (1 - math.exp(-written / self.hot)) if self.scattered else min(self.hot, written)

    def sampled(self, rng: random.Random) -> PageSample:
        """When each drawn page is first written to is drawn as the program writes it."""
        times = []
        for _ in range(SAMPLED):
            if rng.random() >= self.hot / self.memory:
                times.append(math.inf)
            else:
                period = self.hot / self.rate
                times.append(rng.expovariate(1 / period) if self.scattered else rng.uniform(0, period))
        looks = tuple((t, sum(first <= t for first in times)) for t in LOOKS)
        return PageSample(memory=self.memory, pages=SAMPLED, empty=0, looks=looks)


def move(
    program: Program, method: Method, bandwidth: float, fixed: float, limit: float
) -> tuple[float, float]:
    """Total time and downtime of a simulated move, whose pages are dirtied as the program does it."""
    whole = program.memory / bandwidth
    if method is Method.OFFLINE:
        return whole + fixed, whole + fixed
    if method is Method.POSTCOPY:
        return whole + fixed, fixed
    left, total = float(program.memory), 0.0
    for _ in range(2000):
        if left / bandwidth <= limit:
            return total + left / bandwidth + fixed, left / bandwidth + fixed
        total += left / bandwidth
        left = program.dirtied(left / bandwidth)
    return math.inf, math.inf


def test_intervals_hold_for_nine_of_ten_unseen_moves() -> None:
    """Bandwidth and fixed part are known to a factor, and the pages only by a sample."""
    rng = random.Random(16)
    held: dict[tuple[Method, str], list[bool]] = {}
    for _ in range(600):
        memory = rng.choice((64, 256, 1024)) * MIB
        program = Program(
            memory=memory,
            hot=memory * rng.choice((0.0, 0.02, 0.2, 0.5)),
            rate=10 ** rng.uniform(6.5, 9.7),
            scattered=rng.random() < 0.5,
        )
        bandwidth, fixed = 10 ** rng.uniform(8.5, 9.5), rng.uniform(0.01, 0.05)
        seen = dirtying(program.sampled(rng))
        known = Conditions(
            memory=Estimate.exactly(memory),
            working_set=seen.working_set,
            dirty_rate=seen.rate,
            bandwidth=Estimate(bandwidth / 1.5, bandwidth * rng.uniform(0.7, 1.4), bandwidth * 1.5),
            fixed=Estimate(0.01, 0.03, 0.05),
        )
        for method in (Method.OFFLINE, Method.PRECOPY, Method.POSTCOPY):
            said = predict(method, known)
            total, downtime = move(program, method, bandwidth, fixed, known.downtime_limit)
            if math.isfinite(said.total.high):
                held.setdefault((method, "total"), []).append(said.total.low <= total <= said.total.high)
                fits = said.downtime.low <= downtime <= said.downtime.high
                held.setdefault((method, "downtime"), []).append(fits)
    for of, answers in held.items():
        assert len(answers) > 200 and sum(answers) >= 0.9 * len(answers), (of, sum(answers), len(answers))


def past(ratios: Sequence[float], kind: str = "qmp", method: Method = Method.PRECOPY) -> list[PastMove]:
    return [
        PastMove(
            kind=kind,
            method=method,
            predicted_total=1.0,
            total=r,
            predicted_downtime=0.1,
            downtime=0.1 * r,
        )
        for r in ratios
    ]


def guess(total: float = 2.0) -> Prediction:
    return Prediction(
        method=Method.PRECOPY, total=Estimate(0.1, total, 50.0), downtime=Estimate(0.01, 0.2, 5.0)
    )


def test_a_prediction_is_scaled_by_moves_of_its_kind() -> None:
    """Ten moves took half the time: ± 10 % at least in the logarithm, × 2.26 (t, 9) × √1.1."""
    found = corrected(guess(), past([0.5] * 10), "qmp")
    assert found.total.value == pytest.approx(1.0) and found.downtime.value == pytest.approx(0.1)
    assert found.total.high == pytest.approx(math.exp(0.1 * 2.26 * math.sqrt(1.1)))
    for other in (past([0.5] * 2), past([0.5] * 10, kind="pid"), past([0.5] * 10, method=Method.OFFLINE)):
        assert corrected(guess(), other, "qmp") == guess()


def test_a_downtime_that_was_never_measured_is_not_corrected() -> None:
    moves = [PastMove(kind="lxc", method=Method.PRECOPY, predicted_total=1.0, total=2.0) for _ in range(5)]
    found = corrected(guess(), moves, "lxc")
    assert found.total.value == pytest.approx(4.0) and found.downtime == guess().downtime


@pytest.mark.parametrize("number", [3, 5, 20])
def test_corrected_intervals_hold_for_nine_of_ten_unseen_moves(number: int) -> None:
    rng = random.Random(number)
    held = []
    for _ in range(2000):
        speed, spread = math.exp(rng.gauss(0, 1)), rng.uniform(0.02, 0.5)
        ratios = [speed * math.exp(rng.gauss(0, spread)) for _ in range(number + 1)]
        found = corrected(guess(1.0), past(ratios[:-1]), "qmp").total
        held.append(found.low <= ratios[-1] <= found.high)
    assert sum(held) >= 0.89 * len(held), sum(held) / len(held)


def test_an_interval_contains_what_was_seen_before() -> None:
    """Of ten moves, one took a third: the t interval of their logarithms ends at 0.39, that one was 0.33."""
    ratios = [1.0] * 9 + [1 / 3]
    found = corrected(guess(1.0), past(ratios), "qmp").total
    assert found.low == pytest.approx(1 / 3) and found.value == pytest.approx(3**-0.1)
    assert found.high == pytest.approx(math.exp(-0.1098612 + 0.3474119 * 2.26 * math.sqrt(1.1)), rel=1e-4)


@pytest.mark.parametrize("number", [8, 20, 45])
def test_intervals_hold_where_moves_are_of_two_sorts(number: int) -> None:
    """A fifth of all moves stands still for a third of the time of the others."""
    rng = random.Random(number)
    held = []
    for _ in range(2000):
        ratios = [math.exp(rng.gauss(-1.1 * (rng.random() < 0.2), 0.15)) for _ in range(number + 1)]
        found = corrected(guess(1.0), past(ratios[:-1]), "qmp").downtime
        held.append(found.low <= 0.2 * ratios[-1] <= found.high)
    assert sum(held) >= 0.9 * len(held), sum(held) / len(held)


def test_a_bound_on_the_total_time_takes_the_shortest_downtime_within_it() -> None:
    known = Conditions(
        memory=Estimate.exactly(1e9),
        working_set=Estimate.exactly(1e8),
        dirty_rate=Estimate.exactly(1e8),
        bandwidth=Estimate.exactly(1e9),
        fixed=Estimate.exactly(0.02),
        downtime_limit=0.05,
    )
    every = [Candidate(prediction=predict(m, known)) for m in (Method.OFFLINE, Method.PRECOPY)]
    loose = choose(2.0, every, Bounded.TOTAL)
    assert loose.method is Method.PRECOPY and loose.holds
    assert loose.reason.startswith("precopy keeps 2000 ms with a total time of ")
    assert loose.reason.endswith("; offline may stand still for 1020 ms")
    tight = choose(1.05, every, Bounded.TOTAL)
    assert tight.method is Method.OFFLINE and "precopy takes up to" in tight.reason
    never = choose(0.5, every, Bounded.TOTAL)
    assert not never.holds and never.reason.startswith("no method keeps 500 ms; offline comes closest")
