"""The interval for nodes like these (Estimand.ALIKE). The replicates are the centres of the nodes.

With eight nodes or more it is the exact signed-rank interval of the centres. With fewer nodes it is Student's
t interval, which assumes normal centres and is labelled approximate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy  # its modules are loaded on first use, so the first block need not wait for them

from ..intervals import FloatArray
from ..intervals.signed_rank import Walsh, attained

EXACT_FROM = 8
"""Least number of nodes for the exact interval. Its smallest level is then 2^-7 = .0078."""


def centre_of(d: FloatArray) -> float:
    """Return the centre of one node: the Hodges-Lehmann estimate of its values.

    Values may be infinite, for failed trials. The result is infinite if the middle Walsh average is.
    """
    walsh = Walsh(d)
    middle = (walsh.count + 1) // 2
    low, high = walsh.lower(middle), walsh.upper(middle)
    if math.isfinite(low) and math.isfinite(high):
        return 0.5 * low + 0.5 * high
    return high if math.isfinite(low) else low


class ExactCentres(Walsh):
    """A sample of EXACT_FROM nodes or more, each with its centre, which may be infinite."""

    def step(self) -> float:
        """Return nan: more rounds on the same nodes narrow the interval only a little."""
        return math.nan


class StudentCentres:
    """A sample of fewer than EXACT_FROM nodes, whose centres are assumed to be normal."""

    def __init__(self, centres: Sequence[float]) -> None:
        """centres: one for each node; they may be infinite."""
        self._n, finite = len(centres), all(map(math.isfinite, centres))
        spread = self._n > 1 and finite
        self._error = float(np.std(centres, ddof=1)) / math.sqrt(self._n) if spread else math.inf
        self._mean = float(np.mean(centres)) if finite else math.nan

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval that misses the centre of such nodes with probability at most `level`; infinite
        if there are too few nodes."""
        if math.isinf(self._error) or level <= 0:
            return -math.inf, math.inf
        half = -float(scipy.special.stdtrit(self._n - 1, level / 2)) * self._error
        return self._mean - half, self._mean + half

    def below(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at most theta."""
        return self._tail(theta - self._mean)

    def above(self, theta: float) -> float:
        """Return the p value of the hypothesis that the centre is at least theta."""
        return self._tail(self._mean - theta)

    def centre(self) -> float:
        """Return the mean of the centres; nan if one is infinite."""
        return self._mean

    def step(self) -> float:
        """Return nan, as ExactCentres.step() does."""
        return math.nan

    def _tail(self, distance: float) -> float:
        if math.isinf(self._error):
            return 1.0
        if self._error == 0:
            return 0.0 if distance < 0 else 1.0
        return float(scipy.special.stdtr(self._n - 1, distance / self._error))


def sample_of_nodes(centres: Sequence[float]) -> ExactCentres | StudentCentres:
    """Return the sample of nodes with these centres, one for each node."""
    if len(centres) < EXACT_FROM:
        return StudentCentres(centres)
    return ExactCentres(np.array(centres, dtype=np.float64))


def attained_level(nodes: int, level: float) -> float:
    """Return the largest level not above `level` that an interval of this number of nodes attains; 0 if the
    interval would be unbounded."""
    if nodes >= EXACT_FROM:
        return attained(nodes, level)
    return level if nodes > 1 else 0.0
