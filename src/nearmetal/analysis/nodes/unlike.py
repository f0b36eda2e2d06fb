"""Names nodes that behave unlike the others, from the baseline alone. The rule is fixed before the data.

A node is *slow* if its baseline takes longer than that of the other nodes' blocks by more than the margin. A
node is *unsteady* if its baseline differs from itself (A/A) more than twice as much as in the other nodes'
blocks. Both need two things: the lower end of an exact rank-sum interval of the shift lies beyond the bound,
and so does the difference from the centre of more than half of the other nodes. The second condition keeps a
node that is an exception among few from making the others look like exceptions. A slow node must also stand
out of the spread of the other nodes (`spread`), in this metric or in all metrics together: sound nodes may
differ by more than the margin.

Slowness has nine tenths of alpha and unsteadiness one tenth, each divided by the number of metrics. The
rank-sum interval also divides it by the number of nodes. This interval holds for rounds of any shape. The
comparison with the spread assumes normal centres, so it alone would not allow for which of the nodes looks
slowest: centres of few rounds with a long tail are not normal. Any of sound nodes that are alike, or a node
within the margin, is therefore named with a probability of at most alpha for one reading of the results. So
is any of sound nodes that differ, if their centres are normal. The environments have no part in it, so
leaving out a named node does not prefer any verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from ...model.node_results import NodeEvidence, Unlike
from ...model.result import Interval
from ...model.study import Better
from ..fold.attempts import Side
from ..fold.comparisons import Folded
from ..fold.pieces import Measured
from ..fold.slices import RowName
from ..intervals import FloatArray, IntArray
from ..intervals.rank_sum import critical
from .centres import centre_of
from .factor import Nodes
from .spread import over_metrics, standing_out

LEAST_NODES = 3
"""Least number of nodes: of two that differ, either may be the exception."""
UNSTEADY = 2.0
"""Ratio of A/A differences above which a node is unsteady."""
SHARES = {Unlike.SLOW: 0.9, Unlike.UNSTEADY: 0.1}
"""Share of alpha of each kind of evidence."""
MOST_BLOCKS = 1000
"""Largest number of blocks on either side of a comparison; more are thinned evenly."""
EXACT_PAIRS = 3000
"""Largest number of pairs of blocks with the exact null distribution; beyond it a normal approximation."""


Rows = Mapping[tuple[str, RowName], tuple[Measured, Measured]]
"""Both runs of each baseline that runs twice, by arm and row."""


def unlike_nodes(folded: Folded, nodes: Nodes, *, alpha: float, margin: float) -> tuple[NodeEvidence, ...]:
    """Return the evidence against nodes, ordered by node; empty for fewer than three nodes."""
    return unlike_measured(baseline_rows(folded.measured), nodes, alpha=alpha, margin=margin)


def unlike_measured(rows: Rows, nodes: Nodes, *, alpha: float, margin: float) -> tuple[NodeEvidence, ...]:
    """Return the same from the measurements of the baselines."""
    if len(nodes.names) < LEAST_NODES:
        return ()
    family = len(nodes.names) * len(rows)
    bounds = {Unlike.SLOW: math.log1p(margin), Unlike.UNSTEADY: math.log(UNSTEADY)}
    found: list[NodeEvidence] = []
    speeds = {name: _values(first, second, nodes) for name, (first, second) in rows.items()}
    for unlike, bound in bounds.items():
        every = {name: values[unlike] for name, values in speeds.items()}
        level = alpha * SHARES[unlike]
        shifts = {
            name: _exceptions(x, owners, level=level / family, bound=bound)
            for name, (x, owners) in every.items()
        }
        if unlike is Unlike.SLOW and any(shifts.values()):
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
                        ratio=Interval(
                            centre=ratio_of(shift.centre), low=ratio_of(shift.low), high=ratio_of(shift.high)
                        ),
                    )
                )
    return tuple(sorted(found, key=lambda e: (nodes.names.index(e.node), e.unlike is not Unlike.SLOW)))


def _values(first: Measured, second: Measured, nodes: Nodes) -> dict[Unlike, tuple[FloatArray, IntArray]]:
    """Return what is compared between the nodes, by kind of evidence: a value for each block, and its
    node."""
    blocks, slow, differences = by_block(first, second)
    owners = nodes.nodes_of(blocks.tolist())
    return {Unlike.SLOW: (slow, owners), Unlike.UNSTEADY: (_log_sizes(differences), owners)}


def by_block(first: Measured, second: Measured) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the blocks in which a baseline ran twice, and for each of them how slow both runs are together,
    and by how much they differ, as logarithms.

    first, second: both runs of the baseline.
    """
    blocks, i, j = np.intersect1d(first.blocks, second.blocks, assume_unique=True, return_indices=True)
    a1, a2 = np.log(first.middles[i]), np.log(second.middles[j])
    sign = 1.0 if first.better is Better.LOWER else -1.0
    return blocks, sign * 0.5 * (a1 + a2), a2 - a1


def ratio_of(shift: float) -> float:
    """Return exp(shift), or infinity on overflow."""
    return math.exp(shift) if shift < 709 else math.inf


def left_out_nodes(evidence: tuple[NodeEvidence, ...], nodes: Nodes) -> tuple[str, ...]:
    """Return the names of the nodes that the rule leaves out: all that are named, if these are fewer than
    half of the nodes."""
    named = tuple(dict.fromkeys(e.node for e in evidence))
    return named if 2 * len(named) < len(nodes.names) else ()


def baseline_rows(measured: Mapping[tuple[Side, RowName], Measured]) -> Rows:
    """Return what was measured of each baseline that ran twice, by arm and row."""
    out = {}
    for ((arm, aa), row), second in measured.items():
        first = measured.get(((arm, False), row)) if aa else None
        if first is not None and (first.unit, first.better) == (second.unit, second.better):
            out[arm, row] = (first, second)
    return out


def _log_sizes(aa: FloatArray) -> FloatArray:
    """Return the logarithms of the A/A differences; a difference of zero counts as the smallest other one."""
    sizes = np.abs(aa)
    positive = sizes[sizes > 0]
    found: FloatArray = np.log(np.maximum(sizes, positive.min() if positive.size else 1.0))
    return found


def _exceptions(x: FloatArray, owners: IntArray, *, level: float, bound: float) -> dict[int, Interval]:
    """Return the shift of each node that exceeds the bound.

    level: error probability of the lower end.
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
    """Return, for each row, the nodes that stand out of the spread of the others: in this row, or in all rows
    together. Each of the two has half of the level if there are several rows.

    every: by row, a value for each block, and its node.
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
    """Return the shift of `own` against `others`; each end misses it with probability at most `level`."""
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
