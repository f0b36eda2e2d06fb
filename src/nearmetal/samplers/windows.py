"""Computes counters over windows of time from samples: the increase of counters, the mean of levels. No
I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from ..host.counters.procfiles import LEVELS, MAY_FALL, Counters
from ..model.scope import Scope
from .reading import Sample

Window = tuple[float, float]
"""(begin, end) of a window, in seconds of the node's CLOCK_MONOTONIC."""
Series = Sequence[tuple[float, float]]


def in_windows(
    samples: Sequence[Sample], scope: Scope, windows: Sequence[Window], ahead: float = 0.0
) -> Counters:
    """Return the counters of one scope, summed over all windows, and their total length as 'seconds'. For a
    level, such as the used memory, return the mean over all windows.

    Values are interpolated linearly between two samples. A value is None if a window begins before the first
    sample or ends after the last one. A counter is also None if it decreased in a window, except for idle
    times, which kernels may correct downwards; their increase is then taken as 0.

    ahead: seconds by which the clock of the samples is ahead of the clock of the windows.
    """
    out: Counters = {"seconds": sum(end - begin for begin, end in windows)}
    own = [(s.monotonic - ahead, s.scopes[scope]) for s in samples if scope in s.scopes]
    for name in dict.fromkeys(key for _, counters in own for key in counters):
        series = [(at, value) for at, c in own if (value := c.get(name)) is not None]
        out[name] = (
            _mean(series, windows) if name in LEVELS else _grown(series, windows, falls=name in MAY_FALL)
        )
    return out


def _grown(series: Series, windows: Sequence[Window], *, falls: bool) -> float | None:
    total = 0.0
    for begin, end in windows:
        first, last = _at(series, begin), _at(series, end)
        if first is None or last is None or (last < first and not falls):
            return None
        total += max(0.0, last - first)
    return total


def _mean(series: Series, windows: Sequence[Window]) -> float | None:
    area = whole = 0.0
    for begin, end in windows:
        ends = _at(series, begin), _at(series, end)
        if ends[0] is None or ends[1] is None:
            return None
        within = [point for point in series if begin < point[0] < end]
        points = [(begin, ends[0]), *within, (end, ends[1])]
        for (t0, a), (t1, b) in pairwise(points):
            area += (t1 - t0) * (a + b) / 2
        whole += end - begin
    return area / whole if whole > 0 else None


def _at(series: Series, time: float) -> float | None:
    """Return the value at a moment, interpolated between two samples; None before the first or after the
    last."""
    right = bisect_right(series, time, key=lambda point: point[0])
    if right == 0:
        return None
    t0, a = series[right - 1]
    if t0 == time:
        return a
    if right == len(series):
        return None
    t1, b = series[right]
    return a + (b - a) * (time - t0) / (t1 - t0)
