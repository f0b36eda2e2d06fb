"""Results computed from the records: intervals, verdicts, attributions. Logarithms of ratios are called
theta."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .study import Better, Study
from .workloads.programs import INSTANCE_WALL, RESOURCES

if TYPE_CHECKING:
    from .node_results import CellNodes, RunNodes, SetEvidence


class Verdict(StrEnum):
    """The five possible verdicts on a cell (METHOD, 'One comparison')."""

    SLOWER = "material: slower"
    FASTER = "material: faster"
    EQUIVALENT = "equivalent"
    NONE = "no verdict yet"
    INCONSISTENT = "inconsistent"


DIFFERENT = (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT)
"""Verdicts that say that two sides differ, or that one of them changed."""


def theta_of(overhead: float) -> float:
    """Return the logarithm of the ratio of times; infinite if a side did not finish."""
    return math.log1p(overhead) if -1 < overhead < math.inf else math.copysign(math.inf, overhead)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An interval with low <= centre <= high. The ends are infinite before there are enough blocks."""

    centre: float
    low: float
    high: float

    @classmethod
    def around(cls, centre: float, low: float, high: float) -> Interval:
        """Return the interval with the centre moved to the nearer end if it lies outside. If the ends
        contradict each other (low > high), the centre stays."""
        return cls(centre=min(max(centre, low), high) if low <= high else centre, low=low, high=high)

    @classmethod
    def unbounded(cls, centre: float) -> Interval:
        """Return the interval of a centre about which nothing else is known."""
        return cls(centre=centre, low=-math.inf, high=math.inf)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class Look:
    """The running interval of theta after n blocks."""

    n: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Order-statistic intervals of one arm's values. One value of each block is used, drawn at random without
    regard to the values. None = cannot be estimated from this number of blocks, or because of failed ones.

    n: number of blocks, including those in which the arm failed: they count as longer than all others.
    values, baseline_values: values of the arm and of its baseline, in the order of blocks, without failures.
    """

    n: int
    p50: Interval | None
    p90: Interval | None
    p95: Interval | None
    p99: Interval | None
    values: tuple[float, ...] = ()
    baseline_values: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimePart:
    """One term of an attribution, as a fraction of the baseline's time (0.03 = 3 % of the baseline's
    seconds)."""

    name: str
    overhead: Interval


class Change(StrEnum):
    """The part of an arm that a suggestion changes, named as in a study file."""

    CPU = "limits.cpu"
    CPU_SHARES = "limits.cpu_shares"
    MEMORY = "limits.memory"
    RTO_MIN = "network.rto_min"
    ATTACHMENT = "attachment"
    PINNING = "pinning"
    ONE_INSTANCE = "instances"
    STORAGE = "storage"


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A change that may help.

    change: the part of the arm to change; None if no study can make this change.
    words: the change as text, such as 'take the CPU quota out'.
    """

    change: Change | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The composition of a cell's overhead: overhead = sum of parts + residual, as fractions of the
    baseline's time.

    sentence: an explanation if the figures support one, else 'not explained'.
    causes: causes that apply across parts (throttling, waiting for a CPU, timeouts, ...), as the same
        fractions.
    unexplained: overhead not covered by the causes; None if nothing was counted.
    """

    parts: tuple[TimePart, ...] = ()
    residual: Interval | None = None
    sentence: str = ""
    causes: tuple[TimePart, ...] = ()
    unexplained: Interval | None = None
    suggestion: Suggestion | None = None

    @property
    def change(self) -> Change | None:
        """The change that a study could try; None if there is none."""
        return None if self.suggestion is None else self.suggestion.change


@dataclass(frozen=True, kw_only=True)
class NetworkTrouble:
    """TCP losses and timeouts in the trials of an arm and of its baseline. Values are means over trials; None
    = unavailable.

    The fields that begin with `baseline_` are those of the baseline.

    timeouts, retransmitted: expired retransmission timers, and retransmitted segments, in the timed part.
    rto: the smallest retransmission timeout of a connection with losses, in seconds; None if there is no such
        connection.
    waited: timeouts times the rto (0.2 s if it is None), in seconds.
    extra_seconds: seconds by which the timed part was longer than the baseline's, for the same work.
    drops: dropped packets by place over the whole trial, most first.
    shared: whether a side used the machine's own network. Other programs are then counted too.
    """

    timeouts: float | None
    baseline_timeouts: float | None
    retransmitted: float | None
    baseline_retransmitted: float | None
    rto: float | None
    baseline_rto: float | None
    waited: float | None
    baseline_waited: float | None
    extra_seconds: float | None
    drops: Mapping[str, float]
    baseline_drops: Mapping[str, float]
    shared: bool


@dataclass(frozen=True, kw_only=True)
class Roof:
    """The upper bound of one metric of one arm.

    value: in the cell's unit.
    share: the arm's median as a fraction of the bound. It exceeds 1 if, for example, a cache serves the
        requests.
    """

    words: str
    value: float
    share: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class SliceSpread:
    """Variance of ln(env / baseline) within and between blocks.

    slices: number of slices in a block.
    slice_variance: variance of one slice.
    block_variance: variance between blocks that the slices do not explain (it may be negative by chance).
    slice_seconds: time of one slice of both sides together, in seconds.
    other_seconds: time of a block without its slices, in seconds.
    """

    slices: int
    slice_variance: float
    block_variance: float
    slice_seconds: float
    other_seconds: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison of one metric. Overheads and differences are those of an arm compared with its baseline.

    n: blocks that the interval is based on. They include blocks in which one side failed, which count as
        infinitely slow for that side.
    failed: number of blocks in which a side failed, or in which the sides cannot be compared.
    failed_blocks, baseline_failed_blocks: numbers of the blocks in which the arm or its baseline failed.
    baseline_value, value: medians over blocks, base units.
    overhead, low, high: time-equivalent overhead as a fraction (0.03 = +3 %), exp(theta) - 1 of the primary
        interval.
    confidence: confidence of all intervals of this cell.
    decided_block, decided_seconds: number of the block after which the verdict was first reached, and seconds
        of the run at the end of that block; None without a verdict.
    smallest_material: the smallest overhead that could have been called material.
    blocks_needed, seconds_needed: how many more are needed for a verdict at the present spread; None if
        decided or unknown.
    difference: paired differences value - baseline, base units.
    sign, mean: companion intervals of theta; the mean is approximate and carries no verdict.
    p_holm: Holm's adjusted p value; None if there is none.
    looks: the running interval of theta after each look.
    blocks, d, baseline_values, values: numbers of the blocks that were measured on both sides, and for each s
        * ln(x_env / x_base) and both values.
    network: TCP losses; None if nothing was lost, or nothing is known.
    emulated: whether a side ran on emulated nodes.
    roof, baseline_roof: upper bound of each side; None if there is none, or none was measured.
    beyond: upper bound that the arm exceeds although its baseline does not; None if there is none.
    total: overhead of all blocks together, the ratio of arithmetic means by Fieller; approximate, carries no
        verdict.
    spread: variance of slices and blocks; None if there are no slices.
    e: e-value of the signs against no difference at all.
    discovered: whether e-BH selects it among all comparisons of the study; None for A/A cells.
    guest: how a side or its guests are emulated or nested, 'TCG, no KVM: why'; empty if none are.
    guest_of: the environments that `guest` describes.
    nodes: both estimands and each node; None if all blocks ran on one node.
    events: plural noun of the events whose times are compared, for a chart (SubjectFacts.plurals).
    """

    arm: str
    environment: str
    placement: str
    attachment: str
    baseline: str
    workload: str
    metric: str
    unit: str
    better: Better
    n: int
    failed: int
    failed_blocks: tuple[int, ...]
    baseline_failed_blocks: tuple[int, ...]
    baseline_value: Interval
    value: Interval
    overhead: float
    low: float
    high: float
    margin: float
    confidence: float
    exploratory: bool
    verdict: Verdict
    reason: str
    decided_block: int | None
    decided_seconds: float | None
    smallest_material: float
    blocks_needed: int | None
    seconds_needed: float | None
    difference: Interval
    sign: Interval
    mean: Interval
    p_holm: float | None
    looks: tuple[Look, ...]
    blocks: tuple[int, ...]
    d: tuple[float, ...]
    baseline_values: tuple[float, ...]
    values: tuple[float, ...]
    quantiles: Quantiles | None
    attribution: Attribution | None
    network: NetworkTrouble | None = None
    emulated: bool = False
    roof: Roof | None = None
    baseline_roof: Roof | None = None
    beyond: Roof | None = None
    total: Interval | None = None
    spread: SliceSpread | None = None
    e: float | None = None
    discovered: bool | None = None
    guest: str = ""
    guest_of: tuple[str, ...] = ()
    nodes: CellNodes | None = None
    events: str = "events"

    @property
    def open(self) -> bool:
        """Whether more blocks may give the cell its verdict."""
        return self.verdict is Verdict.NONE and not (self.nodes is not None and self.nodes.withheld)

    @property
    def tried(self) -> int:
        """Number of blocks in which the cell was measured or failed."""
        return len({*self.blocks, *self.failed_blocks, *self.baseline_failed_blocks})

    @property
    def label(self) -> str:
        """'workload.metric', or only the workload if the metric has the same name."""
        return self.workload if self.metric in ("", self.workload) else f"{self.workload}.{self.metric}"

    @property
    def key(self) -> str:
        return f"{self.arm}|{self.baseline}|{self.workload}.{self.metric}"


