"""Names nodes that behave unlike the others, from the baseline alone. The rule is fixed before the data.

A node is *slow* if the baseline takes longer on it than in the blocks of the other nodes, by more than the
margin. A node is *unsteady* if both runs of the baseline (A/A) differ on it more than twice as much as in the
blocks of the other nodes. Both findings have two conditions. First, the lower end of an exact rank-sum
interval of the shift lies beyond the bound. Second, the node's centre exceeds the centres of more than half
of the other nodes by more than the bound; otherwise one exception among few nodes would make the others look
like exceptions. A slow node must also stand out from the spread of the other nodes (`spread`), in this metric
or in all metrics together, because sound nodes may differ by more than the margin.

Slowness has nine tenths of alpha and unsteadiness one tenth, each divided by the number of metrics. For the
rank-sum interval it is also divided by the number of nodes. For one reading of the results:

- If the nodes are alike, or differ by less than the margin, any of them is named with a probability of at
  most alpha. The rank-sum interval ensures this, whatever the distribution of the rounds is.
- If sound nodes differ by more than the margin, any of them is named with a probability of at most alpha,
  provided that their centres are normal, as the comparison with the spread assumes. That comparison alone
  would not be enough: centres of a few rounds with a long tail are not normal.

The rule does not use the environments, so leaving out a named node does not prefer any verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from ...model.node_results import NodeDeviation, NodeEvidence
from ...model.result import Interval
from ...model.study import Better
from ..fold.attempts import Side
from ..fold.columns import RowName
from ..fold.pieces import Measured
from ..intervals import FloatArray, IntArray
from ..intervals.rank_sum import critical
from .centres import centre_of
from .factor import Nodes
from .spread import over_metrics, standing_out

LEAST_NODES = 3
"""Least number of nodes: of two that differ, either may be the exception."""
UNSTEADY = 2.0
"""Ratio of A/A differences above which a node is unsteady."""
SHARES = {NodeDeviation.SLOW: 0.9, NodeDeviation.UNSTEADY: 0.1}
"""Share of alpha for each kind of evidence."""
MOST_BLOCKS = 1000
"""Largest number of blocks on either side of a comparison; more are thinned evenly."""
EXACT_PAIRS = 3000
"""Largest number of pairs of blocks for which the exact null distribution is used; beyond it a normal
approximation."""


Rows = Mapping[tuple[str, RowName], tuple[Measured, Measured]]
"""Both runs of each baseline that runs twice, by (arm, row)."""


def unlike_nodes(rows: Rows, nodes: Nodes, *, alpha: float, margin: float) -> tuple[NodeEvidence, ...]:
    """Return the evidence against nodes, ordered by node; empty for fewer than three nodes."""
    if len(nodes.names) < LEAST_NODES:
        return ()
    family = len(nodes.names) * len(rows)
    bounds = {NodeDeviation.SLOW: math.log1p(margin), NodeDeviation.UNSTEADY: math.log(UNSTEADY)}
    found: list[NodeEvidence] = []
    speeds = {name: _values(first, second, nodes) for name, (first, second) in rows.items()}
    for unlike, bound in bounds.items():
        every = {name: values[unlike] for name, values in speeds.items()}
        level = alpha * SHARES[unlike]
        shifts = {
            name: _exceptions(x, owners, level=level / family, bound=bound)
            for name, (x, owners) in every.items()
        }
        if unlike is NodeDeviation.SLOW and any(shifts.values()):
            out = _beyond_spread(every, level)
            shifts = {name: {k: s for k, s in own.items() if k in out[name]} for name, own in shifts.items()}
        for (arm, row), own in shifts.items():
            _, owners = every[arm, row]
            for at, shift in own.items():
                found.append(
                    NodeEvidence(
                        node=nodes.names[at],
                        unlike=unlike,
                        baseline=arm,
                        workload=row[0],
                        metric=row[1],
                        others=int(np.unique(owners).size) - 1,
                        n=int(np.sum(owners == at)),
                        ratio=ratio_of(shift),
                    )
                )
    return tuple(sorted(found, key=lambda e: (nodes.names.index(e.node), e.unlike is not NodeDeviation.SLOW)))


def _values(
    first: Measured, second: Measured, nodes: Nodes
) -> dict[NodeDeviation, tuple[FloatArray, IntArray]]:
    """Return the values that are compared between the nodes, by kind of evidence: a logarithm for each block,
    and the node of each block, as an index."""
    blocks, slow, differences = by_block(first, second)
    owners = nodes.nodes_of(blocks.tolist())
    return {NodeDeviation.SLOW: (slow, owners), NodeDeviation.UNSTEADY: (_log_sizes(differences), owners)}


def by_block(first: Measured, second: Measured) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return three arrays over the blocks in which a baseline ran twice: the numbers of the blocks, the mean
    logarithm of both runs (negated for rates, so that slower is larger), and the logarithm of the ratio of
    the second run to the first.

    first, second: both runs of the baseline.
    """
    blocks, i, j = np.intersect1d(first.blocks, second.blocks, assume_unique=True, return_indices=True)
    a1, a2 = np.log(first.middles[i]), np.log(second.middles[j])
    sign = 1.0 if first.better is Better.LOWER else -1.0
    return blocks, sign * 0.5 * (a1 + a2), a2 - a1


