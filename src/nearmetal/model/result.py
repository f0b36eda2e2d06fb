"""What follows from the records: intervals, verdicts, attributions. Logs of ratios are called theta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .study import Better


class Verdict(StrEnum):
    """The only five things nearmetal says about a cell (METHOD, 'One comparison')."""

    SLOWER = "material: slower"
    FASTER = "material: faster"
    EQUIVALENT = "equivalent"
    NONE = "no verdict yet"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """low <= centre <= high; infinite ends before there are enough blocks."""

    centre: float
    low: float
    high: float

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
    """Order-statistic intervals of one arm's values, one value of each block drawn beforehand; None = not
    estimable at this n. values, baseline_values: those of the arm and of its baseline, in the order of
    blocks."""

    n: int
    p50: Interval | None
    p90: Interval | None
    p95: Interval | None
    p99: Interval | None
    values: tuple[float, ...] = ()
    baseline_values: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """One term of an attribution: its share of the baseline's time (0.03 = 3 % of the baseline's seconds)."""

    name: str
    overhead: Interval


class Change(StrEnum):
    """What of an arm a suggestion changes, in the words of the study file."""

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
    """A change that may help, words: 'take the CPU quota out'; change: of the arm or its workload, None where
    a study cannot make it."""

    change: Change | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """overhead = sum of parts + residual, in shares of the baseline's time; sentence: only where the figures
    carry it, else 'not explained'. causes: what cuts across the parts (throttling, waiting for a CPU,
    time-outs, ...), in the same shares; unexplained: what they leave; None where nothing was counted."""

    parts: tuple[Part, ...]
    residual: Interval | None
    sentence: str
    causes: tuple[Part, ...] = ()
    unexplained: Interval | None = None
    suggestion: Suggestion | None = None

    @property
    def change(self) -> Change | None:
        """What a study could try."""
        return None if self.suggestion is None else self.suggestion.change


@dataclass(frozen=True, kw_only=True)
class NetworkTrouble:
    """What TCP lost and waited for in a trial of an arm and of its baseline: means over trials, None =
    unavailable.

    timeouts, retransmitted: expired retransmission timers and segments sent again in the timed part.
    rto: the smallest retransmission time-out of a connection in trouble, seconds, None = none was seen.
    waited: timeouts times the rto (0.2 s where none was seen).
    extra_seconds: of the timed part over the baseline's for the same work.
    drops: packets by place over the whole trial, most first.
    shared: a side used the machine's own network, so that other programs are counted too.
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
    """The roof over one metric of one arm.

    words: what it is.
    value: in the cell's unit.
    share: of the arm's median in it, beyond 1 where a cache or another way round it serves that.
    """

    words: str
    value: float
    share: float
    measured: float


@dataclass(frozen=True, kw_only=True)
class SliceSpread:
    """Of ln(env / baseline).

    slices: in a block.
    slice_variance, block_variance: of one slice, and of blocks beyond what their slices explain (negative
        where chance made it so).
    slice_seconds: of one more slice of both sides.
    other_seconds: what else a block takes.
    """

    slices: int
    slice_variance: float
    block_variance: float
    slice_seconds: float
    other_seconds: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison of one metric. Overheads and differences of an arm from its baseline.

    n: blocks that the interval rests on. A block in which one side failed is among them, and counts as
        infinitely slow for that side.
    failed: number of blocks in which a side failed, or in which the sides cannot be compared.
    failed_blocks, baseline_failed_blocks: numbers of the blocks in which the arm or its baseline failed.
    baseline_value, value: medians over blocks, base units.
    overhead, low, high: time-equivalent overhead as a share (0.03 = +3 %), exp(theta) - 1 of the primary
        interval.
    confidence: of all intervals of this cell.
    reason: why the verdict is what it is, in words.
    decided_block, decided_seconds: number of the block after which the verdict was first reached, and
        seconds of the run at the end of that block; None without a verdict.
    smallest_material: the smallest overhead that could have been called material.
    blocks_needed, seconds_needed: more for a verdict at the present spread; None when decided or unknown.
    difference: paired differences value - baseline, base units.
    sign, mean: companion intervals of theta; the mean is approximate and carries no verdict.
    p_holm: Holm's adjusted p value; None where there is none.
    looks: the running interval of theta after each look.
    blocks, d, baseline_values, values: numbers of the blocks that were measured on both sides, and
        s * ln(x_env / x_base) and both values of each.
    network: what TCP lost; None where nothing was lost, or nothing is known.
    emulated: a side ran on nodes that are emulated.
    roof, baseline_roof: upper bound of each side; None where there is none, or none was measured.
    total: overhead of all blocks together, the ratio of arithmetic means by Fieller; approximate, carries no
        verdict.
    spread: of slices and blocks; None where there are no slices.
    e: e-value of the signs against no difference at all.
    discovered: whether e-BH counts it among all comparisons of the study; None for A/A cells.
    guest: how a side or its guests are emulated or nested, 'TCG, no KVM: why'; empty where none are.
    guest_of: the environments of which that is said."""

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
    total: Interval | None = None
    spread: SliceSpread | None = None
    e: float | None = None
    discovered: bool | None = None
    guest: str = ""
    guest_of: tuple[str, ...] = ()

    @property
    def tried(self) -> int:
        """Number of blocks in which it was measured or failed."""
        return len({*self.blocks, *self.failed_blocks, *self.baseline_failed_blocks})

    @property
    def key(self) -> str:
        return f"{self.arm}|{self.baseline}|{self.workload}.{self.metric}"


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """The A/A cells: the baseline against itself.

    cells: *material* and *inconsistent* stand only where they hold with alpha divided by their number.
    trusted: none is material or inconsistent.
    proven: every one is equivalent.
    reason: what disturbed it, or what is not decided yet."""

    cells: tuple[Cell, ...]
    trusted: bool
    proven: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Unused:
    """Something that was measured and not used, or not measured, and why. failed: it ran, and went wrong."""

    what: str
    reason: str
    count: int
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Everything a report shows.

    blocks: complete blocks.
    elapsed: seconds of the run.
    disturbance: share of trials flagged, and medians, by kind.
    block_seconds: median seconds of a block.
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

    @property
    def undecided(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.verdict is Verdict.NONE)
