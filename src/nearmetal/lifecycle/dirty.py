"""Estimate how fast an instance dirties its memory, from a random sample of its pages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .method import Method
from .prediction import Conditions, Costs, Estimate

LOOKS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds after which sampled pages are read again. Each is twice the one before."""
SAMPLED = 1024
"""Number of pages in a sample."""
_Z = 1.96
_CURVED = 1.5
"""Largest usable ratio of the mean dirty rate until the first look to that until the second look.

The ratio is 1 for a constant rate, and 2 if the second look finds no further page. Above the limit, most of
the pages were dirtied before the first look, so the rate may have been much higher than measured."""


@dataclass(frozen=True, kw_only=True)
class PageSample:
    """Pages that were drawn at random from the memory of an instance and read several times.

    memory: bytes of all pages from which they were drawn.
    pages: number of drawn pages.
    empty: number of drawn pages that contained only zeros.
    looks: times of reading in seconds after the first reading, in ascending order, each with the number of
        pages whose content had changed by then.

    Raises ValueError for impossible numbers.
    """

    memory: int
    pages: int
    empty: int
    looks: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        changed = [0, *(count for _, count in self.looks)]
        times = [0.0, *(seconds for seconds, _ in self.looks)]
        if self.pages < 1 or len(self.looks) < 2 or not 0 <= self.empty <= self.pages:
            raise ValueError("a sample of pages needs a page and two looks")
        if changed != sorted(changed) or changed[-1] > self.pages or times != sorted(set(times)):
            raise ValueError("numbers of changed pages and times must ascend")


@dataclass(frozen=True, kw_only=True)
class Dirtying:
    """How fast an instance dirties its memory.

    rate: bytes of pages per second; its upper end is infinite if it was too fast to be measured.
    working_set: bytes that are written to again and again.
    full: share of the pages that do not contain only zeros.
    """

    rate: Estimate
    working_set: Estimate
    full: Estimate


def depends_on_dirtying(methods: Iterable[Method]) -> bool:
    """Return whether the prediction for one of these methods depends on how fast processes dirty their
    memory."""
    return any(method.copies_first for method in methods)


def dirtying(sample: PageSample) -> Dirtying:
    """Return the dirty rate and the working set.

    The bytes that are dirtied within t seconds, D(t), are a concave function of t for a steady program. The
    first looks give its slope at short times, and the last two its limit.
    """
    dirtied = [_share(count, sample.pages, sample.memory) for _, count in sample.looks]
    times = [seconds for seconds, _ in sample.looks]
    first, last = dirtied[0], dirtied[-1]
    slope = first.value / times[0]
    curve = slope / (dirtied[1].value / times[1]) if dirtied[1].value else 1.0
    steep = math.inf if curve > _CURVED else first.high / times[0] * max(curve, 1.0)
    least = min(last.low / times[-1], slope)
    new = _share(sample.looks[-1][1] - sample.looks[-2][1], sample.pages, sample.memory)
    return Dirtying(
        rate=Estimate(least, slope, max(steep, slope)),
        working_set=_limit(dirtied[-2], last, new, float(sample.memory)),
        full=_share(sample.pages - sample.empty, sample.pages, 1.0),
    )


def _limit(half: Estimate, last: Estimate, new: Estimate, memory: float) -> Estimate:
    """Return the limit of D(t) from its values at T/2 and T.

    D(t) is taken as h (1 - exp(-t/s)): with r = D(T) / D(T/2) - 1 = exp(-T/2s), h = D(T) / (1 - r²).
    half, last: D(T/2) and D(T), in bytes.
    new: bytes that were dirtied between T/2 and T only.
    memory: upper bound of the limit, in bytes.
    """

    def limit(reached: float, growth: float) -> float:
        return memory if growth >= 1 else min(reached / (1 - growth * growth), memory)

    if last.value == 0:
        return Estimate(0.0, 0.0, last.high)
    value = limit(last.value, new.value / half.value if half.value else 1.0)
    high = limit(last.high, new.high / half.low if half.low else 1.0)
    return Estimate(min(last.low, value), value, max(high, value))


