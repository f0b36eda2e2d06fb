"""How many slices each kernel gets in a block, from the noise and the cost of its slices.

The sum of the squares of the cells' variances is made least within the time that a block may take: slices in
proportion to sigma^(4/3) / cost^(1/3). In proportion to sigma / sqrt(cost) (Neyman's allocation, the sum of
the variances least) the widest cells stay far wider than the others; in proportion to the variance, as equal
widths would ask for, the noisiest kernel would starve the others of slices that its own spread between
instances then hides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from ..model.design import REHEARSED_SLICES, USUAL_SLICES
from ..model.record import Row, Status, TrialRecord, slice_phase
from ..model.study import KernelWorkload, Study
from .lengths import CHEAP_BLOCKS, SAFETY

MOST_SLICES = 128
"""Beyond, the instance's own deviation from its like is what is left."""

LONGEST_BLOCK = 4.0
"""Seconds: many short fresh instances beat few long runs."""

RECENT = 9
"""Blocks that tell how long one takes beside its slices: a machine may grow slower."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class SlicePlanner:
    """Slices by kernel workload, block after block: the study's own number where it says one; else
    USUAL_SLICES, and more as the block's time allows, by the noise of all blocks seen so far, since in the
    rehearsal a machine may be quieter than later.

    What is taken from a block would be the same if any two of its arms had changed places: how far slices lie
    from their likes, never how far apart the arms lie. So either sign of a block's difference stays as likely
    as the other, which is what the intervals rest on."""

    def __init__(self, study: Study, blocks: Sequence[Sequence[TrialRecord]], block_seconds: float) -> None:
        """blocks: records of each rehearsal, with REHEARSED_SLICES each; a warm one took block_seconds."""
        design = study.design
        self._own = design.slices
        self._kernels = [w.name for w in study.workloads if isinstance(w, KernelWorkload)]
        self._costs = {name: _slice_seconds(blocks, name) for name in self._kernels}
        self._usual = dict.fromkeys(self._kernels, USUAL_SLICES)
        self._longest = LONGEST_BLOCK
        if design.max_time is not None:
            self._longest = min(LONGEST_BLOCK, SAFETY * design.max_time / CHEAP_BLOCKS)
        self._noise: dict[str, list[float]] = {name: [] for name in self._kernels}
        self._beside: list[float] = []
        rehearsed = dict.fromkeys(self._kernels, design.slices or REHEARSED_SLICES)
        self.took(rehearsed, block_seconds)
        for records in blocks:
            self.saw(records)

    def saw(self, records: Sequence[TrialRecord]) -> None:
        """Of a whole block; one in which an arm failed may tell nothing of a kernel."""
        if self._own is None:
            for name, told in self._noise.items():
                if (noise := _noise(records, name)) > 0:
                    told.append(noise)

    def took(self, slices: Mapping[str, int], seconds: float) -> None:
        """How long a whole block of so many slices took."""
        self._beside.append(seconds - self._seconds(slices))

    def slices(self, longest: float | None = None) -> dict[str, int]:
        """Of the next block. longest: seconds that it may take, where that is not what the study's time gives
        each."""
        if self._own is not None:
            return dict.fromkeys(self._kernels, self._own)
        noise = {name: math.hypot(*told) / math.sqrt(len(told)) for name, told in self._noise.items() if told}
        whole = self._longest if longest is None else min(longest, LONGEST_BLOCK)
        return self._usual | _shared(self._costs, noise, whole - self.block_seconds(self._usual))

    def block_seconds(self, slices: Mapping[str, int]) -> float:
        """What a block of so many slices takes."""
        return median(self._beside[-RECENT:]) + self._seconds(slices)

    def _seconds(self, slices: Mapping[str, int]) -> float:
        return sum(number * self._costs[name] for name, number in slices.items())


def _shared(costs: Mapping[str, float], noise: Mapping[str, float], seconds: float) -> dict[str, int]:
    """Slices of the kernels that show noise, from USUAL_SLICES to MOST_SLICES, as many as fit. costs: seconds
    of one more slice of all arms; noise: standard deviation of one slice's log ratio; seconds: beyond
    USUAL_SLICES of each."""
    weights = {n: noise[n] ** (4 / 3) / costs[n] ** (1 / 3) for n in noise if noise[n] > 0 and costs[n] > 0}
    low, high = 0.0, MOST_SLICES / min(weights.values(), default=1.0)

    def slices(level: float) -> dict[str, int]:
        return {n: min(MOST_SLICES, max(USUAL_SLICES, int(level * w))) for n, w in weights.items()}

    for _ in range(40):
        level = (low + high) / 2
        spent = sum((r - USUAL_SLICES) * costs[n] for n, r in slices(level).items())
        low, high = (level, high) if spent <= seconds else (low, level)
    return slices(low)


def _rows(record: TrialRecord, workload: str) -> list[Row]:
    return [r for r in record.rows if r.workload == workload and r.status is Status.OK and r.seconds]


def _slice_seconds(blocks: Sequence[Sequence[TrialRecord]], workload: str) -> float:
    """Of one slice of all arms, from its token to its answer."""
    phase = slice_phase(workload)
    arms = {(r.arm, r.aa) for records in blocks for r in records}
    return sum(
        _typical(r.phases.get(phase, 0.0) for records in blocks for r in records if (r.arm, r.aa) == arm)
        for arm in arms
    )


def _typical(found: Iterable[float]) -> float:
    """The median; a rehearsal in which an arm failed, or showed nothing, tells 0 and does not count."""
    told = [x for x in found if x > 0]
    return median(told) if told else 0.0


def _noise(records: Sequence[TrialRecord], workload: str) -> float:
    """Standard deviation of the log ratios of paired slices of two arms, by the median absolute deviation of
    all arms' slices from the mean of those they are paired with, less each arm's median, since few slices
    tell no tails; 0 where there are none. Of a workload's metrics all count."""
    arms: dict[str, list[tuple[float, ...]]] = {}
    for record in records:
        for row in _rows(record, workload):
            arms.setdefault(row.metric, []).append(row.values)
    deviations: list[float] = []
    pair = 1.0
    for values in arms.values():
        if len(values) < 2 or len({*map(len, values)}) > 1 or len(values[0]) < 2:
            continue
        logs = [[math.log(x) for x in own] for own in values]
        means = [fmean(together) for together in zip(*logs, strict=True)]
        for own in logs:
            away = [x - mean for x, mean in zip(own, means, strict=True)]
            centre = median(away)
            deviations += [abs(x - centre) for x in away]
        pair = math.sqrt(2 * len(values) / (len(values) - 1))
    return NORMAL * pair * median(deviations) if deviations else 0.0
