"""Multiple comparisons: Holm's adjusted p values as an extra column, and e-BH, the Benjamini-Hochberg
procedure for e-values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ...model.plan import Schedule
from ...model.result import Verdict
from . import FloatArray
from .looks import nominal_shares, planned_looks
from .signed_rank import Walsh


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's step-down adjusted p values, in the order given."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted = [0.0] * len(p)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = running
    return tuple(adjusted)


def e_bh(e: Sequence[float], alpha: float) -> tuple[bool, ...]:
    """Return which hypotheses e-BH rejects: the k largest e values, for the largest k with e_(k) >= m /
    (alpha k).

    It controls the false discovery rate under any dependence, with e values taken at any stopping time.
    Source: Wang and Ramdas, False discovery rate control with e-values, 2022.
    """
    m = len(e)
    order = sorted(range(m), key=lambda i: -e[i])
    count = max((k for k, i in enumerate(order, start=1) if k * e[i] >= m / alpha), default=0)
    taken = set(order[:count])
    return tuple(i in taken for i in range(m))


class Tails(Protocol):
    """One-sided p values of the blocks up to a look: that the centre is at most theta, or at least theta."""

    def below(self, theta: float) -> float: ...
    def above(self, theta: float) -> float: ...


def smallest_alpha(
    d: FloatArray,
    *,
    schedule: Schedule,
    margin: float,
    verdict: Verdict,
    numbers: Sequence[int] | None = None,
    sample_at: Callable[[int], Tails | None] | None = None,
) -> float | None:
    """Return the p value of Holm's column: the smallest alpha at which d gives a material or equivalent
    verdict, at most 1; None before the first look and for an inconsistent cell.

    The result is the smallest p_n / share_n over the looks, for the verdict of the cell. For a cell without a
    verdict, it is the smallest of the results for all verdicts. It assumes that looks do not pass on what
    they leave unspent. The interval in the report uses this alpha, too, so it may give a verdict at a smaller
    alpha.

    d, numbers: see looks.look_and_carry.
    verdict: the verdict of the cell.
    sample_at: for blocks that ran on several nodes: returns the sample of the first n blocks, or None if a
        node has no block among them. If omitted, signed ranks of all blocks are used.
    """
    if verdict is Verdict.INCONSISTENT:
        return None
    delta = math.log1p(margin)
    # Smallest alpha at which the running lower end lies above +delta or -delta, or the upper end below it.
    above_plus = above_minus = below_minus = below_plus = math.inf
    looked = False
    planned = planned_looks(schedule, range(1, d.size + 1) if numbers is None else numbers)
    for look, share in zip(planned, nominal_shares(planned), strict=True):
        tails = Walsh(d[: look.n]) if sample_at is None else sample_at(look.n)
        if tails is None:
            continue
        looked = True
        above_plus = min(above_plus, 2 * tails.below(delta) / share)
        above_minus = min(above_minus, 2 * tails.below(-delta) / share)
        below_minus = min(below_minus, 2 * tails.above(-delta) / share)
        below_plus = min(below_plus, 2 * tails.above(delta) / share)
    if not looked:
        return None
    by_verdict = {
        Verdict.SLOWER: above_plus,
        Verdict.FASTER: below_minus,
        Verdict.EQUIVALENT: max(above_minus, below_plus),
    }
    return min(1.0, by_verdict.get(verdict, min(by_verdict.values())))
