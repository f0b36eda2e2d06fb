"""Choose a method for a bound on the downtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .method import Method
from .prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A method that may be chosen.

    refused: why the instance cannot be moved by it; empty if it can.
    """

    prediction: Prediction
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The method that was chosen, and why.

    holds: whether the bound is expected to hold.
    """

    method: Method
    reason: str
    holds: bool


def choose(bound: float, candidates: Sequence[Candidate]) -> Choice:
    """Return the method that keeps the downtime within a bound in the shortest time.

    A prediction keeps the bound if the upper end of its interval does. Methods whose instance is lost with
    the connection are chosen only if no other keeps the bound. If none does, the shortest downtime is chosen.

    bound: seconds.
    Raises ValueError if no method is left to choose from.
    """
    able = [c.prediction for c in candidates if not c.refused]
    if not able:
        reasons = "; ".join(f"{c.prediction.method}: {c.refused}" for c in candidates)
        raise ValueError(f"no method can move it: {reasons or 'none was named'}")
    fitting = [p for p in able if p.downtime.high <= bound]
    if not fitting:
        best = min(able, key=lambda p: (p.downtime.high, p.downtime.value, p.total.value))
        return Choice(
            method=best.method,
            reason=f"no method keeps {_ms(bound)}; {best.method} comes closest with {_range(best)}"
            f"{_unfit(able, best, bound)}",
            holds=False,
        )
    best = min(fitting, key=lambda p: (p.method.fetches_later, p.total.high, p.total.value))
    return Choice(
        method=best.method,
        reason=f"{best.method} keeps {_ms(bound)} with {_range(best)}{_unfit(able, best, bound)}",
        holds=True,
    )


def _unfit(able: Sequence[Prediction], best: Prediction, bound: float) -> str:
    """Return why each of the other methods was not chosen."""
    reasons = [f"{p.method} {_why_not(p, bound)}" for p in able if p is not best]
    return f"; {'; '.join(reasons)}" if reasons else ""


def _why_not(p: Prediction, bound: float) -> str:
    if not p.converges:
        return f"may not converge below {p.converges_above / 1e6:.0f} MB/s"
    if p.downtime.high > bound:
        return f"may stand still for {_ms(p.downtime.high)}"
    if p.method.fetches_later:
        return "loses the instance if the connection breaks"
    return f"takes up to {_ms(p.total.high)}"


def _range(p: Prediction) -> str:
    if not math.isfinite(p.downtime.high):
        return "no bound on its downtime"
    return f"a downtime of {_ms(p.downtime.low)} to {_ms(p.downtime.high)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if math.isfinite(seconds) else "no end"
