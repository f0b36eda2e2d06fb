"""How many slices each kernel gets in a block, from the noise and the cost of its slices in the rehearsal.

METHOD's planner has r = r_max where the level above shows no variance of its own, and one block shows none:
so a block takes as many slices as its time allows, and kernels share that time by what they need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, variance

from ..model.design import USUAL_SLICES
from ..model.record import Row, Status, TrialRecord
from ..model.study import KernelWorkload, Study
from .lengths import CHEAP_BLOCKS, SAFETY

MOST_SLICES = 128
"""Beyond, the instance's own deviation from its like is what is left."""

LONGEST_BLOCK = 4.0
"""Seconds: many short fresh instances beat few long runs."""

TOKEN = 0.5e-3
"""Seconds between slices, for a token to go and an answer to come."""


def plan_slices(study: Study, records: Sequence[TrialRecord], block_seconds: float) -> dict[str, int]:
    """Slices by kernel workload: the study's own number where it says one; else USUAL_SLICES, and more of
    those kernels whose slices scatter most, so that all come to the same width, within the block's time.

    records: of the rehearsal, with USUAL_SLICES each, which took block_seconds.
    """
    design = study.design
    kernels = [w.name for w in study.workloads if isinstance(w, KernelWorkload)]
    if design.slices is not None:
        return dict.fromkeys(kernels, design.slices)
    usual = dict.fromkeys(kernels, USUAL_SLICES)
    longest = LONGEST_BLOCK
    if design.max_time is not None:
        longest = min(longest, SAFETY * design.max_time / CHEAP_BLOCKS)
    costs = {name: sum(_seconds(r, name) for r in records) for name in kernels}
    needs = {name: _noise(records, name, design.baselines[0]) for name in kernels}
    return usual | _shared(costs, needs, longest - block_seconds)


def added_seconds(records: Sequence[TrialRecord], slices: Mapping[str, int]) -> float:
    """What the planned slices add to a block of the rehearsal, whose records these are."""
    more = {name: number - USUAL_SLICES for name, number in slices.items() if number > USUAL_SLICES}
    return sum(n * _seconds(r, name) for name, n in more.items() for r in records)


def _shared(costs: Mapping[str, float], needs: Mapping[str, float], seconds: float) -> dict[str, int]:
    """Slices in proportion to need, from USUAL_SLICES to MOST_SLICES, as many as fit. costs: seconds of one
    more slice of all arms; needs: variance of one slice's log ratio; seconds: beyond USUAL_SLICES of each."""
    noisy = {name: need for name, need in needs.items() if need > 0 and costs[name] > 0}
    low, high = 0.0, MOST_SLICES / min(noisy.values(), default=1.0)

    def slices(level: float) -> dict[str, int]:
        return {n: min(MOST_SLICES, max(USUAL_SLICES, int(level * need))) for n, need in noisy.items()}

    for _ in range(40):
        level = (low + high) / 2
        spent = sum((r - USUAL_SLICES) * costs[n] for n, r in slices(level).items())
        low, high = (level, high) if spent <= seconds else (low, level)
    return slices(low)


def _rows(record: TrialRecord, workload: str) -> list[Row]:
    return [r for r in record.rows if r.workload == workload and r.status is Status.OK and r.seconds]


def _seconds(record: TrialRecord, workload: str) -> float:
    """Of one slice: its parts are rows of their own."""
    found = _rows(record, workload)
    return sum(median(r.seconds) for r in found) + TOKEN if found else 0.0


def _noise(records: Sequence[TrialRecord], workload: str, baseline: str) -> float:
    """Variance of the log ratios of paired slices to the first baseline's, the median of its pairs of rows; 0
    where there are none."""
    base = next((r for r in records if r.arm.startswith(f"{baseline}/") and not r.aa), None)
    if base is None:
        return 0.0
    found = []
    for own in _rows(base, workload):
        for record in records:
            for row in _rows(record, workload) if record is not base else ():
                if row.metric == own.metric and len(row.values) == len(own.values) > 1:
                    logs = [math.log(x / y) for x, y in zip(row.values, own.values, strict=True)]
                    found.append(variance(logs))
    return median(found) if found else 0.0
