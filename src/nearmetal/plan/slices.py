"""How long a block is, and how many slices each kernel gets in it, from measured costs and noise. Pure.

A block costs something beside its slices: starts, launches, verifications, teardown. The slices fill the
rest, so that this cost stays below a third of the block.

Slices are shared among the kernels so that the sum of the squares of the cells' variances is least within the
time of the block: slices in proportion to sigma^(4/3) / cost^(1/3). In proportion to sigma / sqrt(cost)
(Neyman's allocation, the sum of the variances least) the widest cells stay far wider than the others; in
proportion to the variance, as equal widths would ask for, the noisiest kernel would starve the others of
slices that its own spread between instances then hides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from ..model.design import LEAST_SLICES, REHEARSED_SLICES
from ..model.record import Row, Status, TrialRecord, slice_phase, verify_phase
from ..model.study import KernelWorkload, Study

MOST_SLICES = 256
"""Beyond this number the deviation of the instance itself is what is left."""
OVERHEAD_SHARE = 0.3
"""Share of a block that may be spent beside its slices."""
LONGEST_BLOCK = 4.0
"""Seconds that a block may take for the sake of fuller blocks alone: many short fresh instances beat few long
runs."""
FULL_RUN, SHORTEST_RUN = 40, 18
"""Blocks that a time budget should hold: 40 if blocks are cheap, 18 at least, which is the third look, if the
slices can be cut down to it."""
VERIFIED_EVERY = 8
"""A kernel is verified in every eighth block (METHOD, 'The block')."""
FIXED_FROM = 8
"""Blocks after which the numbers of slices stay as they are. Before the first look no arm or kernel can have
dropped out, so what the numbers follow from does not depend on any verdict."""
LONGER_THEN = 2.0
"""Factor by which blocks become longer then, if the time budget still holds SHORTEST_RUN of them, and again
after SHORTEST_RUN. What has dropped out by then leaves less to fill a block with, but its starts and launches
cost nearly as much. When they become longer does not depend on what has dropped out."""
LONGEST_LATE_BLOCK = 16.0
"""Seconds that a block may take for that reason, with all arms and kernels."""
LEFT_THEN = 0.55
"""Share of a block that is counted on to be left once comparisons are decided: a constant, as what really
drops out follows from verdicts. Where nothing does, a time budget holds a few blocks fewer than
SHORTEST_RUN."""

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class SlicePlanner:
    """Numbers of slices by kernel workload, block after block: the study's own number if it states one; else
    as many as fill the block, shared by the noise of all blocks seen so far, until FIXED_FROM blocks; then
    the same proportions in blocks of other lengths, fixed then as well.

    What is taken from a block would be the same if any two of its arms had changed places: how far slices lie
    from their likes and how long they take together, never how far apart the arms lie. So either sign of a
    block's difference stays as likely as the other, which is what the intervals rest on.
    """

    def __init__(
        self, study: Study, rehearsal: Sequence[TrialRecord], seconds: float, left: float | None
    ) -> None:
        """rehearsal: records of block 0, which took `seconds`; left: seconds of the time budget after it."""
        self._own = study.design.slices
        self._kernels = [w.name for w in study.workloads if isinstance(w, KernelWorkload)]
        self._turns: dict[str, dict[tuple[str, bool], list[float]]] = {name: {} for name in self._kernels}
        self._verification = sum(_phase_seconds(rehearsal, verify_phase(name)) for name in self._kernels)
        self._left = left
        self._noise: dict[str, list[float]] = {name: [] for name in self._kernels}
        self._beside: list[float] = []
        self._seen, self._spent = 0, 0.0
        self._fixed: tuple[dict[str, int], dict[str, int]] | None = None
        self._take(dict.fromkeys(self._kernels, self._own or REHEARSED_SLICES), rehearsal, seconds)

    def saw(self, slices: Mapping[str, int], records: Sequence[TrialRecord], seconds: float) -> None:
        """Take in a whole block of so many slices, which took `seconds`."""
        if self._seen == 0:
            self._beside.clear()  # the rehearsal met cold caches
        self._seen += 1
        if self._seen <= FIXED_FROM:
            self._spent += seconds
            self._take(slices, records, seconds)
            if self._seen == FIXED_FROM:
                self._fixed = self._later()

    def slices(self) -> dict[str, int]:
        """Of the next block."""
        if self._own is not None:
            return dict.fromkeys(self._kernels, self._own)
        if self._fixed is None:
            return self._planned()
        return dict(self._fixed[self._seen >= SHORTEST_RUN])

    def block_seconds(self) -> float:
        """What the next block takes while no arm and no kernel has dropped out."""
        return self._overhead() + self._seconds(self.slices())

    def _take(self, slices: Mapping[str, int], records: Sequence[TrialRecord], seconds: float) -> None:
        verified = sum(_phase_seconds(records, verify_phase(name)) for name in self._kernels)
        for name, turns in self._turns.items():
            for r in records:
                if (each := r.phases.get(slice_phase(name), 0.0)) > 0:
                    turns.setdefault((r.arm, r.aa), []).append(each)
        self._beside.append(max(0.0, seconds - verified - self._seconds(slices)))
        for name, told in self._noise.items():
            if (noise := _noise(records, name)) > 0:
                told.append(noise)

    def _cost(self, name: str) -> float:
        """Seconds of one more slice of all arms, from one token to the next."""
        return sum(median(told) for told in self._turns[name].values())

    def _overhead(self) -> float:
        return median(self._beside) + self._verification / VERIFIED_EVERY

    def _planned(self) -> dict[str, int]:
        least = dict.fromkeys(self._kernels, LEAST_SLICES)
        noise = {name: math.hypot(*told) / math.sqrt(len(told)) for name, told in self._noise.items() if told}
        costs = {name: self._cost(name) for name in self._kernels}
        return least | _shared(
            costs, noise, block_length(self._overhead(), self._left) - self._overhead() - self._seconds(least)
        )

    def _later(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of a block after the first look, and of one after SHORTEST_RUN blocks."""
        planned = self._planned()
        first = self._overhead() + self._seconds(planned)
        second = min(LONGER_THEN * first, max(first, LONGEST_LATE_BLOCK))
        third = min(LONGER_THEN * second, max(first, LONGEST_LATE_BLOCK))
        if self._left is not None:
            blocks = LEFT_THEN * (SHORTEST_RUN - FIXED_FROM + 0.5)
            second = max(first, min(second, (self._left - self._spent) / blocks))
        return self._lengthened(planned, second), self._lengthened(planned, third)

    def _lengthened(self, slices: Mapping[str, int], length: float) -> dict[str, int]:
        """In the same proportions, as many as fill a block of so many seconds; never fewer."""
        filled = self._seconds(slices)
        factor = max(1.0, (length - self._overhead()) / filled) if filled > 0 else 1.0
        return {name: int(factor * number) for name, number in slices.items()}

    def _seconds(self, slices: Mapping[str, int]) -> float:
        return sum(number * self._cost(name) for name, number in slices.items() if name in self._turns)


def block_length(overhead: float, left: float | None) -> float:
    """Seconds that a block should take.

    overhead: what it costs beside its slices.
    left: seconds of the time budget; None without one.
    """
    full = overhead / OVERHEAD_SHARE
    if left is None:
        return max(full, LONGEST_BLOCK)
    return min(max(full, min(LONGEST_BLOCK, left / FULL_RUN)), left / (SHORTEST_RUN + 0.5))


def _shared(costs: Mapping[str, float], noise: Mapping[str, float], seconds: float) -> dict[str, int]:
    """Slices of the kernels that show noise, from LEAST_SLICES to MOST_SLICES, as many as fit. costs: seconds
    of one more slice of all arms; noise: standard deviation of one slice's log ratio; seconds: beyond
    LEAST_SLICES of each."""
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
