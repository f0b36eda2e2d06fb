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
    """One comparison over several nodes, for one estimand. Overheads are as in model.result.Cell.

    nodes: number of nodes, which are the replicates if the estimand is Estimand.ALIKE.
    n: number of blocks.
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

    node: name of the node, with its kernel and CPU model if it ran with several.
    n: number of blocks on the node.
    overhead, low, high: overhead on the node with its signed-rank interval, as fractions. The interval is not
        corrected for several looks or for the number of nodes.
    """

    node: str
    n: int
    overhead: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CellNodes:
    """One comparison over several nodes.

    estimand: the estimand of the cell's own interval and verdict.
    estimates: the results for both estimands; empty in an analysis between blocks.
    values: each node alone, in the order of their names; empty in an analysis between blocks.
    disagree: whether the overhead differs between the nodes, by a test with the error probability
        1 - confidence of the study.
    withheld: whether the cell has no verdict because the nodes disagree. More blocks do not change that.
    without: the results for both estimands without the nodes in RunNodes.left_out; empty if there are none.
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


class NodeDeviation(StrEnum):
    """How a node differs from the others.

    SLOW: the baseline takes longer on it than on the others, by more than the margin.
    UNSTEADY: both runs of the baseline (A/A) differ on it more than twice as much as on the others.
    """

    SLOW = "slow"
    UNSTEADY = "unsteady"


@dataclass(frozen=True, kw_only=True)
class NodeEvidence:
    """Evidence that a node behaves unlike the others, in one metric of the baseline.

    others: number of the other nodes.
    n: number of blocks on the node.
    ratio: time of the baseline (SLOW) or typical A/A difference (UNSTEADY) on the node, divided by that on
        the other nodes. The interval is simultaneous over nodes, metrics and both kinds of evidence.
    """

    node: str
    unlike: NodeDeviation
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
    ratio: time of the baseline in the `n` blocks divided by that in the `others` blocks. The interval is
        simultaneous over machines, links and metrics.
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
    """The nodes of a run on several nodes.

    rounds: by name of a node, the number of blocks that count.
    states: by name of a node, its kernel and CPU model as text, if the nodes differ in them; else empty.
    evidence: evidence against nodes that behave unlike the others; empty for fewer than three nodes.
    left_out: names of the nodes with evidence, if these are fewer than half of the nodes; else empty.
        CellNodes.without are the results without them.
    """

    estimand: Estimand
    rounds: Mapping[str, int]
    states: Mapping[str, str]
    evidence: tuple[NodeEvidence, ...]
    left_out: tuple[str, ...]
