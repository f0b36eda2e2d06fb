"""Assigns blocks to nodes: equally many to each node, in an order drawn from the seed.

A turn consists of as many blocks as there are nodes. In each turn every node runs one block, in a random
order that is drawn independently for each turn. A drift in time therefore affects all nodes alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.plan import GROWING, GrowingLooks, nodes_of_block
from ..model.study import Study


def node_of(block: int, attempt: int, nodes: Sequence[str], seed: int, usable: Collection[str]) -> str:
    """Return the node that runs an attempt at a block; '' if no node can be used.

    The first attempt at a block runs on the node that is drawn for the block. Each further attempt runs on
    the node that follows in the order of the turn. A node that cannot be used is skipped.

    block: number of the block, from 1.
    attempt: counts from 1.
    nodes: distinct names of all nodes of the run.
    usable: names of the nodes that can run blocks now.
    """
    if not nodes:
        return ""
    order = nodes_of_block(block, nodes, seed)
    begin = (attempt - 1) % len(order)
    return next((node for node in order[begin:] + order[:begin] if node in usable), "")


def looks_over_sets(study: Study, machines: int) -> GrowingLooks:
    """Return the looks of a run. If the machines of each block are drawn (model.plan.nodes_of_block()), there
    is no look before every machine has been in a set.

    machines: number of machines of the run.
    """
    if study.design.nodes is None or not study.design.nodes.draw:
        return GROWING
    smallest = min(arm.placement.nodes for arm in study.arms())
    return GrowingLooks(first=machines - smallest + 1)
