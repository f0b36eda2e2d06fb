"""Results of a comparison over several nodes in addition to its verdict: the other estimand, each node alone,
whether the nodes disagree, and the result without the nodes that behave unlike the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import scipy  # its modules are loaded on first use, so the first block need not wait for them
from numpy.typing import NDArray

from ...model.design import Estimand
from ...model.node_results import CellNodes, NodeEstimate, NodeValue
from ...model.result import Verdict
from ..decision import Criteria, Decision, decide
from ..fold.comparisons import Paired, on_blocks
from ..intervals import FloatArray, IntArray
from ..intervals.looks import nominal_shares, planned_looks
from ..intervals.signed_rank import Walsh
from ..verdict import judge, share_of
from .centres import EXACT_FROM, centre_of
from .factor import Nodes, StratifiedBlocks

PERMUTATIONS = 3999
"""Number of random assignments of blocks to nodes in the test of node effects."""
EXACT_UP_TO = 400
"""Largest number of blocks for which the test of node effects uses random assignments; beyond it normal and
chi-square approximations are used."""


def node_effect_p(d: FloatArray, strata: IntArray) -> float:
    """Return the p value of the hypothesis that all nodes have the same distribution of d.

    It is twice the smaller p value of two rank tests: that of Kruskal and Wallis, which finds many nodes that
    differ a little, and the largest standardised rank sum of a node, which finds one node that differs much.
    Up to 400 blocks, the null distributions are computed over random assignments of the blocks to nodes, with
    a fixed seed. The p values are exact, because the observed assignment counts as one of these.

    d: one value for each block.
    strata: the stratum of each block.
    """
    order = np.argsort(strata, kind="stable")
    _, first, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    ranks = _ranks(d)[order]
    n = int(d.size)
    if not bool(np.any(ranks)) or sizes.size < 2:
        return 1.0
    ranks /= math.sqrt(float(np.sum(ranks**2)) / (n - 1))
    observed = _statistics(ranks, first, sizes)
    if n > EXACT_UP_TO:
        whole, largest = (float(x) for x in observed)
        several = float(scipy.special.chdtrc(sizes.size - 1, whole))
        return min(1.0, 2 * min(several, 2 * sizes.size * NormalDist().cdf(-largest)))
    drawn = _statistics(ranks[_assignments(n)], first, sizes)
    as_large = [1 + int(np.sum(x >= own - 1e-9)) for x, own in zip(drawn, observed, strict=True)]
    return min(1.0, 2 * min(as_large) / (PERMUTATIONS + 1))


def _ranks(d: FloatArray) -> FloatArray:
    """Return the ranks of the values minus the mean rank. Equal values share the mean of their ranks."""
    _, place, counts = np.unique(d, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ranks -= ranks.mean()
    return ranks


def _statistics(ranks: FloatArray, first: IntArray, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the statistic of Kruskal and Wallis, and the largest standardised rank sum, along the last axis.

    ranks: with mean 0 and variance 1, ordered by node.
    first: for each node, the index of its first rank along the last axis.
    sizes: for each node, its number of ranks.
    """
    n = ranks.shape[-1]
    squares = np.add.reduceat(ranks, first, axis=-1) ** 2 / sizes
    whole: FloatArray = np.sum(squares, axis=-1)
    largest: FloatArray = np.sqrt(np.max(squares * (n / (n - sizes)), axis=-1))
    return whole, largest


@lru_cache(maxsize=16)  # more than there are looks up to EXACT_UP_TO
def _assignments(n: int) -> NDArray[np.int16]:
    rng = np.random.default_rng(n)
    return rng.permuted(np.tile(np.arange(n, dtype=np.int16), (PERMUTATIONS, 1)), axis=1)


def disagree(d: FloatArray, numbers: Sequence[int], nodes: Nodes, criteria: Criteria) -> bool:
    """Return whether the overhead differs between the nodes.

    The test is repeated at every look, each time at the look's share of node_alpha. So the probability that
    equal nodes are ever reported to disagree is at most node_alpha.

    node_alpha is not divided among the comparisons of a confirmatory study, for two reasons: a false finding
    of disagreement only withholds a verdict, and PERMUTATIONS random assignments give no p value that is
    small enough for such a division.
    """
    strata = nodes.strata_of(numbers)
    planned = planned_looks(criteria.schedule, numbers)
    for look, share in reversed(list(zip(planned, nominal_shares(planned), strict=True))):
        own = strata[: look.n]
        if np.unique(own).size > 1 and node_effect_p(d[: look.n], own) <= criteria.node_alpha * share:
            return True
    return False


