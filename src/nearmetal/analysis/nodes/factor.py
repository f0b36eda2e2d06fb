"""The node on which each block ran, and the intervals of both estimands, carried between looks.

A look uses the blocks up to a number that is fixed beforehand, whatever nodes they ran on. It spends its
share of alpha as in a run on one node (intervals.looks). The interval of a look at which a node has no block
yet is not carried on, because it is not about all nodes. Its level counts as spent nevertheless: the interval
was shown at the time, and a verdict could have ended the run. Which looks these are depends on the nodes of
the blocks, not on measured values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ...model.design import Estimand
from ...model.looks import next_looks
from ...model.plan import NodeState, Schedule
from ..intervals import FloatArray, IntArray
from ..intervals.looks import (
    FORESEEN_LOOKS,
    Carried,
    PlannedLook,
    carry,
    check_sample,
    planned_looks,
    spent_levels,
)
from ..intervals.multiplicity import Tails
from ..intervals.signed_rank import attained
from ..intervals.stratified import StratifiedSample, node_ranks
from .centres import attained_level, centre_of, sample_of_nodes


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of a run. A stratum is a node in one state: a node that ran with two kernels is two strata.

    estimand: the nodes for which verdicts hold.
    stratum: by block number, the index of its stratum.
    strata: names of the strata: the name of the node, with kernel and CPU model if the node ran in several
        states.
    node: for each stratum, the index of its node in `names`.
    names: names of the nodes, sorted, node2 before node10.
    states: kernel and CPU model as text, by name of the node; empty if all nodes have the same.
    """

    estimand: Estimand
    stratum: Mapping[int, int]
    strata: tuple[str, ...]
    node: tuple[int, ...]
    names: tuple[str, ...]
    states: Mapping[str, str]

    def of(self, estimand: Estimand) -> Nodes:
        return replace(self, estimand=estimand)

    def strata_of(self, numbers: Sequence[int]) -> IntArray:
        """Return the stratum of each block, as an index into `strata`.

        numbers: numbers of the blocks.
        """
        return np.array([self.stratum[n] for n in numbers], dtype=np.int64)

    def nodes_of(self, numbers: Sequence[int]) -> IntArray:
        """Return the node of each block, as an index into `names`.

        numbers: numbers of the blocks.
        """
        return np.array(self.node, dtype=np.int64)[self.strata_of(numbers)]


def nodes_of_run(blocks: Sequence[int], nodes: Sequence[NodeState], estimand: Estimand) -> Nodes | None:
    """Return the nodes of a run; None if all blocks ran on one node in one state and the estimand is THESE.

    blocks: numbers of the blocks.
    nodes: the node of each of these blocks.
    """
    states = sorted(set(nodes), key=lambda s: (_natural(s.name), s))
    if len(states) < 2 and estimand is Estimand.THESE:
        return None
    names = list(dict.fromkeys(s.name for s in states))
    by_name = {name: [s for s in states if s.name == name] for name in names}
    index = {state: at for at, state in enumerate(states)}
    kinds = {(s.kernel, s.cpu) for s in states}
    return Nodes(
        estimand=estimand,
        stratum={block: index[state] for block, state in zip(blocks, nodes, strict=True)},
        strata=tuple(_stratum_name(s, by_name[s.name]) for s in states),
        node=tuple(names.index(s.name) for s in states),
        names=tuple(name or _UNNAMED for name in names),
        states={
            name or _UNNAMED: "; ".join(_state_text(s) for s in by_name[name])
            for name in names
            if len(kinds) > 1
        },
    )


_UNNAMED = "the first node"
"""Name shown for a node without a recorded host name. It is the node on which the run was started."""


