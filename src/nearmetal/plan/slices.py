"""Computes the length of a block, and the number of slices of each kernel in it, from measured costs and
noise. No I/O.

Besides its slices, a block has fixed costs in time: starts, launches, verifications, teardown. There are
enough slices that the fixed costs stay below a third of the block.

The number of slices of a kernel is proportional to sigma^(4/3) / cost^(1/3), where sigma is the noise of one
slice and cost its time. This minimises the sum of the squares of the cells' variances within the time of the
block. Two alternatives are worse. With numbers proportional to sigma / sqrt(cost) (Neyman's allocation, which
minimises the sum of the variances), the widest cells would stay far wider than the others. With numbers
proportional to the variance, which would make all widths equal, the noisiest kernel would take slices from
the others with little effect, because its spread between instances would remain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from ..model.design import LEAST_SLICES, REHEARSED_SLICES
from ..model.record import Row, Status, TrialRecord, slice_phase, verify_phase
from ..model.study import Study

MOST_SLICES = 256
"""With more slices than this, the variation between instances dominates."""
OVERHEAD_SHARE = 0.3
"""Maximum fraction of the time of a block for anything other than its slices."""
LONGEST_BLOCK = 4.0
"""Maximum length of a block in seconds, unless the fixed costs require longer blocks. A time budget is better
spent on many short blocks with fresh instances than on few long ones."""
FULL_RUN = 40
"""Number of blocks that should fit into a time budget if blocks are cheap."""
VERIFIED_EVERY = 8
"""A kernel is verified in every eighth block (METHOD, 'The block')."""
LOOKS = (8, 12, 18)
"""Numbers of blocks after which blocks become longer: the first three looks, at which arms and kernels drop
out."""
FIXED_FROM, SHORTEST_RUN = LOOKS[0], LOOKS[-1]
"""After FIXED_FROM blocks, the numbers of slices are fixed. Before the first look, no arm or kernel can have
dropped out, so the numbers do not depend on any verdict. At least SHORTEST_RUN blocks should fit into a time
budget, if this can be achieved by fewer slices."""
LONGER_THEN = 2.0
"""Factor by which blocks become longer after each of LOOKS, as far as SHORTEST_RUN of them still fit into the
time budget.

