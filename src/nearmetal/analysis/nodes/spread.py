"""Nodes that lie further from the others than the spread of the others explains.

Sound nodes differ among each other, by an amount that is not known beforehand. If their centres are normal,
the distance of the largest of n centres from the mean of the others, in their standard deviations, follows a
known distribution: Student's t with n - 2 degrees of freedom, for the largest of n (Grubbs). No assumption
about the size of the spread is needed.

Several exceptions hide each other, because each makes the spread of the others look larger. So the test is
done with the largest j - 1 centres removed, for each j below half of the nodes, and each j has a share of the
level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import scipy  # its modules are loaded on first use, so the first block need not wait for them

from ..intervals import FloatArray

NEXT_SHARE = 0.1
"""Ratio of the share of the level for j + 1 exceptions to the share for j exceptions."""


def standing_out(centres: Mapping[int, float], level: float) -> frozenset[int]:
    """Return the nodes whose centres are too large for the spread of the others; empty for fewer than three.

    centres: centre by node, finite.
    level: probability that any node is returned if all centres come from one normal distribution.
    """
    nodes = sorted(centres, key=lambda node: centres[node])
    ordered = np.array([centres[node] for node in nodes])
    most = (len(nodes) - 1) // 2
    shares = NEXT_SHARE ** np.arange(most)
    found = 0
    for j, share in enumerate((shares / shares.sum()).tolist(), start=1):
        if largest_p(ordered[: ordered.size - j + 1]) <= level * share:
            found = j
    return frozenset(nodes[len(nodes) - found :])


def over_metrics(centres: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean centre of each node over metrics, in standard deviations between the nodes.

    A node that is slow in every metric stands out in this mean even if it stands out in no single metric. A
    metric counts as 0 if a node is missing in it, or if all nodes have the same centre.

    centres: for each metric, the centre by node.
    """
    nodes = {node for own in centres for node in own}
    found = dict.fromkeys(sorted(nodes), 0.0)
    for own in centres:
        values = np.array([own.get(node, math.nan) for node in found])
        spread = float(np.std(values, ddof=1)) if values.size > 1 else 0.0
        if spread > 0:  # not nan
            for node, value in zip(found, ((values - values.mean()) / spread).tolist(), strict=True):
                found[node] += value / len(centres)
    return found


def largest_p(ordered: FloatArray) -> float:
    """Return the p value of the hypothesis that the largest centre belongs to the normal distribution of the
    others.

    ordered: at least three centres, ascending.
    """
    others, n = ordered[:-1], ordered.size
    distance = float(ordered[-1] - others.mean())
    error = float(others.std(ddof=1)) * math.sqrt(1 + 1 / (n - 1))
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return min(1.0, n * float(scipy.special.stdtr(n - 2, -distance / error)))
