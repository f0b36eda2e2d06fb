"""Which node runs which block: equally many on each node, in an order drawn from the seed.

The blocks are dealt in turns of as many blocks as there are nodes. In each turn every node runs one block, in
an order of its own, so a drift in time meets all nodes alike. Each turn is drawn independently of the turns
before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.plan import GROWING, GrowingLooks, nodes_of_block
from ..model.study import Study


def node_of(block: int, attempt: int, nodes: Sequence[str], seed: int, usable: Collection[str]) -> str:
    """Return the node that runs an attempt at a block; '' if no node can be used.

    The first attempt goes to the block's place in its turn. A further attempt, and the block of a node that
    cannot be used, go to the next usable node of the turn.

    block: its number, from 1.
    attempt: counts from 1.
    nodes: all nodes of the run, distinct names.
    usable: those of them that can run blocks now.
    """
    if not nodes:
        return ""
    order = nodes_of_block(block, nodes, seed)
    begin = (attempt - 1) % len(order)
    return next((node for node in order[begin:] + order[:begin] if node in usable), "")


def looks_over_sets(study: Study, machines: int) -> GrowingLooks:
    """Return when a run is analysed whose placements are over machines: if the machines of each block are
    drawn, not before every machine has been in a set. See model.plan.nodes_of_block().

    machines: number of machines of the run.
    """
    if study.design.nodes is None or not study.design.nodes.draw:
        return GROWING
    smallest = min(arm.placement.nodes for arm in study.arms())
    return GrowingLooks(first=machines - smallest + 1)
