"""Results of a run on several nodes: both estimands of each comparison, the nodes one by one, and the nodes
that behave unlike the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .design import Estimand
from .result import Interval, Verdict


@dataclass(frozen=True, kw_only=True)
class NodeEstimate:
    """One comparison by one estimand. Overheads are as in model.result.Cell.

    nodes: number of nodes; the number of replicates if the estimand is Estimand.ALIKE.
    approximate: whether the interval is only approximate: Student's t of fewer than eight node centres.
    """

    nodes: int
    n: int
    overhead: float
    low: float
    high: float
    verdict: Verdict
    reason: str
    approximate: bool


@dataclass(frozen=True, kw_only=True)
class NodeValue:
    """One comparison on one node alone.

    node: name of the node, with its kernel or CPU model if it ran with several.
    overhead, low, high: its centre with the signed-rank interval of its blocks, for one look at them; without
        correction for the number of nodes.
    """

    node: str
    n: int
    overhead: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CellNodes:
    """One comparison over several nodes.

    estimand: that of the cell's own interval and verdict.
    estimates: both estimands; empty in an analysis between blocks.
    values: each node alone, in the order of their names; empty in an analysis between blocks.
    disagree: whether the overhead differs between the nodes, by an exact test at the cell's alpha.
    withheld: whether the cell has no verdict because the nodes disagree. More blocks do not change that.
    without: both estimands without the nodes that the rule leaves out; empty if it leaves out none.
    """

    estimand: Estimand
    estimates: Mapping[Estimand, NodeEstimate]
    values: tuple[NodeValue, ...]
    disagree: bool
    withheld: bool
    without: Mapping[Estimand, NodeEstimate]

    @property
    def other(self) -> Estimand:
        return Estimand.ALIKE if self.estimand is Estimand.THESE else Estimand.THESE


class Unlike(StrEnum):
    """How a node differs from the others.

    SLOW: its baseline takes longer, by more than the margin.
    UNSTEADY: its baseline differs from itself (A/A) more than twice as much.
    """

    SLOW = "slow"
    UNSTEADY = "unsteady"


@dataclass(frozen=True, kw_only=True)
class NodeEvidence:
    """Evidence that a node behaves unlike the others, in one metric of the baseline.

    others: number of the other nodes.
    ratio: time of its baseline, or typical A/A difference, over that of the other nodes' blocks. The interval
        is simultaneous over nodes, metrics and both kinds of evidence.
    """

    node: str
    unlike: Unlike
    baseline: str
    workload: str
    metric: str
    others: int
    n: int
    ratio: Interval


@dataclass(frozen=True, kw_only=True)
class SetEvidence:
    """Evidence that a machine, or the link between two, is slow, in one metric of the baseline.

    machines: one name, or the names of both ends of the link.
    n: number of blocks with the machine, or with both ends.
    others: number of blocks without the machine, or with one end only.
    ratio: time of the baseline in the first blocks over that in the others. The interval is simultaneous over
        machines, links and metrics.
    """

    machines: tuple[str, ...]
    baseline: str
    workload: str
    metric: str
    n: int
    others: int
    ratio: Interval


@dataclass(frozen=True, kw_only=True)
class RunNodes:
    """The nodes of a run with more than one.

    rounds: by name of a node, the number of blocks that count.
    states: by name of a node, its kernel and CPU model as text, if the nodes differ in them; else empty.
    evidence: the nodes that behave unlike the others; empty for fewer than three nodes.
    left_out: the names of the nodes that the rule leaves out in CellNodes.without.
    """

    estimand: Estimand
    rounds: Mapping[str, int]
    states: Mapping[str, str]
    evidence: tuple[NodeEvidence, ...]
    left_out: tuple[str, ...]
