"""Predict how long a move takes and how long the instance stands still, from memory, dirty rate and
bandwidth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .method import Method

MOST_ROUNDS = 10_000
"""Rounds of pre-copy after which a move counts as one that does not converge."""


@dataclass(frozen=True)
class Estimate:
    """A value and the interval in which it lies. Raises ValueError unless low <= value <= high."""

    low: float
    value: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} is not between {self.low} and {self.high}")

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        return cls(value, value, value)

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.value + other.value, self.high + other.high)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The inputs of a prediction.

    memory: bytes to be sent once.
    working_set: bytes that are written to again and again, at most `memory`.
    dirty_rate: bytes of pages that become dirty in a second.
    bandwidth: bytes sent in a second, above zero. For files that are read back, bytes written and read back.
    read_speed: bytes of the images of CRIU_PRECOPY that are read back in a second, after the last dump and
        before the processes run; None if they are not restored. No other method uses it.
    fixed: seconds of standstill that do not depend on the memory: devices, handshakes, announcement.
    setup: seconds before the first byte is sent, while the instance runs.
    downtime_limit: seconds of standstill that pre-copy may spend on the rest of the memory.

    Raises ValueError for values that cannot be.
    """

    memory: Estimate
    working_set: Estimate
    dirty_rate: Estimate
    bandwidth: Estimate
    fixed: Estimate
    setup: Estimate = Estimate(0.0, 0.0, 0.0)
    read_speed: Estimate | None = None
    downtime_limit: float = 0.3

    def __post_init__(self) -> None:
        every = (self.memory, self.working_set, self.dirty_rate, self.fixed, self.setup)
        speeds = (self.bandwidth.low, 1.0 if self.read_speed is None else self.read_speed.low)
        if min(e.low for e in every) < 0 or not min(speeds) > 0 or not self.downtime_limit > 0:
            raise ValueError("a negative quantity, or no bandwidth, or no downtime limit")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of a mechanism that do not depend on the memory, and its bandwidth, as assumed before they are
    measured on this machine.

    fixed: seconds of standstill.
    setup: seconds before the standstill.
    bandwidth: bytes per second; None if it depends on the destination.
    """

    fixed: Estimate
    setup: Estimate
    bandwidth: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The predicted times of a move, in seconds. They are infinite if pre-copy does not converge.

    total: from the request until the source is no longer needed.
    downtime: time for which the instance does not run.
    rounds: times that memory is sent while the instance runs; 0 for methods without rounds.
    converges: whether pre-copy ends by itself for all values of the intervals.
    converges_above: bandwidth, in bytes per second, above which it converges; 0 for methods without rounds.
    """

    method: Method
    total: Estimate
    downtime: Estimate
    rounds: int = 0
    converges: bool = True
    converges_above: float = 0.0


def predict(method: Method, known: Conditions) -> Prediction:
    """Predict the times of a move by a method.

    Raises ValueError for AUTO, which stands for another method.
    """
    if method is Method.AUTO:
        raise ValueError("auto stands for another method")
    whole = _seconds(known.memory, known.bandwidth)
    if method.copies_first:
        return _precopy(method, known, whole)
    total = known.setup + known.fixed + whole
    return Prediction(
        method=method, total=total, downtime=known.fixed if method.fetches_later else known.fixed + whole
    )


def _seconds(size: Estimate, speed: Estimate) -> Estimate:
    """Return how long `size` bytes take at a speed in bytes per second."""
    return Estimate(size.low / speed.high, size.value / speed.value, size.high / speed.low)


@dataclass(frozen=True)
class _Rounds:
    """The result of a pre-copy for one set of exact values; infinite times if it does not converge.

    copied: seconds of all rounds together.
    rest: seconds of sending the rest, while the instance stands still.
    count: number of rounds.
    """

    copied: float
    rest: float
    count: int


def _rounds(memory: float, hot: float, dirty: float, bandwidth: float, limit: float) -> _Rounds:
    """Simulate a pre-copy: send the memory, and in each further round the pages dirtied in the round before,
    until the rest can be sent within the limit.

    memory, hot: bytes of the whole memory and of the working set.
    dirty, bandwidth: bytes per second.
    limit: seconds.
    """
    left, copied = memory, 0.0
    for count in range(MOST_ROUNDS):
        seconds = left / bandwidth
        if seconds <= limit:
            return _Rounds(copied, seconds, count)
        copied += seconds
        again = min(hot, dirty * seconds)
        if again >= left:  # no round is shorter than the one before
            break
        left = again
    return _Rounds(math.inf, math.inf, count)


def _precopy(method: Method, known: Conditions, whole: Estimate) -> Prediction:
    memory, hot, dirty, speed = known.memory, known.working_set, known.dirty_rate, known.bandwidth
    read = _Reading.of(method, known)
    best = _rounds(memory.low, hot.low, dirty.low, speed.high, read.left(read.time.low))
    usual = _rounds(memory.value, hot.value, dirty.value, speed.value, read.left(read.time.value))
    worst = _rounds(memory.high, hot.high, dirty.high, speed.low, least_left := read.left(read.time.high))
    # The rest is what the last round left: less than the limit, and more than what becomes dirty within it.
    least = min(whole.low, min(hot.low, dirty.low * least_left) / speed.high)
    most = min(least_left, whole.high) if math.isfinite(worst.rest) else math.inf
    rest = Estimate(min(least, usual.rest), usual.rest, max(most, usual.rest))
    total = Estimate(best.copied + rest.low, usual.copied + usual.rest, worst.copied + rest.high)
    return Prediction(
        method=method,
        total=known.setup + known.fixed + total + read.time,
        downtime=known.fixed + rest + read.time,
        rounds=usual.count,
        converges=math.isfinite(worst.rest),
        converges_above=min(dirty.value, hot.value / read.left(read.time.value)),
    )


@dataclass(frozen=True)
class _Reading:
    """The restore of all memory from images after pre-copy.

    time: seconds in which the images are read; 0 if they are not.
    limit: seconds of standstill that reading and the rest of the memory may take together.
    """

    time: Estimate
    limit: float

    @classmethod
    def of(cls, method: Method, known: Conditions) -> _Reading:
        speed = known.read_speed if method is Method.CRIU_PRECOPY else None
        time = Estimate.exactly(0.0) if speed is None else _seconds(known.memory, speed)
        return cls(time, known.downtime_limit)

    def left(self, seconds: float) -> float:
        """Return the seconds that are left for the rest of the memory if reading takes so many: at least a
        quarter of the limit, as in allowed_rest()."""
        return max(self.limit - seconds, self.limit / 4)
