"""Finds printed statements of a paper that contradict other statements of the paper, by more than the
rounding of the printed numbers allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...model.papers.published import (
    Derivation,
    Direction,
    PaperClaim,
    Published,
    Quantity,
    Relation,
    Rule,
    Significance,
)
from ..intervals.mean import Moments, welch
from .claims import wanted

DIGITS = 1e-9
"""Relative tolerance for rounding errors of floating-point numbers."""


@dataclass(frozen=True, kw_only=True)
class Inconsistency:
    """One printed statement that does not follow from the other statements of the paper.

    printed: the statement, such as '81 %'.
    low, high: least and largest value that follows from the other numbers, in `unit`; None if there is none.
    limits: printed value minus and plus its rounding, in `unit`; for a significance test, the values of t
        that would support the statement; None for contradicting claims.
    relation: how the printed value should compare with low and high.
    by: how low and high were computed, for example a formula.
    note: explanation by the paper's file; '' if there is none.
    """

    rule: Rule
    what: str
    source: str
    printed: str
    low: float | None
    high: float | None
    limits: tuple[float, float] | None
    unit: str
    relation: Relation
    by: str
    note: str = ""


def check_paper(paper: Published) -> tuple[Inconsistency, ...]:
    """Return every statement of a paper that does not follow from its own printed figures, in the order of
    its file."""
    return (
        *_out_of_range(paper),
        *(f for d in paper.derivations if (f := _derived(paper, d)) is not None),
        *(f for s in paper.significances if (f := _significance(paper, s)) is not None),
        *_contradictions(paper.claims),
    )


def checks_of(paper: Published) -> int:
    """Return the number of statements that are checked."""
    shares = sum(f.quantity is Quantity.TIME_SHARE for f in paper.figures)
    return len(paper.derivations) + len(paper.significances) + len(paper.claims) + shares


def band(paper: Published, derivation: Derivation) -> tuple[float, float]:
    """Return the least and the largest result of a formula, if each of its numbers may differ from its
    printed value by its rounding.

    The formula is evaluated for all combinations of the least and largest values of its numbers. This is
    exact if the result rises or falls steadily with each number. Both results are nan if the formula has no
    finite result for one of the combinations.
    """
    bands = [paper.numbers[name].band for name in derivation.formula.names]
    values = [derivation.formula.value(corner) for corner in itertools.product(*bands)]
    if not all(math.isfinite(v) for v in values):
        return math.nan, math.nan
    return min(values), max(values)


def _derived(paper: Published, derivation: Derivation) -> Inconsistency | None:
    printed = paper.numbers[derivation.result]
    low, high = band(paper, derivation)
    least, most = printed.band
    slack = DIGITS * max(abs(v) for v in (low, high, least, most))
    follows = {
        Relation.EQUAL: least <= high + slack and low <= most + slack,
        Relation.AT_MOST: least <= high + slack,
        Relation.AT_LEAST: low <= most + slack,
    }[derivation.relation]
    if follows:
        return None
    defined = not math.isnan(low)
    return Inconsistency(
        rule=derivation.rule,
        what=printed.what,
        source=printed.source,
        printed=f"{printed.text} {printed.unit}".rstrip(),
        low=low if defined else None,
        high=high if defined else None,
        limits=printed.band,
        unit=printed.unit,
        relation=derivation.relation,
        by=derivation.formula.text,
        note=derivation.note,
    )


def _out_of_range(paper: Published) -> Iterator[Inconsistency]:
    """Yield printed shares of a time that are below 0 or above 100 %."""
    for f in paper.figures:
        if f.quantity is Quantity.TIME_SHARE and not 0 <= f.low <= f.high <= 1:
            yield Inconsistency(
                rule=Rule.SHARE,
                what=f.what,
                source=f.source,
                printed=f"{100 * f.low:g} %",
                low=0.0,
                high=100.0,
                limits=(100 * f.low, 100 * f.high),
                unit="%",
                relation=Relation.EQUAL,
                by="a share of a time",
            )


def _significance(paper: Published, s: Significance) -> Inconsistency | None:
    """Return a finding if the printed means, deviations and number of runs do not support the statement that
    two means differ, or that they do not; None if they do, or if no test is possible.

    The test is Welch's. If the deviation of the other side is not printed, both are assumed to be equal.
    """
    n = paper.numbers[s.n].value
    if n < 2:
        return None
    names = [s.mean, s.deviation, s.other_mean or s.difference, s.other_deviation or s.deviation]
    tests = []
    for mean, deviation, other, other_deviation in itertools.product(*(paper.numbers[m].band for m in names)):
        second = other if s.other_mean else mean * (1 + other / 100)
        scales = (abs(mean) / 100, abs(second) / 100) if s.relative else (1.0, 1.0)
        spreads = (deviation * scales[0], other_deviation * scales[1])
        if not all(spreads):
            return None
        first = Moments(n=n, mean=mean, deviation=spreads[0])
        test = welch(first, Moments(n=n, mean=second, deviation=spreads[1]), s.confidence)
        tests.append((abs(test.t), test.limit))
    ts, limits = zip(*tests, strict=True)
    low, high = min(ts), max(ts)
    least, most = min(limits), max(limits)
    if (low <= most) if not s.stated else (high >= least):
        return None
    said = "a difference" if s.stated else "no significant difference"
    same = "" if s.other_deviation else ", the same deviation on both sides"
    return Inconsistency(
        rule=Rule.SIGNIFICANCE,
        what=s.what,
        source=s.source,
        printed=said,
        low=low,
        high=high,
        limits=(0.0, most) if not s.stated else (least, math.inf),
        unit="t",
        relation=Relation.EQUAL,
        by=f"t of Welch's test with {n:g} runs on each side{same}; "
        f"{100 * s.confidence:g} % needs {least:.3g}",
        note=s.note,
    )


def _contradictions(claims: tuple[PaperClaim, ...]) -> Iterator[Inconsistency]:
    """Yield pairs of claims on the same comparison that cannot both be true."""
    for a, b in itertools.combinations(claims, 2):
        same = (a.arm, a.baseline, a.metric, a.quantity) == (b.arm, b.baseline, b.metric, b.quantity)
        sizes = not a.size or not b.size or a.size == b.size
        if not same or not sizes or not set(a.workloads) & set(b.workloads) or a.above or b.above:
            continue
        (low, high), (other_low, other_high) = wanted(a, 0.0), wanted(b, 0.0)
        opposite = {a.direction, b.direction} == {Direction.SLOWER, Direction.FASTER}
        if opposite or low > other_high or other_low > high:
            yield Inconsistency(
                rule=Rule.CLAIMS,
                what=f"{a.what}; {b.what}",
                source=b.source if a.source == b.source else f"{a.source}; {b.source}",
                printed=f"{a.printed or a.direction}; {b.printed or b.direction}",
                low=None,
                high=None,
                limits=None,
                unit="%",
                relation=Relation.EQUAL,
                by="two claims on one comparison exclude each other",
            )
