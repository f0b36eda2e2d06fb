"""Compares the claims of a paper with our intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...model.papers.published import Bound, Direction, PaperClaim, Quantity


class ClaimOutcome(StrEnum):
    """Whether a claim of a paper holds here."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    OPEN = "no verdict yet"
    IMPOSSIBLE = "cannot be checked here"


@dataclass(frozen=True, kw_only=True)
class OwnOverhead:
    """One of our overheads, as a fraction.

    what: name of the workload in our study.
    workload: what it runs, by the name that claims use.
    low, high: its interval; infinite before there are enough blocks. low > high if the blocks contradict each
        other.
    margin: the largest overhead that does not matter to the user.
    """

    what: str
    workload: str
    low: float
    high: float
    margin: float

    @property
    def finite(self) -> bool:
        """Whether the interval can support a verdict."""
        return math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high


@dataclass(frozen=True, kw_only=True)
class ClaimAnswer:
    """The answer to one claim.

    direction: the answer to the direction of the claim alone, without its number.
    each: (name in our study, answer) of each workload that was compared.
    reason: explanation in a clause; '' if none is needed.
    """

    claim: PaperClaim
    held: ClaimOutcome
    direction: ClaimOutcome
    each: tuple[tuple[str, ClaimOutcome], ...]
    reason: str


def wanted(claim: PaperClaim, margin: float) -> tuple[float, float]:
    """Return the range of overheads for which a claim is true.

    A single number is widened by the margin on both sides, since a smaller difference does not matter. If the
    claim states a largest overhead ('at most'), faster environments fulfil it, too.

    margin: largest overhead that does not matter, as a fraction.
    """
    low, high = _direction(claim.direction, margin)
    if claim.low is None or claim.high is None:
        return low, high
    if claim.bound is Bound.AT_MOST:
        low, high = -1.0, math.inf
    least, most = _LIMITS[claim.quantity]
    ends = (
        least if claim.bound is Bound.AT_MOST else claim.low,
        most if claim.bound is Bound.AT_LEAST else claim.high,
    )
    first, last = sorted(_overhead(claim.quantity, end) for end in ends)
    wide = margin if claim.exact and claim.bound is Bound.ABOUT else 0.0
    return max(low, first - wide), min(high, last + wide)


_LIMITS = {
    Quantity.OVERHEAD: (-1.0, math.inf),
    Quantity.LOSS: (-math.inf, 1.0),
    Quantity.GAIN: (-1.0, math.inf),
}
"""The least and the largest value of a quantity."""


def _overhead(quantity: Quantity, value: float) -> float:
    """Return the time-equivalent overhead of a quantity of a claim, as a fraction."""
    match quantity:
        case Quantity.LOSS:
            if math.isinf(value):
                return -1.0
            return value / (1 - value) if value < 1 else math.inf
        case Quantity.GAIN:
            return 1 / (1 + value) - 1 if value > -1 else math.inf
        case _:
            return value


def _direction(direction: Direction, margin: float) -> tuple[float, float]:
    match direction:
        case Direction.SLOWER:
            return 0.0, math.inf
        case Direction.FASTER:
            return -1.0, 0.0
        case Direction.SAME:
            return -margin, margin


NEAR = 0.15
"""Two shares of computation are near each other if they differ by at most this fraction."""


def unlike(claim: PaperClaim, shares: Mapping[str, float | None]) -> dict[str, str]:
    """Return the workloads for which a claim cannot be checked here, with reasons: the share of computation
    of our baseline is unknown, or not near that in the paper.

    shares: computation / (computation + communication) of our baseline, by workload as claims name it; None
        if the workload was not profiled.
    """
    out = {}
    for workload, (low, high) in claim.conditions.computation.items():
        if workload not in (*claim.workloads, *claim.above) or workload not in shares:
            continue
        own = shares[workload]
        if own is None:
            out[workload] = f"{workload} was not profiled"
        elif why := far_words(own, low, high):
            out[workload] = f"{workload} {why}"
    return out


def share_words(low: float, high: float) -> str:
    """Return a share, or a range of shares, as text."""
    return " to ".join(f"{100 * v:.3g}" for v in dict.fromkeys((low, high))) + " %"


def far_words(own: float, low: float, high: float) -> str:
    """Return how our share of computation differs from that of a paper, as text; '' if they are near each
    other.

    low, high: range of the share in the paper, as fractions.
    """
    if low - NEAR <= own <= high + NEAR:
        return ""
    return f"computes for {100 * own:.3g} % of its time, in the paper {share_words(low, high)}"


