"""Choose a method for a bound on the downtime or on the total time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .method import LOSES, Method
from .prediction import Estimate, Prediction


class Bounded(StrEnum):
    """The time to which a bound applies."""

    DOWNTIME = "downtime"
    TOTAL = "total"

    @property
    def words(self) -> str:
        return "downtime" if self is Bounded.DOWNTIME else "total time"

    def time(self, prediction: Prediction) -> Estimate:
        return prediction.downtime if self is Bounded.DOWNTIME else prediction.total


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A method that may be chosen.

    refused: why the instance cannot be moved by this method; empty if it can.
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


def choose(bound: float, candidates: Sequence[Candidate], of: Bounded = Bounded.DOWNTIME) -> Choice:
    """Return the method that keeps a bound, and why, in one sentence.

    A prediction keeps the bound if the upper end of its interval does. Among those that keep a bound on the
    downtime, the shortest move is chosen; among those that keep a bound on the total time, the shortest
    downtime. Methods that lose the instance if the connection breaks (Method.fetches_later) are chosen only
    if no other method keeps the bound. If none does, the method that comes closest is chosen.

    bound: seconds.
    of: the time to which the bound applies.

    Raises ValueError if no method is left to choose from.
    """
    able = [c.prediction for c in candidates if not c.refused]
    if not able:
        reasons = "; ".join(f"{c.prediction.method}: {c.refused}" for c in candidates)
        raise ValueError(f"no method can move it: {reasons or 'none was named'}")
    fitting = [p for p in able if of.time(p).high <= bound]
    if fitting:
        other = Bounded.TOTAL if of is Bounded.DOWNTIME else Bounded.DOWNTIME
        best = min(fitting, key=lambda p: (p.method.fetches_later, other.time(p).high, other.time(p).value))
        words = f"{best.method} keeps {_time(bound)}"
    else:
        best = min(able, key=lambda p: (of.time(p).high, of.time(p).value, p.total.value))
        words = f"no method keeps {_time(bound)}; {best.method} comes closest"
    refused = [f"{c.prediction.method} cannot be used: {c.refused}" for c in candidates if c.refused]
    reason = "; ".join([f"{words} with {_range(best, of)}", *_unfit(able, best, bound, of), *refused])
    return Choice(method=best.method, reason=reason, holds=bool(fitting))


def _unfit(able: Sequence[Prediction], best: Prediction, bound: float, of: Bounded) -> list[str]:
    """Return why each of the other methods was not chosen."""
    return [f"{p.method} {_why_not(p, bound, of)}" for p in able if p is not best]


def _why_not(p: Prediction, bound: float, of: Bounded) -> str:
    if not p.converges:
        return f"may not converge below {p.converges_above / 1e6:.0f} MB/s"
    takes, stops = f"takes up to {_time(p.total.high)}", f"may stand still for {_time(p.downtime.high)}"
    if of.time(p).high > bound:
        return stops if of is Bounded.DOWNTIME else takes
    if p.method.fetches_later:
        return LOSES
    return takes if of is Bounded.DOWNTIME else stops


def _range(p: Prediction, of: Bounded) -> str:
    time = of.time(p)
    if not math.isfinite(time.high):
        return f"no bound on its {of.words}"
    return f"a {of.words} of {_time(time.low)} to {_time(time.high)}"


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "no end"
    return f"{seconds * 1e3:.0f} ms" if seconds < 10 else f"{seconds:.0f} s"
