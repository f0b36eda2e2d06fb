"""Correct predictions by the moves that were made before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .method import Method
from .prediction import Estimate, Prediction

FEWEST = 3
"""Smallest number of earlier moves by which predictions are corrected."""
MOST = 50
"""Number of most recent moves that are used; older ones are ignored."""
_LEAST_SPREAD = 0.1
"""Smallest standard deviation of log(measured / predicted) that is assumed."""
_SHORTEST = 1e-4
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""97.5 % quantiles of Student's t for 1 to 15 degrees of freedom."""
_T_MORE = 2.13


@dataclass(frozen=True, kw_only=True)
class PastMove:
    """A finished move with its prediction, in seconds.

    kind: text that names what was moved, and where. A prediction is corrected only by moves of the same kind
        and method.
    downtime, predicted_downtime: NaN if it was not measured.
    """

    kind: str
    method: Method
    predicted_total: float
    total: float
    predicted_downtime: float = math.nan
    downtime: float = math.nan


def corrected(prediction: Prediction, past: Iterable[PastMove], kind: str) -> Prediction:
    """Return a prediction with values and 95 % intervals from earlier moves of its kind and method.

    A prediction that does not converge, and one with fewer than FEWEST earlier moves, is returned as it is.
    """
    same = [p for p in past if p.kind == kind and p.method is prediction.method][-MOST:]
    return replace(
        prediction,
        total=_scaled(prediction.total, [(p.predicted_total, p.total) for p in same]),
        downtime=_scaled(prediction.downtime, [(p.predicted_downtime, p.downtime) for p in same]),
    )


def _scaled(estimate: Estimate, pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return an estimate scaled by the ratios of measured to predicted values.

    The interval is the 95 % prediction interval of the next ratio, whose logarithm is taken as normal. It is
    widened to contain all earlier ratios. Real downtimes of a method have longer tails than that: most are
    alike, and a few are only a third as long. The interval then contains nine of ten moves.

    pairs: (predicted, measured) of earlier moves, in seconds; a NaN excludes its pair.
    """
    logs = [
        math.log(max(measured, _SHORTEST) / max(predicted, _SHORTEST))
        for predicted, measured in pairs
        if math.isfinite(predicted) and math.isfinite(measured)
    ]
    if len(logs) < FEWEST or not math.isfinite(estimate.high):
        return estimate
    n = len(logs)
    spread = max(statistics.stdev(logs), _LEAST_SPREAD) * math.sqrt(1 + 1 / n)
    half = spread * (_T[n - 2] if n - 2 < len(_T) else _T_MORE)
    scale, middle = max(estimate.value, _SHORTEST), statistics.fmean(logs)
    low, high = min(middle - half, *logs), max(middle + half, *logs)
    return Estimate(scale * math.exp(low), scale * math.exp(middle), scale * math.exp(high))