When arms or kernels have dropped out, a block contains less work, but its starts and launches cost nearly as
much. The blocks at which the length changes do not depend on what has dropped out.
"""
LONGEST_LATE_BLOCK = 16.0
"""Longest block in seconds after any of LOOKS, if no arm and no kernel has dropped out."""
LEFT_THEN = 0.75
"""Fraction of a block that is assumed to remain once comparisons are decided. It is a constant, since the
actual fraction depends on verdicts. If nothing drops out, a few blocks fewer than SHORTEST_RUN fit into a
time budget."""

SHORTER_THEN = 0.5
"""With a target width, the number of slices is reduced after the first look at most to this fraction, because
the spread of eight blocks is known only roughly."""

NORMAL = 1.4826
"""Ratio of standard deviation to median absolute deviation of a normal distribution."""


_Side = tuple[str, str, bool]
"""Metric, arm, and whether it is the second run of the baseline."""


class _Centre(NamedTuple):
    """One arm and metric in one block.

    value: median of the deviations of the arm's slices (_deviations), in logarithms.
    variance: variance of this median that the spread of the slices explains.
    """

    value: float
    variance: float


class SlicePlanner:
    """Computes the number of slices of each kernel workload in a block, block after block.

    If the study sets a number, it is used. Otherwise, in the first FIXED_FROM blocks, the slices fill the
    block and are divided among the kernels by the noise in all earlier blocks. Then the proportions between
    the kernels, and the longer durations of the blocks after each of LOOKS, are fixed. If the study sets a
    target width, few comparisons drop out early, so the number of slices follows from the spread between
    blocks instead (finest_factor).

    The planner uses only data that would be the same if any two arms of a block were exchanged: the spread of
    slices around their means and their total time, never the difference between arms. So the difference of a
    block remains equally likely to be positive or negative, as the intervals require. With a target width the
    planner also uses the spread of each arm between the first blocks. This spread stays the same if two arms
    are exchanged in all of these blocks, but not if they are exchanged in some of them. In simulations with
    skewed noise the intervals keep their level nevertheless (tests/statistical/test_planned_slices.py).
    """

    def __init__(
        self, study: Study, rehearsal: Sequence[TrialRecord], seconds: float, left: float | None
    ) -> None:
        """rehearsal: records of block 0.
        seconds: duration of block 0.
        left: seconds of the time budget that remain after block 0; None without a budget.
        """
        self._own = study.design.slices
        self._finest = study.design.target_width is not None
        self._kernels = [w.name for w in study.workloads if w.sliced]
        self._turns: dict[str, dict[tuple[str, bool], list[float]]] = {name: {} for name in self._kernels}
        self._verification = sum(_phase_seconds(rehearsal, verify_phase(name)) for name in self._kernels)
        self._left = left
        self._noise: dict[str, list[float]] = {name: [] for name in self._kernels}
        self._centres: dict[str, list[Mapping[_Side, _Centre]]] = {name: [] for name in self._kernels}
        self._beside: list[float] = []
        self._seen, self._spent = 0, 0.0
        self._fixed: tuple[dict[str, int], ...] | None = None
        self._take(dict.fromkeys(self._kernels, self._own or REHEARSED_SLICES), rehearsal, seconds)

    def saw(self, slices: Mapping[str, int], records: Sequence[TrialRecord], seconds: float) -> None:
        """Record a complete block.

        slices: number of slices, by kernel workload.
        seconds: duration of the block.
        """
        if self._seen == 0:
            self._beside.clear()  # the rehearsal ran with cold caches
        self._seen += 1
        if self._seen <= FIXED_FROM:
            self._spent += seconds
            self._take(slices, records, seconds)
            for name, found in self._centres.items():
                found.append(_centres(records, name))
            if self._seen == FIXED_FROM:
                self._fixed = self._later(self._spent)

    def slices(self) -> dict[str, int]:
        """Return the number of slices in the next block, by kernel workload."""
        if self._own is not None:
            return dict.fromkeys(self._kernels, self._own)
        if self._fixed is None:
            return self._planned()
        return dict(self._fixed[sum(self._seen >= look for look in LOOKS) - 1])

    def block_seconds(self) -> float:
        """Return the expected seconds of the next block, if no arm and no kernel has dropped out."""
        return self._overhead() + self._seconds(self.slices())

    def lengths(self) -> tuple[float, ...]:
        """Return the expected durations of blocks in seconds: before the first of LOOKS, then after each of
        LOOKS, if no arm and no kernel drops out."""
        if self._own is not None:
            return (self.block_seconds(),) * (len(LOOKS) + 1)
        early = self._planned()
        length = self._overhead() + self._seconds(early)
        late = self._fixed or self._later(self._spent + (FIXED_FROM - self._seen) * length)
        return length, *(self._overhead() + self._seconds(slices) for slices in late)

    def _take(self, slices: Mapping[str, int], records: Sequence[TrialRecord], seconds: float) -> None:
        verified = sum(_phase_seconds(records, verify_phase(name)) for name in self._kernels)
        for name, turns in self._turns.items():
            for r in records:
                if (each := r.phases.get(slice_phase(name), 0.0)) > 0:
                    turns.setdefault((r.arm, r.aa), []).append(each)
        self._beside.append(max(0.0, seconds - verified - self._seconds(slices)))
        for name, noises in self._noise.items():
            if (noise := _noise(records, name)) > 0:
                noises.append(noise)

    def _cost(self, name: str) -> float:
        """Return the seconds of one more slice of all arms, from one token to the next."""
        return sum(median(noises) for noises in self._turns[name].values())

    def _overhead(self) -> float:
        return median(self._beside) + self._verification / VERIFIED_EVERY

    def _planned(self) -> dict[str, int]:
        least = dict.fromkeys(self._kernels, LEAST_SLICES)
        noise = {
            name: math.hypot(*noises) / math.sqrt(len(noises))
            for name, noises in self._noise.items()
            if noises
        }
        costs = {name: self._cost(name) for name in self._kernels}
        return least | _shared(
            costs, noise, block_length(self._overhead(), self._left) - self._overhead() - self._seconds(least)
        )

    def _later(self, spent: float) -> tuple[dict[str, int], ...]:
        """Return the numbers of slices of a block after each of LOOKS, each by kernel workload.

        spent: total duration of the first FIXED_FROM blocks in seconds.
        """
        planned = self._planned()
        first = self._overhead() + self._seconds(planned)
        left = None if self._left is None else self._left - spent
        longest = math.inf
        if self._finest and self._seen >= FIXED_FROM:
            within = [
                share for found in self._centres.values() if (share := _share_within(found)) is not None
            ]
            factor = finest_factor(self._overhead(), self._seconds(planned), within)
            longest = self._overhead() + factor * self._seconds(planned)
        return tuple(self._lengthened(planned, min(longest, length)) for length in late_lengths(first, left))

    def _lengthened(self, slices: Mapping[str, int], length: float) -> dict[str, int]:
        """Return numbers of slices in the same proportions that fill a block of this length in seconds."""
        filled = self._seconds(slices)
        factor = (length - self._overhead()) / filled if filled > 0 else 1.0
        return {name: max(LEAST_SLICES, round(factor * number)) for name, number in slices.items()}

    def _seconds(self, slices: Mapping[str, int]) -> float:
        return sum(number * self._cost(name) for name, number in slices.items() if name in self._turns)


def block_length(overhead: float, left: float | None) -> float:
    """Return the planned duration of a block in seconds.

    overhead: duration of everything but the slices, in seconds.
    left: seconds of the time budget; None without a budget.
    """
    full = overhead / OVERHEAD_SHARE
    if left is None:
        return max(full, LONGEST_BLOCK)
    return min(max(full, min(LONGEST_BLOCK, left / FULL_RUN)), left / (SHORTEST_RUN + 0.5))


def late_lengths(first: float, left: float | None) -> tuple[float, float, float]:
    """Return the planned duration of a block in seconds after each of LOOKS, if nothing drops out.

    The blocks between the first two looks may be so long that SHORTEST_RUN blocks fit into the time budget
    only if some comparisons drop out (LEFT_THEN). The blocks until the third look are planned to fit even if
    nothing drops out. The blocks after it do not depend on the budget.

    first: duration of a block before the first look, in seconds.
    left: seconds of the time budget that remain at the first look; None without a budget.
    """
    most = max(first, LONGEST_LATE_BLOCK)
    second = free = min(LONGER_THEN * first, most)
    third = min(LONGER_THEN * free, most)
    fourth = min(LONGER_THEN * third, most)
    if left is not None:
        second = max(first, min(free, left / (LEFT_THEN * (SHORTEST_RUN - LOOKS[0] + 0.5))))
        rest = left - (LOOKS[1] - LOOKS[0]) * second
        third = max(second, min(third, rest / (SHORTEST_RUN - LOOKS[1] + 0.5)))
    return second, third, max(third, fourth)


def finest_factor(overhead: float, slices: float, within: Sequence[float]) -> float:
    """Return the factor for the number of slices with which the intervals of a run become narrowest; at least
    SHORTER_THEN.

    Let B be the variance between blocks and W the variance within a block. With f times the slices, the value
    of a block has the variance B + W/f, and the block takes overhead + f * slices seconds. The variance of
    the mean over a given time is thus proportional to (B + W/f) * (overhead + f * slices). Its sum over the
    kernels, each divided by its present variance B + W, is smallest at
    f = sqrt(overhead / slices * sum(W) / sum(B)), where W and B are fractions of B + W.

    overhead: present duration of everything but the slices in a block, in seconds.
    slices: present duration of the slices in a block, in seconds.
    within: W / (B + W) of each kernel.
    """
    between = math.fsum(1 - share for share in within)
    most = LONGER_THEN ** len(LOOKS)
    if slices <= 0 or not within:
        return 1.0
    if between == 0:
        return most
    return min(max(math.sqrt(overhead / slices * math.fsum(within) / between), SHORTER_THEN), most)


def _shared(costs: Mapping[str, float], noise: Mapping[str, float], seconds: float) -> dict[str, int]:
    """Return the number of slices of each kernel with known noise: as many as fit into the time, from
    LEAST_SLICES to MOST_SLICES.

    costs: by kernel, seconds of one more slice on all arms.
    noise: by kernel, standard deviation of the log ratio of one pair of slices.
    seconds: time to fill, beyond that of LEAST_SLICES of each kernel.
    """
    weights = {n: noise[n] ** (4 / 3) / costs[n] ** (1 / 3) for n in noise if noise[n] > 0 and costs[n] > 0}
    low, high = 0.0, MOST_SLICES / min(weights.values(), default=1.0)

    def slices(level: float) -> dict[str, int]:
        return {n: min(MOST_SLICES, max(LEAST_SLICES, int(level * w))) for n, w in weights.items()}

    for _ in range(40):
        level = (low + high) / 2
        spent = sum((r - LEAST_SLICES) * costs[n] for n, r in slices(level).items())
        low, high = (level, high) if spent <= seconds else (low, level)
    return slices(low)


def _rows(record: TrialRecord, workload: str) -> list[Row]:
    return [r for r in record.rows if r.workload == workload and r.status is Status.OK and r.seconds]


def _phase_seconds(records: Iterable[TrialRecord], phase: str) -> float:
    return sum(r.phases.get(phase, 0.0) for r in records)


def _centres(records: Sequence[TrialRecord], workload: str) -> dict[_Side, _Centre]:
    """Return, for each metric and arm, the median of the deviations in this block, and the variance of this
    median."""
    out = {}
    for side, away in _deviations(records, workload):
        centre = median(away)
        spread = NORMAL * median(abs(x - centre) for x in away)
        # The variance of a median is pi / 2 times that of a mean.
        out[side] = _Centre(centre, math.pi / 2 * spread**2 / len(away))
    return out


def _share_within(blocks: Sequence[Mapping[_Side, _Centre]]) -> float | None:
    """Return the share of the variance between the values of blocks that the slices explain, W / (B + W) in
    finest_factor(); None if nothing was measured.

    It is computed from the median over arms and metrics of the ratio of both variances, so that neither one
    noisy arm nor the chance of a few blocks decides. Only blocks in which all arms and metrics were measured
    are used, because the deviations of an arm refer to the mean over all arms.
    """
    sides = max(blocks, key=len, default={}).keys()
    whole = [block for block in blocks if block.keys() == sides]
    ratios = []
    for side in sides:
        found = [block[side] for block in whole]
        middle = median(c.value for c in found)
        within = math.fsum(c.variance for c in found) * (len(found) - 1) / len(found)
        if within:
            ratios.append(math.fsum((c.value - middle) ** 2 for c in found) / within)
    return 1 / max(1.0, median(ratios)) if ratios else None


def _noise(records: Sequence[TrialRecord], workload: str) -> float:
    """Return the standard deviation of the log ratios of paired slices of two arms; 0 if there are none.

    It is estimated by the median absolute deviation, since few slices say little about tails. The deviation
    of a slice is that of _deviations(), minus the median of its arm. All metrics of a workload are used.
    """
    deviations: list[float] = []
    sides: dict[str, int] = {}
    for (metric, *_), away in _deviations(records, workload):
        centre = median(away)
        deviations += [abs(x - centre) for x in away]
        sides[metric] = sides.get(metric, 0) + 1
    if not deviations:
        return 0.0
    arms = max(sides.values())
    return NORMAL * math.sqrt(2 * arms / (arms - 1)) * median(deviations)


def _deviations(records: Sequence[TrialRecord], workload: str) -> Iterator[tuple[_Side, list[float]]]:
    """Yield, for each metric and arm, the deviations of its slices: the logarithm of slice i minus the mean
    logarithm of slice i over all arms.

    A metric is left out if only one arm has it, or if its arms have different numbers of slices.
    """
    arms: dict[str, dict[_Side, tuple[float, ...]]] = {}
    for record in records:
        for row in _rows(record, workload):
            arms.setdefault(row.metric, {})[row.metric, record.arm, record.aa] = row.values
    for values in arms.values():
        lengths = {len(own) for own in values.values()}
        if len(values) < 2 or len(lengths) > 1 or max(lengths) < 2:
            continue
        logs = [[math.log(x) for x in own] for own in values.values()]
        means = [fmean(together) for together in zip(*logs, strict=True)]
        for side, own in zip(values, logs, strict=True):
            yield side, [x - mean for x, mean in zip(own, means, strict=True)]