def _natural(name: str) -> list[str | int]:
    """Return a key that sorts node2 before node10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def _state_text(state: NodeState) -> str:
    kernel = f"Linux {state.kernel}" if state.kernel else "unknown kernel"
    return f"{kernel}, {state.cpu or 'unknown CPU'}"


def _stratum_name(state: NodeState, of_node: Sequence[NodeState]) -> str:
    name = state.name or _UNNAMED
    return name if len(of_node) == 1 else f"{name} ({_state_text(state)})"


class LookSample(Tails, Protocol):
    """The blocks of a comparison up to a look. See signed_rank.Walsh for the methods."""

    def interval(self, level: float) -> tuple[float, float]: ...
    def centre(self) -> float: ...
    def step(self) -> float: ...


class StratifiedBlocks:
    """The blocks of one comparison by stratum, for one estimand."""

    def __init__(self, d: FloatArray, numbers: Sequence[int], nodes: Nodes) -> None:
        """d: one value for each block.
        numbers: numbers of the blocks, ascending.
        """
        self._d, self._nodes = d, nodes
        self.strata = nodes.strata_of(numbers)
        self._all: IntArray = np.unique(self.strata)
        self.replicates = len({nodes.node[k] for k in self._all.tolist()})

    def by_stratum(self, n: int) -> list[FloatArray] | None:
        """Return the values of the first n blocks by stratum; None if a stratum has no block among them."""
        own = [self._d[:n][self.strata[:n] == k] for k in self._all.tolist()]
        return own if all(values.size for values in own) else None

    def sample(self, n: int) -> LookSample | None:
        """Return the first n blocks as a sample; None if a node has no block among them."""
        own = self.by_stratum(n)
        if own is None:
            return None
        if self._nodes.estimand is Estimand.THESE:
            return StratifiedSample(own)
        return sample_of_nodes(self._node_centres(own))

    def level(self, n: int, available: float) -> float:
        """Return the largest level not above `available` that a look at n blocks attains, on the nodes that
        have a block by then; 0 if none."""
        strata, sizes = np.unique(self.strata[:n], return_counts=True)
        if self._nodes.estimand is Estimand.ALIKE:
            return attained_level(len({self._nodes.node[k] for k in strata.tolist()}), available)
        if n > self.strata.size:
            return attained(n, available)
        return node_ranks(tuple(sorted(sizes.tolist()))).attained(available)

    def _node_centres(self, own: Sequence[FloatArray]) -> list[float]:
        """Return the centre of each node: the mean over its strata."""
        found: dict[int, list[float]] = {}
        for k, values in zip(self._all.tolist(), own, strict=True):
            found.setdefault(self._nodes.node[k], []).append(centre_of(values))
        failed = {node: next((x for x in c if math.isinf(x)), None) for node, c in found.items()}
        return [
            math.fsum(c) / len(c) if (infinite := failed[node]) is None else infinite
            for node, c in found.items()
        ]


def carried_over_nodes(
    d: FloatArray, numbers: Sequence[int], nodes: Nodes, *, schedule: Schedule, alpha: float
) -> Carried:
    """Return the primary interval over several nodes, for the estimand of `nodes`; see looks.look_and_carry.

    For Estimand.ALIKE the step is nan, so that no number of further blocks is estimated.

    Raises ValueError if d has no finite value, or alpha is outside (0, 1).
    """
    check_sample(d, alpha)
    comparison = StratifiedBlocks(d, numbers, nodes)
    size = int(d.size)
    planned = planned_looks(schedule, numbers)
    coming = tuple(PlannedLook(n=n, share=s) for n, s in next_looks(schedule, size, FORESEEN_LOOKS))
    levels = spent_levels(schedule, (*planned, *coming), alpha, comparison.level)

    def interval(n: int, level: float) -> tuple[float, float]:
        sample = comparison.sample(n)
        return (-math.inf, math.inf) if sample is None else sample.interval(level)

    finite = np.isfinite(d)
    whole = StratifiedBlocks(d[finite], np.asarray(numbers)[finite].tolist(), nodes).sample(int(finite.sum()))
    assert whole is not None, "every stratum of a comparison has a block"
    spent, left = levels[: len(planned)], levels[len(planned) :]
    ahead = tuple((look.n, level) for look, level in zip(coming, left, strict=True))
    return carry(planned, spent, interval, centre=whole.centre(), step=whole.step(), ahead=ahead)
