"""Turns an interval and a margin into one of five verdicts with a reason in plain language, and estimates how
many blocks a verdict still needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from ..model.result import Interval, Verdict
from .intervals.looks import Carried
from .intervals.signed_rank import attained

_NORMAL = NormalDist()


def judge(low: float, high: float, *, margin: float) -> Verdict:
    """Return the verdict of a primary interval [low, high] of theta.

    margin: largest overhead that is not material, as a share of the time.
    """
    if low > high:
        return Verdict.INCONSISTENT
    delta = math.log1p(margin)
    if low > delta:
        return Verdict.SLOWER
    if high < -delta:
        return Verdict.FASTER
    if -delta < low and high < delta:
        return Verdict.EQUIVALENT
    return Verdict.NONE


def share_of(theta: float) -> float:
    """Return the overhead exp(theta) - 1, or infinity on overflow."""
    return math.expm1(theta) if theta < 709 else math.inf


MOST_FAILED = 0.05
"""Largest share of failed blocks with which a comparison may still be called equivalent."""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The blocks of a comparison in which a side failed.

    env, base: number of blocks in which the environment, or the baseline, failed; one block may count in
        both.
    failed: number of blocks in which at least one of them failed.
    blocks: number of all blocks of the comparison, including failed ones.
    without: the running interval [low, high] of the blocks in which neither failed.
    """

    env: int
    base: int
    failed: int
    blocks: int
    without: tuple[float, float]

    @property
    def words(self) -> str:
        """Return the failures as text: 'fails in 3 of 12 rounds; its baseline fails in 1 of 12 rounds'."""
        sides = (("fails", self.env), ("its baseline fails", self.base))
        texts = [f"{who} in {count} of {self.blocks} rounds" for who, count in sides if count]
        return "; ".join(texts) or f"cannot be compared in {self.failed} of {self.blocks} rounds"


def judge_failures(verdict: Verdict, failures: Failures, *, margin: float) -> Verdict:
    """Return the verdict of an interval in which failed blocks count as infinitely slow.

    A failure is evidence against equivalence, and the interval takes it into account. *Equivalent* is refused
    in any case if more than 5 % of the blocks failed. A failure says nothing about the speed of runs that do
    not fail. Therefore *slower*, *faster* and *inconsistent* are kept only if the blocks without failures
    lead to the same verdict.
    """
    if verdict is Verdict.EQUIVALENT and failures.failed > MOST_FAILED * failures.blocks:
        return Verdict.NONE
    if verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT):
        low, high = failures.without
        if judge(low, high, margin=margin) is not verdict:
            return Verdict.NONE
    return verdict


def smallest_material(low: float, high: float, margin: float) -> float:
    """Return the smallest overhead that could have been called material: exp(Delta + half-width) - 1, where
    Delta is ln(1 + margin)."""
    if math.isinf(low) or math.isinf(high):
        return math.inf
    return (1 + margin) * math.exp(max(high - low, 0.0) / 2) - 1


def blocks_needed(carried: Carried, *, n: int, margin: float, min_blocks: int) -> int | None:
    """Return how many more blocks a verdict needs if centre and spread stay as they are; None if the number
    is unknown or no planned look is enough.

    The half-width at a later look at n_j blocks is predicted as z(level_j / 2) standard errors. The standard
    error is assumed to shrink with the square root of n. The predicted interval is the intersection of the
    present interval with those of the later looks. A look that cannot attain its level does not narrow it.
    """
    if not math.isfinite(carried.step) or carried.low > carried.high:
        return None
    low, high = carried.low, carried.high
    # If the interval already supports a verdict, only the least number of blocks is missing.
    if n < min_blocks and judge(low, high, margin=margin) is not Verdict.NONE:
        return min_blocks - n
    for looked, level in carried.ahead:
        if level <= 0:
            continue
        z = -_NORMAL.inv_cdf(level / 2)
        half = z * carried.step * math.sqrt(n / looked)
        low, high = max(low, carried.centre - half), min(high, carried.centre + half)
        if judge(low, high, margin=margin) is not Verdict.NONE:
            return max(looked, min_blocks) - n
    return None


def disagreement(low: float, high: float, sign: Interval, verdict: Verdict, *, margin: float) -> str:
    """Describe in a clause how the sign interval of the median contradicts the primary interval [low, high]
    of theta.

    The clause is empty if the intervals overlap and their verdicts do not contradict each other.
    """
    if verdict is Verdict.INCONSISTENT or low > high:
        return ""
    if max(low, sign.low) > min(high, sign.high):
        return "the sign interval of the median has no value in common with it"
    other = judge(sign.low, sign.high, margin=margin)
    if Verdict.NONE in (verdict, other) or other is verdict:
        return ""
    return f"by the sign interval of the median it is {other.value}"


def reason(
    verdict: Verdict, carried: Carried, *, n: int, margin: float, min_blocks: int, needed: int | None
) -> str:
    """Return the reason for the verdict, in one clause."""
    band = f"{100 * margin:.3g} %"
    match verdict:
        case Verdict.SLOWER:
            return f"the whole interval lies above +{band}"
        case Verdict.FASTER:
            return f"the whole interval lies beyond {band} on the faster side"
        case Verdict.EQUIVALENT:
            return f"the whole interval lies within ±{band}"
        case Verdict.INCONSISTENT:
            return "an earlier and a later interval exclude each other: the machine changed during the run"
        case Verdict.NONE:
            return _why_not(carried, n=n, band=band, min_blocks=min_blocks, needed=needed)


def _why_not(carried: Carried, *, n: int, band: str, min_blocks: int, needed: int | None) -> str:
    if n < min_blocks:
        return f"{n} of at least {min_blocks} rounds"
    if math.isinf(carried.low) and math.isinf(carried.high):
        first = next((looked for looked, level in carried.ahead if attained(looked, level) > 0), None)
        return "there is no interval yet" + (f"; the first comes after {first} rounds" if first else "")
    if needed is None:
        return f"the interval reaches across {band}; a longer run will not help, a quieter machine may"
    return f"the interval reaches across {band}"
