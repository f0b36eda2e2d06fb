"""What a comparison over several nodes says beside its verdict: the other estimand, each node alone, whether
the nodes disagree, and the result without the nodes that the rule leaves out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr
from scipy.stats import rankdata

from ...model.design import Estimand
from ...model.node_results import CellNodes, NodeEstimate, NodeValue
from ...model.plan import Schedule
from ...model.result import Verdict
from ..decision import Decision, decide
from ..fold.comparisons import Paired, on_blocks
from ..intervals.looks import nominal_shares, planned_looks
from ..intervals.signed_rank import Walsh
from .centres import EXACT_FROM, centre_of
from .factor import Comparison, Nodes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PERMUTATIONS = 3999
"""Number of random assignments of blocks to nodes in the test of node effects."""
EXACT_UP_TO = 400
"""Largest number of blocks for that test; beyond it normal and chi-square approximations are used."""


def node_effect_p(d: FloatArray, strata: IntArray) -> float:
    """Return the p value of the hypothesis that all nodes have the same distribution of d.

    It is twice the smaller p value of two rank tests: that of Kruskal and Wallis, which finds many nodes that
    differ a little, and the largest standardised rank sum of a node, which finds one node that differs much.
    Up to 400 blocks, their null distributions are those over random assignments of the blocks to nodes, with
    a fixed seed. Their p values are exact: the assignment that was observed counts as one of them.
    """
    order = np.argsort(strata, kind="stable")
    _, first, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    ranks = rankdata(d)[order]
    ranks -= ranks.mean()
    n = int(d.size)
    if not bool(np.any(ranks)) or sizes.size < 2:
        return 1.0
    ranks /= math.sqrt(float(np.sum(ranks**2)) / (n - 1))
    observed = _statistics(ranks, first, sizes)
    if n > EXACT_UP_TO:
        whole, largest = (float(x) for x in observed)
        both = chdtrc(sizes.size - 1, whole), 2 * sizes.size * ndtr(-largest)
        return min(1.0, 2 * float(min(both)))
    drawn = _statistics(ranks[_assignments(n)], first, sizes)
    as_large = [1 + int(np.sum(x >= own - 1e-9)) for x, own in zip(drawn, observed, strict=True)]
    return min(1.0, 2 * min(as_large) / (PERMUTATIONS + 1))


def _statistics(ranks: FloatArray, first: IntArray, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the statistic of Kruskal and Wallis, and the largest standardised rank sum, along the last axis.

    ranks: with mean 0 and variance 1, ordered by node.
    first, sizes: where the ranks of each node begin, and their number.
    """
    n = ranks.shape[-1]
    squares = np.add.reduceat(ranks, first, axis=-1) ** 2 / sizes
    whole: FloatArray = np.sum(squares, axis=-1)
    largest: FloatArray = np.sqrt(np.max(squares * (n / (n - sizes)), axis=-1))
    return whole, largest


@lru_cache(maxsize=8)
def _assignments(n: int) -> NDArray[np.int16]:
    rng = np.random.default_rng(n)
    return rng.permuted(np.tile(np.arange(n, dtype=np.int16), (PERMUTATIONS, 1)), axis=1)


def disagree(
    d: FloatArray, numbers: Sequence[int], nodes: Nodes, *, schedule: Schedule, alpha: float
) -> bool:
    """Return whether the overhead differs between the nodes.

    The test is repeated at every look, each time at the look's share of alpha, so the probability that equal
    nodes are ever said to disagree is at most alpha.
    """
    strata = nodes.strata_of(numbers)
    planned = planned_looks(schedule, numbers)
    for look, share in reversed(list(zip(planned, nominal_shares(planned), strict=True))):
        own = strata[: look.n]
        if np.unique(own).size > 1 and node_effect_p(d[: look.n], own) <= alpha * share:
            return True
    return False