def qualified(
    decision: Decision, paired: Paired, nodes: Nodes, criteria: Criteria
) -> tuple[Decision, CellNodes]:
    """Return the decision, from which a verdict may be withheld because the nodes disagree, and whether they
    disagree. The estimates of the second result are empty; with_estimates() adds them.

    If the nodes disagree, a verdict for Estimand.THESE is kept only if the centre of each node alone leads to
    the same verdict. Otherwise the verdict would hide the nodes on which it is wrong.
    """
    unequal = disagree(paired.judged, paired.judged_blocks.tolist(), nodes, criteria)
    decision, withheld = _limited(decision, paired, nodes, criteria.margin, unequal=unequal)
    return decision, CellNodes(
        estimand=nodes.estimand, estimates={}, values=(), disagree=unequal, withheld=withheld, without={}
    )


def _limited(
    decision: Decision, paired: Paired, nodes: Nodes, margin: float, *, unequal: bool
) -> tuple[Decision, bool]:
    """Return the decision, and whether its verdict was withheld because the nodes disagree.

    unequal: whether the nodes disagree.
    """
    numbers = paired.judged_blocks.tolist()
    comparison = StratifiedBlocks(paired.judged, numbers, nodes)
    if nodes.estimand is Estimand.THESE:
        if not unequal or decision.verdict in (Verdict.NONE, Verdict.INCONSISTENT):
            return decision, False
        own = comparison.by_stratum(len(numbers)) or []
        centres = [centre_of(values) for values in own]
        if all(judge(c, c, margin=margin) is decision.verdict for c in centres):
            return decision, False
        why = "the nodes disagree, and not every node alone supports a verdict"
        return replace(decision, verdict=Verdict.NONE, block=None, needed=None, reason=why), True
    if decision.verdict is not Verdict.NONE or not decision.carried.looks or paired.failed:
        return decision, False
    count = comparison.replicates
    if count == 1:
        why = "one node gives no information about other nodes: run rounds on at least 2, better 8"
    elif math.isinf(decision.carried.low):
        why = "there is no interval yet: it needs a round on every node"
    else:
        why = f"{count} nodes: the interval reaches across {100 * margin:.3g} %; more nodes narrow it"
    return replace(decision, reason=why, needed=None), False


def with_estimates(
    found: CellNodes, paired: Paired, nodes: Nodes, criteria: Criteria, left_out: Collection[str]
) -> CellNodes:
    """Add both estimands of a comparison, each node alone, and both estimands without some nodes.

    left_out: names of the nodes to leave out; see unlike.left_out_nodes().
    """
    out = {at for at, name in enumerate(nodes.names) if name in left_out}
    rest = None
    if out:
        rest = on_blocks(paired, frozenset(b for b, k in nodes.stratum.items() if nodes.node[k] not in out))
    return replace(
        found,
        estimates=_estimates(paired, nodes, criteria, unequal=found.disagree),
        values=_values(paired.d, paired.blocks.tolist(), nodes, criteria.alpha),
        without={}
        if rest is None
        else _estimates(
            rest,
            nodes,
            criteria,
            unequal=disagree(rest.judged, rest.judged_blocks.tolist(), nodes, criteria),
        ),
    )


def _estimates(
    paired: Paired, nodes: Nodes, criteria: Criteria, *, unequal: bool
) -> dict[Estimand, NodeEstimate]:
    numbers = paired.judged_blocks.tolist()
    count = StratifiedBlocks(paired.judged, numbers, nodes).replicates
    out = {}
    for estimand in Estimand:
        of = nodes.of(estimand)
        decision = decide(paired, criteria, nodes=of)
        decision, _ = _limited(decision, paired, of, criteria.margin, unequal=unequal)
        out[estimand] = NodeEstimate(
            nodes=count,
            n=len(numbers),
            overhead=share_of(decision.carried.centre),
            low=share_of(decision.carried.low),
            high=share_of(decision.carried.high),
            verdict=decision.verdict,
            reason=decision.reason,
            approximate=estimand is Estimand.ALIKE and count < EXACT_FROM,
        )
    return out


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