USAGE = frozenset({*RESOURCES, INSTANCE_WALL}) - {"wall"}
"""Metrics that nearmetal measures for every program in addition to its wall time."""


def deciding_cells(study: Study, cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells that decide the answer and the grade of the noise; all of them if none would.

    The others are secondary: the resource use of a program that has further metrics, such as its wall time,
    and events of instances. A metric that the study names as primary always decides.
    """
    own = {c.workload for c in cells if c.metric not in USAGE}
    events = {w.name for w in study.workloads if w.event}

    def decides(cell: Cell) -> bool:
        if f"{cell.workload}.{cell.metric}" in study.design.primary:
            return True
        return cell.workload not in events and not (cell.metric in USAGE and cell.workload in own)

    return tuple(filter(decides, cells)) or tuple(cells)


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """The A/A cells: the baseline compared with itself.

    cells: a cell is *material* or *inconsistent* only if this also holds with alpha divided by the number of
        cells.
    trusted: whether no cell that decides is material or inconsistent.
    proven: whether every cell that decides is equivalent.
    reason: what disturbed the baseline, or what is not decided yet.
    cause: the most likely cause of its noise; empty if it is proven, or if no cause was found.
    """

    cells: tuple[Cell, ...]
    trusted: bool
    proven: bool
    reason: str
    cause: str = ""


@dataclass(frozen=True, kw_only=True)
class Unused:
    """Something that was not measured, or was measured but not used.

    what: an arm, trials or a metric of an arm, or a comparison, as text.
    reason: why it was not measured or not used.
    count: number of trials or blocks concerned; 0 if none was run.
    failed: whether it ran and failed.
    """

    what: str
    reason: str
    count: int
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class VerdictState:
    """The state of the verdicts, for the decision whether and how a run continues.

    finished: why no further block is needed, as text; empty if one is needed.
    unbounded: whether no comparison has a finite interval yet.
    looked: number of blocks at the last look at any comparison; 0 before the first.
    settled: by arm, the workloads that later blocks need not run.
    """

    finished: str
    unbounded: bool
    looked: int
    settled: Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """All data that a report shows.

    blocks: number of complete blocks.
    elapsed: seconds of the run.
    disturbance: fraction of trials flagged, and medians, by kind.
    block_seconds: median seconds of a block.
    nodes: None if all blocks ran on one node.
    sets: slow machines and links, if blocks ran on sets of machines that were drawn.
    """

    study: str
    question: str
    seed: int
    blocks: int
    torn_blocks: int
    failed_trials: int
    elapsed: float
    block_seconds: float
    cells: tuple[Cell, ...]
    noise_floor: NoiseFloor
    unused: tuple[Unused, ...]
    disturbance: Mapping[str, float | None]
    nodes: RunNodes | None = None
    sets: tuple[SetEvidence, ...] = ()

    @property
    def undecided(self) -> tuple[Cell, ...]:
        """The cells that more blocks may decide: those without a verdict, except those whose verdict is
        withheld because the nodes disagree."""
        return tuple(c for c in self.cells if c.open)
