"""The verdict of one comparison, its reason, and the block after which it was first reached."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.plan import Schedule
from ..model.result import Look, Verdict
from .fold.comparisons import Paired
from .fold.counts import FloatArray
from .intervals.looks import Carried, least_blocks, look_and_carry
from .nodes.factor import Nodes, carried_over_nodes
from .verdict import MOST_FAILED, Failures, blocks_needed, judge, judge_failures, reason


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The result of one look at a comparison.

    reason: why there is this verdict or none, in one clause.
    needed: number of further blocks until a verdict; None if there is a verdict already, or if the number
        cannot be estimated.
    block: number of the block after which the verdict was first reached; None if there is no verdict.
    carried: the primary interval, carried over the looks at all judged blocks.
    least: least number of blocks for a verdict.
    """

    verdict: Verdict
    reason: str
    needed: int | None
    block: int | None
    carried: Carried
    least: int


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """How the blocks of a comparison are judged.

    schedule: numbers of blocks at which the comparison is analysed.
    alpha: error probability of the comparison.
    node_alpha: error probability of the finding that the nodes disagree.
    margin: largest overhead that is not material.
    min_blocks: least number of blocks for a verdict, as the study requests it.
    """

    schedule: Schedule
    alpha: float
    node_alpha: float
    margin: float
    min_blocks: int


def decide(paired: Paired, criteria: Criteria, *, nodes: Nodes | None = None) -> Decision:
    """Judge the blocks of a comparison.

    nodes: the nodes of the blocks, if there is more than one.
    """
    numbers = paired.judged_blocks.tolist()
    margin = criteria.margin
    carried = _carried(paired.judged, numbers, criteria, nodes)
    least, n = least_blocks(criteria.schedule, criteria.min_blocks), len(numbers)
    own = judge(carried.low, carried.high, margin=margin) if n >= least else Verdict.NONE
    needed = None
    if not paired.failed:
        if own is Verdict.NONE:
            needed = blocks_needed(carried, n=n, margin=margin, min_blocks=least)
        return Decision(
            verdict=own,
            reason=reason(own, carried, n=n, margin=margin, min_blocks=least, needed=needed),
            needed=needed,
            block=_first_look(carried.looks, own, numbers, margin, least),
            carried=carried,
            least=least,
        )
    without = _carried(paired.d, paired.blocks.tolist(), criteria, nodes)
    history = _History(paired, carried.looks, without.looks)
    failures = history.failures(history.blocks[-1])
    verdict = judge_failures(own, failures, margin=margin)
    few = failures.failed <= MOST_FAILED * failures.blocks
    if own is Verdict.NONE and few:
        needed = blocks_needed(carried, n=n, margin=margin, min_blocks=least)
    if verdict is own:
        why = reason(verdict, carried, n=n, margin=margin, min_blocks=least, needed=needed)
    elif own is Verdict.EQUIVALENT:
        why = f"equivalent needs at most {100 * MOST_FAILED:.3g} % of failed rounds"
    else:
        why = "the rounds without failures give no verdict by themselves"
    return Decision(
        verdict=verdict,
        reason=f"{failures.words}; {why}",
        needed=needed,
        block=history.first(verdict, margin=margin, least=least),
        carried=carried,
        least=least,
    )


def _carried(d: FloatArray, numbers: Sequence[int], criteria: Criteria, nodes: Nodes | None) -> Carried:
    schedule, alpha = criteria.schedule, criteria.alpha
    if nodes is not None:
        return carried_over_nodes(d, numbers, nodes, schedule=schedule, alpha=alpha)
    return look_and_carry(d, schedule=schedule, alpha=alpha, numbers=numbers)


def _first_look(
    looks: Sequence[Look], verdict: Verdict, numbers: Sequence[int], margin: float, least: int
) -> int | None:
    """Return the block after which a comparison without failures first had its verdict.

    A verdict changes only at a look, or when the least number of blocks is reached.
    """
    if verdict is Verdict.NONE:
        return None
    for look in looks:
        n = max(look.n, least)
        if n <= len(numbers) and judge(look.low, look.high, margin=margin) is verdict:
            return numbers[n - 1]
    return None


class _History:
    """The state of a comparison with failures after each of its blocks."""

    def __init__(self, paired: Paired, looks: Sequence[Look], looks_without_failures: Sequence[Look]) -> None:
        """Prepare the history of one comparison.

        looks: running intervals over all judged blocks.
        looks_without_failures: running intervals over the blocks in which neither side failed.
        """
        self._judged: list[int] = paired.judged_blocks.tolist()
        self._whole: list[int] = paired.blocks.tolist()
        self._env, self._base = sorted(paired.env_failed), sorted(paired.base_failed)
        self._failed = sorted(paired.failed)
        self.blocks: list[int] = sorted({*self._judged, *self._failed})
        self._looks, self._looks_without_failures = looks, looks_without_failures

    def failures(self, block: int) -> Failures:
        return Failures(
            env=bisect_right(self._env, block),
            base=bisect_right(self._base, block),
            failed=bisect_right(self._failed, block),
            blocks=bisect_right(self.blocks, block),
            without=_at(self._looks_without_failures, bisect_right(self._whole, block)),
        )

    def first(self, verdict: Verdict, *, margin: float, least: int) -> int | None:
        """Return the block after which the comparison first had this verdict; None if no block did."""
        if verdict is Verdict.NONE:
            return None
        for block in self.blocks:
            n = bisect_right(self._judged, block)
            if n < least or judge(*_at(self._looks, n), margin=margin) is not verdict:
                continue
            if judge_failures(verdict, self.failures(block), margin=margin) is verdict:
                return block
        return None


def _at(looks: Sequence[Look], n: int) -> tuple[float, float]:
    """Return the ends of the running interval after n blocks; infinite before the first look."""
    seen = bisect_right(looks, n, key=lambda look: look.n)
    return (looks[seen - 1].low, looks[seen - 1].high) if seen else (-math.inf, math.inf)
