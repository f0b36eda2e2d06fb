"""Ratios and differences of interleaved pairs, with the exact signed-rank interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from nearmetal.model.result import Interval

CONFIDENCE = 0.95
Value = TypeVar("Value")


def interval(values: Sequence[float]) -> Interval:
    """Return the Hodges-Lehmann estimate and the exact 95 % signed-rank interval of paired values, whose
    number was fixed beforehand."""
    import numpy as np

    from nearmetal.analysis.intervals.signed_rank import Walsh

    walsh = Walsh(np.asarray(values, dtype=np.float64))
    low, high = walsh.interval(1 - CONFIDENCE)
    return Interval(centre=walsh.centre(), low=low, high=high)


def ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the interval of the ratios a / b of pairs."""
    found = interval([math.log(x / y) for x, y in zip(a, b, strict=True)])
    return Interval(centre=math.exp(found.centre), low=math.exp(found.low), high=math.exp(found.high))


def difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the interval of the differences a - b of pairs."""
    return interval([x - y for x, y in zip(a, b, strict=True)])


def shown(found: Interval, unit: str = "", scale: float = 1.0) -> str:
    """Return an interval as text: '1.003 [0.998 … 1.009] unit'. scale: factor to the unit."""
    centre, low, high = (scale * v for v in (found.centre, found.low, found.high))
    return f"{centre:.4g} [{low:.4g} … {high:.4g}] {unit}".rstrip()


def interleaved(what: dict[str, Callable[[], Value]], rounds: int, seed: int = 1) -> dict[str, list[Value]]:
    """Call each function once per round, in random order. Return the results by name, in the order of
    rounds."""
    rng = Random(seed)
    out: dict[str, list[Value]] = {name: [] for name in what}
    for _ in range(rounds):
        for name in rng.sample(sorted(what), len(what)):
            out[name].append(what[name]())
    return out