def qualified(
    decision: Decision, paired: Paired, nodes: Nodes, *, schedule: Schedule, alpha: float, margin: float
) -> tuple[Decision, CellNodes]:
    """Return the decision as it holds with several nodes, and whether the nodes disagree, without estimates.

    If the nodes disagree, a verdict about these nodes is kept only if the centre of each node alone leads to
    the same verdict. Otherwise it would hide the nodes on which it is wrong.
    """
    numbers = paired.judged_blocks.tolist()
    unequal = disagree(paired.judged, numbers, nodes, schedule=schedule, alpha=alpha)
    found = CellNodes(
        estimand=nodes.estimand, estimates={}, values=(), disagree=unequal, withheld=False, without={}
    )
    comparison = Comparison(paired.judged, numbers, nodes)
    own = comparison.by_stratum(len(numbers)) or []
    if nodes.estimand is Estimand.THESE:
        if unequal and decision.verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.EQUIVALENT):
            centres = [centre_of(values) for values in own]
            if any(_verdict_at(c, margin) is not decision.verdict for c in centres):
                why = "the nodes disagree, and not every node alone supports a verdict"
                withheld = replace(decision, verdict=Verdict.NONE, block=None, needed=None, reason=why)
                return withheld, replace(found, withheld=True)
        return decision, found
    if decision.verdict is not Verdict.NONE or len(numbers) < decision.least:
        return decision, found
    count = comparison.replicates
    if count == 1:
        why = "one node says nothing about other nodes: run rounds on at least 2, better 8"
    elif math.isinf(decision.carried.low):
        why = "there is no interval yet: not every node has run a round at a look"
    else:
        why = f"{count} nodes: the interval reaches across {100 * margin:.3g} %; more nodes narrow it"
    return replace(decision, reason=why, needed=None), found


def _verdict_at(theta: float, margin: float) -> Verdict:
    delta = math.log1p(margin)
    if theta > delta:
        return Verdict.SLOWER
    return Verdict.FASTER if theta < -delta else Verdict.EQUIVALENT


def with_estimates(
    found: CellNodes,
    paired: Paired,
    nodes: Nodes,
    *,
    schedule: Schedule,
    alpha: float,
    margin: float,
    min_blocks: int,
    left_out: Collection[str],
) -> CellNodes:
    """Add both estimands of a comparison, each node alone, and both estimands without some nodes.

    left_out: names of the nodes that the rule leaves out.
    """

    def both(of: Paired) -> dict[Estimand, NodeEstimate]:
        return {
            estimand: _estimate(
                of,
                nodes.of(estimand),
                schedule=schedule,
                alpha=alpha,
                margin=margin,
                min_blocks=min_blocks,
            )
            for estimand in Estimand
        }

    out = {at for at, name in enumerate(nodes.names) if name in left_out}
    rest = None
    if out:
        rest = on_blocks(paired, frozenset(b for b, k in nodes.stratum.items() if nodes.node[k] not in out))
    return replace(
        found,
        estimates=both(paired),
        values=_values(paired.d, paired.blocks.tolist(), nodes, alpha),
        without={} if rest is None else both(rest),
    )


def _estimate(
    paired: Paired, nodes: Nodes, *, schedule: Schedule, alpha: float, margin: float, min_blocks: int
) -> NodeEstimate:
    found = decide(paired, schedule, alpha=alpha, margin=margin, min_blocks=min_blocks, nodes=nodes)
    found, _ = qualified(found, paired, nodes, schedule=schedule, alpha=alpha, margin=margin)
    numbers = paired.judged_blocks.tolist()
    count = Comparison(paired.judged, numbers, nodes).replicates
    return NodeEstimate(
        nodes=count,
        n=len(numbers),
        overhead=share_of(found.carried.centre),
        low=share_of(found.carried.low),
        high=share_of(found.carried.high),
        verdict=found.verdict,
        reason=found.reason,
        approximate=nodes.estimand is Estimand.ALIKE and count < EXACT_FROM,
    )


def _values(d: FloatArray, numbers: Sequence[int], nodes: Nodes, alpha: float) -> tuple[NodeValue, ...]:
    strata = nodes.strata_of(numbers)
    out = []
    for k in np.unique(strata).tolist():
        walsh = Walsh(d[strata == k])
        low, high = walsh.interval(alpha)
        out.append(
            NodeValue(
                node=nodes.strata[k],
                n=walsh.n,
                overhead=share_of(walsh.centre()),
                low=share_of(low),
                high=share_of(high),
            )
        )
    return tuple(out)


def share_of(theta: float) -> float:
    """Return exp(theta) - 1, or infinity on overflow."""
    return math.expm1(theta) if theta < 709 else math.inf