def hold(
    claim: PaperClaim,
    ours: Sequence[OwnOverhead],
    *,
    cannot: str = "",
    why: str = "",
    unasked: Mapping[str, str] | None = None,
) -> ClaimAnswer:
    """Return whether a claim holds, by our intervals alone.

    A claim on several workloads holds if it holds for all of them, and does not hold if it fails for one.

    cannot: why the claim cannot be checked here; '' if it can.
    why: the reason to give if the claim can be checked but nothing was measured; '' for a general one.
    unasked: workloads for which the claim cannot be checked here, with reasons; see unlike().
    """
    if claim.cannot or cannot:
        return _without(claim, ClaimOutcome.IMPOSSIBLE, claim.cannot or cannot)
    unasked = unasked or {}
    if unasked and unasked.keys() >= {*claim.workloads}:
        return _without(claim, ClaimOutcome.IMPOSSIBLE, "; ".join(unasked.values()))
    ours = [o for o in ours if o.workload not in unasked]
    own = [o for o in ours if o.workload in claim.workloads]
    if claim.above:
        return _ranking(claim, own, [o for o in ours if o.workload in claim.above], why)
    if not own:
        return _without(claim, ClaimOutcome.OPEN, why or "not measured")
    differs = claim.direction is not Direction.SAME
    material = differs and claim.bound is not Bound.AT_MOST
    each = tuple((o.what, _within(o, wanted(claim, o.margin), material=material)) for o in own)
    directions = [_within(o, _direction(claim.direction, o.margin), material=differs) for o in own]
    held, direction = _all([h for _, h in each]), _all(directions)
    missing = [w for w in claim.workloads if w not in {o.workload for o in own}]
    untold = [why for w, why in unasked.items() if w in missing]
    if missing:
        held, direction = (ClaimOutcome.OPEN if h is ClaimOutcome.HOLDS else h for h in (held, direction))
    finite = all(o.finite for o in own)
    missing = [w for w in missing if w not in unasked]
    reason = _reason(claim, held, direction, each, missing, finite=finite, partial=bool(untold))
    if untold:
        reason += f"; cannot be checked for the others: {'; '.join(untold)}"
    return ClaimAnswer(claim=claim, held=held, direction=direction, each=each, reason=reason)


def _without(claim: PaperClaim, held: ClaimOutcome, reason: str) -> ClaimAnswer:
    return ClaimAnswer(claim=claim, held=held, direction=held, each=(), reason=reason)


def _within(own: OwnOverhead, region: tuple[float, float], *, material: bool) -> ClaimOutcome:
    """Return whether an overhead lies in a region.

    material: whether the claim states a difference. Such a claim fails if our overhead is equivalent to 0.
    """
    low, high = region
    if not own.finite:
        return ClaimOutcome.OPEN
    if low <= own.low and own.high <= high:
        return ClaimOutcome.HOLDS
    equal = -own.margin < own.low and own.high < own.margin
    fails = own.high < low or own.low > high or (equal and material)
    return ClaimOutcome.FAILS if fails else ClaimOutcome.OPEN


def _all(answers: Sequence[ClaimOutcome]) -> ClaimOutcome:
    if ClaimOutcome.FAILS in answers:
        return ClaimOutcome.FAILS
    return ClaimOutcome.HOLDS if all(a is ClaimOutcome.HOLDS for a in answers) else ClaimOutcome.OPEN


def _reason(
    claim: PaperClaim,
    held: ClaimOutcome,
    direction: ClaimOutcome,
    each: Sequence[tuple[str, ClaimOutcome]],
    missing: Sequence[str],
    *,
    finite: bool,
    partial: bool,
) -> str:
    """Return why a claim holds or not, in clauses; '' if nothing needs to be explained.

    each: (workload, answer) of each workload that was compared.
    missing: workloads of the claim that were not measured.
    finite: whether all workloads have an interval.
    partial: whether the claim cannot be checked for some of its workloads. The compared ones are then named.
    """
    out = []
    if partial or len({h for _, h in each}) > 1:
        for answer, words in (
            (ClaimOutcome.HOLDS, "holds for"),
            (ClaimOutcome.FAILS, "does not hold for"),
            (ClaimOutcome.OPEN, "no verdict yet for"),
        ):
            if named := [workload for workload, h in each if h is answer]:
                out.append(f"{words} {', '.join(named)}")
    if missing:
        out.append(f"not measured: {', '.join(missing)}")
    if claim.printed and held is not ClaimOutcome.HOLDS and direction is ClaimOutcome.HOLDS:
        out.append(f"its direction ({claim.direction}) holds")
    if held is ClaimOutcome.OPEN and not out:
        out.append("the interval reaches across a limit of the claim" if finite else "no interval yet")
    return "; ".join(out)


def _ranking(
    claim: PaperClaim, own: Sequence[OwnOverhead], others: Sequence[OwnOverhead], why: str
) -> ClaimAnswer:
    """Return the answer to a claim that some workloads (`own`) are affected more than others.

    why: the reason to give if one of the groups was not measured; '' for a general one.
    """
    if not own or not others:
        return _without(claim, ClaimOutcome.OPEN, why or "not measured")
    pairs = [(a, b) for a in own for b in others]
    for a, b in pairs:
        if a.finite and b.finite and a.high < b.low:
            return _without(claim, ClaimOutcome.FAILS, f"{b.what} is affected more than {a.what}")
    whole = {o.workload for o in (*own, *others)} == {*claim.workloads, *claim.above}
    if not whole:
        return _without(claim, ClaimOutcome.OPEN, "not all of them were measured")
    if all(a.finite and b.finite and b.high < a.low for a, b in pairs):
        return _without(claim, ClaimOutcome.HOLDS, "")
    return _without(claim, ClaimOutcome.OPEN, "their intervals overlap")
