"""Determines the work of a slice in the rehearsal: the number of units of each kernel that take about a
millisecond on the baseline of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median

from ..model.plan import Work
from ..model.study import KernelWorkload
from ..node.node import Node
from ..plan.work import SLICE_SECONDS, capped_units, fitting_units, next_trial, target_seconds
from ..subjects.kernel import KernelJob
from ..workloads.kernels.contract import SliceWork
from ..workloads.kernels.registry import slice_work

REPEATED = 3
"""Number of slices from which the final number of units is scaled."""
ROUNDS = 5
"""Number of slices, alternating with another arm's, whose median gives the cost of passing a token."""


class WorkFit:
    """Determines the units of work in a slice. They are the same for all arms with the same number of ranks.
    A number in the study takes precedence."""

    def __init__(self, node: Node, known: Work | None = None) -> None:
        """Create the fit of a run.

        known: units of work that are fixed already.

        The attribute work holds the units found so far, by workload and number of ranks. The attribute
        seconds is the time that this took.
        """
        self._node = node
        self.work: dict[str, dict[int, int]] = {name: dict(units) for name, units in (known or {}).items()}
        self.seconds = 0.0

    def fit(self, workload: KernelWorkload, jobs: Sequence[KernelJob]) -> Mapping[int, int]:
        """Return the units of work by number of ranks.

        jobs: jobs of the arms that run the workload; failed ones are skipped.
        """
        begin = time.monotonic()
        found = self.work.setdefault(workload.name, {})
        for ranks in sorted({job.ranks for job in jobs} - found.keys()):
            wanted = slice_work(
                workload, ranks=ranks, llc_bytes=self._node.machine.llc, turns=self._node.study.least_turns()
            )
            alike = [job for job in jobs if job.ranks == ranks]
            found[ranks] = wanted.units or self._measured(workload, alike, wanted)
        self.seconds += time.monotonic() - begin
        return found

    def _measured(self, workload: KernelWorkload, jobs: Sequence[KernelJob], wanted: SliceWork) -> int:
        first = self._node.study.design.baselines[0]
        units = wanted.least
        # Use the baseline. Use another arm only if the baseline failed, so that the block can go on.
        for job in sorted(_sound(jobs), key=lambda job: job.trial.arm.environment.name != first):
            with job.guard:
                others = [other for other in _sound(jobs) if other is not job]
                units, seconds = _fitted(job, workload, wanted, SLICE_SECONDS)
                token = _token(job, others, workload, units, wanted)
                if (target := target_seconds(token)) > SLICE_SECONDS:
                    units, seconds = _fitted(job, workload, wanted, target, begin=units)
                each = [seconds]
                for other in others:
                    with other.guard:
                        each.append(_slice(other, workload, units, wanted)[0])
                return capped_units(units, each, least=wanted.least, token=token)
        return units


def _sound(jobs: Sequence[KernelJob]) -> list[KernelJob]:
    return [job for job in jobs if job.trial.sound]


def _fitted(
    job: KernelJob, workload: KernelWorkload, wanted: SliceWork, target: float, begin: int | None = None
) -> tuple[int, float]:
    """Return the units of work that fill a slice of one arm, and their duration in seconds.

    begin: units of the first attempt.
    """
    units: int | None = begin or wanted.least
    while units is not None:
        last = units
        seconds = _slice(job, workload, last, wanted)[0]
        units = next_trial(last, seconds, least=wanted.least, target=target, most=wanted.most)
    several = [seconds, *(_slice(job, workload, last, wanted)[0] for _ in range(REPEATED - 1))]
    fitting = fitting_units(last, several, least=wanted.least, target=target, most=wanted.most)
    return fitting, min(several) * fitting / last


def _token(
    job: KernelJob, others: Sequence[KernelJob], workload: KernelWorkload, units: int, wanted: SliceWork
) -> float:
    """Return the seconds that passing a token costs when arms take turns.

    During the turn of another arm, the ranks sleep. Waking them costs about as much as the token itself.
    """
    lost = []
    for _ in range(ROUNDS):
        for other in others[:1]:
            with other.guard:
                _slice(other, workload, units, wanted)
        lost.append(_slice(job, workload, units, wanted)[1])
    return median(lost)


def _slice(job: KernelJob, workload: KernelWorkload, units: int, wanted: SliceWork) -> tuple[float, float]:
    """Measure a slice. Returns two times in seconds: the timed parts that grow with the units, and the time
    from the token to the answer outside all timed parts."""
    begin = time.monotonic()
    line = job.slice(workload, units)
    whole = time.monotonic() - begin
    timed = sum(p.seconds for p in line.parts)
    grown = sum(p.seconds for p in line.parts if not wanted.parts or p.metric in wanted.parts)
    return grown, max(0.0, whole - timed)