def ratio_of(shift: Interval) -> Interval:
    """Return the shift of a logarithm as a ratio; an end is infinite on overflow."""
    ends = (shift.centre, shift.low, shift.high)
    centre, low, high = (math.exp(x) if x < 709 else math.inf for x in ends)
    return Interval(centre=centre, low=low, high=high)


def left_out_nodes(evidence: tuple[NodeEvidence, ...], nodes: Nodes) -> tuple[str, ...]:
    """Return the names of the nodes to leave out of further estimates: all nodes with evidence if these are
    fewer than half of the nodes, otherwise none."""
    named = tuple(dict.fromkeys(e.node for e in evidence))
    return named if 2 * len(named) < len(nodes.names) else ()


def baseline_rows(measured: Mapping[tuple[Side, RowName], Measured]) -> Rows:
    """Return the measurements of both runs of each baseline that ran twice, by (arm, row)."""
    out = {}
    for ((arm, aa), row), second in measured.items():
        first = measured.get(((arm, False), row)) if aa else None
        if first is not None and (first.unit, first.better) == (second.unit, second.better):
            out[arm, row] = (first, second)
    return out


def _log_sizes(aa: FloatArray) -> FloatArray:
    """Return the logarithms of the magnitudes of the A/A differences. A difference of zero counts as the
    smallest other one."""
    sizes = np.abs(aa)
    positive = sizes[sizes > 0]
    found: FloatArray = np.log(np.maximum(sizes, positive.min() if positive.size else 1.0))
    return found


def _exceptions(x: FloatArray, owners: IntArray, *, level: float, bound: float) -> dict[int, Interval]:
    """Return the shift against the other nodes of each node that exceeds the bound, by node.

    x: one logarithm for each block.
    owners: the node of each block.
    level: error probability of the lower end of a shift.
    """
    present = np.unique(owners).tolist()
    if len(present) < LEAST_NODES:
        return {}
    centres = {k: float(np.median(x[owners == k])) for k in present}
    out: dict[int, Interval] = {}
    for k in present:
        beyond = sum(centres[k] - centre > bound for other, centre in centres.items() if other != k)
        if 2 * beyond <= len(present) - 1:
            continue
        shift = shift_of(x[owners != k], x[owners == k], level)
        if shift.low > bound:
            out[k] = shift
    return out


def _beyond_spread(
    every: Mapping[tuple[str, RowName], tuple[FloatArray, IntArray]], level: float
) -> dict[tuple[str, RowName], frozenset[int]]:
    """Return, for each row, the nodes that stand out from the spread of the others: in this row, or in all
    rows together. With several rows, each of these two tests has half of the level.

    every: by row, a value for each block, and the node of each block.
    """
    centres = {name: _centres(x, owners) for name, (x, owners) in every.items()}
    if len(centres) == 1:
        return {name: standing_out(own, level) for name, own in centres.items()}
    together = standing_out(over_metrics(tuple(centres.values())), level / 2)
    each = level / 2 / len(centres)
    return {name: together | standing_out(own, each) for name, own in centres.items()}


def _centres(x: FloatArray, owners: IntArray) -> dict[int, float]:
    """Return the centre of each node that has a block."""
    return {k: centre_of(_thinned(x[owners == k])) for k in np.unique(owners).tolist()}


def _thinned(values: FloatArray) -> FloatArray:
    return values[:: -(-values.size // MOST_BLOCKS)]


def shift_of(others: FloatArray, own: FloatArray, level: float) -> Interval:
    """Return the rank-sum interval of the shift from `others` to `own`.

    others, own: values of the blocks of the other nodes and of one node. At most about MOST_BLOCKS of each
        are used, evenly spaced.
    level: the largest probability with which the shift lies beyond either end of the interval.

    The centre is the median difference. The interval has infinite ends if there are too few values.
    """
    own, others = _thinned(own), _thinned(others)
    differences = np.sort((own[:, None] - others[None, :]).ravel())
    centre = float(np.median(differences))
    k = _critical(int(min(own.size, others.size)), int(max(own.size, others.size)), level)
    if k < 0:
        return Interval.unbounded(centre)
    return Interval(centre=centre, low=float(differences[k]), high=float(differences[-1 - k]))


@lru_cache(maxsize=256)
def _critical(m: int, n: int, p: float) -> int:
    if m * n <= EXACT_PAIRS:
        return critical(m, n, p)
    z = -NormalDist().inv_cdf(p)
    return max(-1, math.floor(m * n / 2 - z * math.sqrt(m * n * (m + n + 1) / 12) - 1.5))