def _share(count: int, of: int, whole: float) -> Estimate:
    """Return a share of a whole with its 95 % interval (Wilson)."""
    p, z2 = count / of, _Z * _Z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return Estimate(min(low, p) * whole, p * whole, max(high, p) * whole)


def guest_conditions(
    memory: float,
    seen: Dirtying | None,
    costs: Costs,
    bandwidth: Estimate,
    *,
    bound: float,
    most: float | None = None,
) -> Conditions:
    """Return the inputs of a prediction for moving a guest or writing it to a file.

    memory: memory of the guest, in bytes. Pages that contain only zeros are not sent.
    seen: dirty rate and working set; None if the guest's memory cannot be sampled.
    bandwidth: bytes per second of the mechanism.
    bound: seconds of downtime that are allowed.
    most: bytes per second to which the bandwidth is limited; None for no limit.
    """
    if seen is None:
        sent = Estimate(0.05 * memory, 0.6 * memory, memory)
        hot, rate = _unseen(sent.value, memory)
    else:
        sent = Estimate(seen.full.low * memory, seen.full.value * memory, seen.full.high * memory)
        hot, rate = seen.working_set, seen.rate
    bandwidth = bandwidth if most is None else limited(bandwidth, most)
    return _conditions(sent, hot, rate, costs, bandwidth, bound)


def process_conditions(
    memory: float,
    seen: Dirtying | None,
    costs: Costs,
    bandwidth: Estimate,
    *,
    bound: float,
    most: float | None = None,
    read_speed: Estimate | None = None,
) -> Conditions:
    """Return the inputs of a prediction for moving processes or writing them to files.

    memory: memory of the processes that no file contains, in bytes.
    seen: dirty rate and working set; None if they do not matter or cannot be measured.
    bandwidth, bound, most: as for guest_conditions().
    read_speed: bytes per second at which files are read back; None if the processes are not restored.
    """
    sent = Estimate(0.7 * memory, memory, 1.1 * memory)
    hot, rate = _unseen(memory, sent.high) if seen is None else (seen.working_set, seen.rate)
    bandwidth = bandwidth if most is None else limited(bandwidth, most)
    return replace(_conditions(sent, hot, rate, costs, bandwidth, bound), read_speed=read_speed)


def _unseen(sent: float, most: float) -> tuple[Estimate, Estimate]:
    """Return a working set and a dirty rate that contain all that is possible.

    sent: expected bytes that are sent. most: their largest number.
    """
    return Estimate(0.0, sent / 2, most), Estimate(0.0, 1e8, math.inf)


def _conditions(
    memory: Estimate,
    working_set: Estimate,
    dirty_rate: Estimate,
    costs: Costs,
    bandwidth: Estimate,
    bound: float,
) -> Conditions:
    return Conditions(
        memory=memory,
        working_set=working_set,
        dirty_rate=dirty_rate,
        bandwidth=bandwidth,
        fixed=costs.fixed,
        setup=costs.setup,
        downtime_limit=allowed_rest(bound, costs),
    )


def measured_bandwidth(speed: float, passes: float) -> Estimate:
    """Return the expected bandwidth of a move in bytes per second: at most the measured speed, since reading
    the memory of an instance is slower than copying a file.

    speed: measured speed of one copy, in bytes per second.
    passes: how often the bytes are copied: twice if they are written to a file and read back.
    """
    return Estimate(speed / (8 * passes), speed / (2 * passes), speed / passes)


def limited(bandwidth: Estimate, most: float) -> Estimate:
    """Return a bandwidth that is limited to `most` bytes per second."""
    return Estimate(min(bandwidth.low, most), min(bandwidth.value, most), min(bandwidth.high, most))


def allowed_rest(bound: float, costs: Costs) -> float:
    """Return how many seconds of an allowed downtime pre-copy may spend on sending the rest of the memory.

    That is the allowed downtime without the fixed costs, but at least a quarter of it.
    """
    return max(bound - costs.fixed.value, bound / 4)
