"""Names slow machines, and slow links between them, from the sets of machines on which blocks ran.

A placement over several machines is as slow as the slowest of them, so a single block does not show which one
is slow. The sets are drawn at random (model.plan.nodes_of_block), so blocks with and without a machine can be
compared. A machine is *slow* if the baseline takes longer in blocks with it than in blocks without it, by
more than the margin. A link is *slow* if the baseline takes longer in blocks with both of its machines than
in blocks with either one alone, by more than the margin. In each case the lower end of an exact rank-sum
interval must lie beyond the margin.

Machines and links have half of alpha each, divided by their number and the number of metrics. If all machines
and links are equally fast, the probability that any of them is named in one reading of the results is
therefore at most alpha."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ...model.node_results import SetEvidence
from ...model.plan import nodes_of_block
from .outliers import Rows, by_block, ratio_of, shift_of

SHARE = 0.5
"""Share of alpha for all machines, and share for all links."""

Mask = NDArray[np.bool_]


def unlike_sets(
    rows: Rows, machines: Sequence[str], placed: Mapping[str, int], *, seed: int, alpha: float, margin: float
) -> tuple[SetEvidence, ...]:
    """Return the evidence against machines and links; empty if all placements use all machines.

    rows: see unlike.baseline_rows().
    machines: names of the machines from which the sets are drawn; () if no sets are drawn.
    placed: number of machines of each arm, by name of the arm.
    seed: seed of the study, by which the sets were drawn.
    """
    found: list[SetEvidence] = []
    drawn = {name: pair for name, pair in rows.items() if 0 < placed[name[0]] < len(machines)}
    for (arm, (workload, metric)), (first, second) in drawn.items():
        blocks, slow, _ = by_block(first, second)
        sets = [nodes_of_block(block, machines, seed)[: placed[arm]] for block in blocks.tolist()]
        for names, family, own, others in _comparisons(machines, sets, links=placed[arm] > 1):
            if not own.any() or not all(other.any() for other in others):
                continue
            level = alpha * SHARE / (family * len(drawn))
            shifts = [shift_of(slow[other], slow[own], level) for other in others]
            least = min(shifts, key=lambda shift: shift.low)
            if least.low > math.log1p(margin):
                found.append(
                    SetEvidence(
                        machines=names,
                        baseline=arm,
                        workload=workload,
                        metric=metric,
                        n=int(np.sum(own)),
                        others=int(np.sum(np.any(others, axis=0))),
                        ratio=ratio_of(least),
                    )
                )
    return tuple(sorted(found, key=lambda e: (len(e.machines), e.machines)))


def _comparisons(
    machines: Sequence[str], sets: Sequence[Sequence[str]], *, links: bool
) -> Iterator[tuple[tuple[str, ...], int, Mask, tuple[Mask, ...]]]:
    """Yield a comparison for each machine and each link.

    Its elements are the name of the machine, or the names of both ends of the link; the number of machines or
    of links; the mask of the blocks with it; the masks of the groups of blocks with which these are compared.

    sets: machines of each block.
    links: whether to compare links, too.
    """
    has = {name: np.array([name in used for used in sets], dtype=np.bool_) for name in machines}
    for name in machines:
        yield (name,), len(machines), has[name], (~has[name],)
    pairs = list(combinations(machines, 2)) if links else []
    for a, b in pairs:
        yield (a, b), len(pairs), has[a] & has[b], (has[a] & ~has[b], has[b] & ~has[a])
