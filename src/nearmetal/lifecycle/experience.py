"""Correct predictions by the moves that were made before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .method import Method
from .prediction import Estimate, Prediction

FEWEST = 3
"""Number of earlier moves from which predictions are corrected."""
MOST = 50
"""Number of earlier moves that count; older ones are forgotten."""
_LEAST_SPREAD = 0.1
"""Standard deviation of log(measured / predicted) that is assumed at least."""
_SHORTEST = 1e-4
_TAIL = 0.05
_T95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75)
"""95 % quantiles of Student's t for 1 to 15 degrees of freedom."""
_T95_MORE = 1.75


@dataclass(frozen=True, kw_only=True)
class PastMove:
    """A finished move with its prediction, in seconds.

    kind: what was moved, and by which way; predictions are corrected by moves of the same kind and method.
    downtime, predicted_downtime: NaN if it was not measured.
    """

    kind: str
    method: Method
    predicted_total: float
    total: float
    predicted_downtime: float = math.nan
    downtime: float = math.nan


def corrected(prediction: Prediction, past: Iterable[PastMove], kind: str) -> Prediction:
    """Return a prediction with values and 90 % intervals from earlier moves of its kind and method.

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

    The interval is the prediction interval of the next ratio, whose logarithm is taken as normal. It is made
    wider where the earlier ratios themselves do not fit: standstills of some methods are usually alike, and
    now and then a third of that.
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
    half = spread * (_T95[n - 2] if n - 2 < len(_T95) else _T95_MORE)
    scale, middle = max(estimate.value, _SHORTEST), statistics.fmean(logs)
    least, most = _seen(logs)
    low, high = min(middle - half, least), max(middle + half, most)
    return Estimate(scale * math.exp(low), scale * math.exp(middle), scale * math.exp(high))


def _seen(logs: Sequence[float]) -> tuple[float, float]:
    """Return the interval of earlier values outside of which the next one is in at most a tenth of cases, if
    there are enough of them; else their range."""
    ordered = sorted(logs)
    cut = max(int((len(ordered) + 1) * _TAIL) - 1, 0)
    return ordered[cut], ordered[-1 - cut]
