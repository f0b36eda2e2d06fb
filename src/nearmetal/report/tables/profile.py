"""MPI time and traffic by workload and arm, as medians over trials, from the MPI profiles of the ranks. No
I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ...model.workloads.profile import RankProfile, calls_together
from ...units import show
from ...workloads.kernels.registry import workload_title
from ..record_index import RecordIndex

Ranks = Sequence[RankProfile]

HEADS = (
    "workload, environment",
    "trials",
    "start of MPI",
    "computation",
    "communication",
    "MPI calls",
    "messages",
    "bytes in messages",
    "most time in",
)


@dataclass(frozen=True, kw_only=True)
class ProfileLine:
    """One workload on one arm, medians over trials.

    trials: number of trials with a profile.
    init, compute, communication: seconds, means over the ranks.
    calls, messages, bytes: totals of all ranks.
    slowest_call: name of the MPI call that took the most time in the last trial; 'none' without calls.
    """

    workload: str
    arm: str
    trials: int
    init: float
    compute: float
    communication: float
    calls: float
    messages: float
    bytes: float
    slowest_call: str

    @property
    def computing(self) -> float | None:
        """Time of computation as a fraction of computation and communication; None if both are zero."""
        inside = self.compute + self.communication
        return self.compute / inside if inside > 0 else None

    def cells(self) -> tuple[str, ...]:
        """Return the cells in the order of HEADS."""
        share = f" ({100 * (1 - self.computing):.3g} %)" if self.computing is not None else ""
        return (
            f"{workload_title(self.workload)}, {self.arm}",
            f"{self.trials:,}",
            show(self.init, "s"),
            show(self.compute, "s"),
            show(self.communication, "s") + share,
            f"{self.calls:,.0f}",
            f"{self.messages:,.0f}",
            show(self.bytes, "B"),
            self.slowest_call,
        )


def profile_lines(arms: Sequence[str], records: RecordIndex) -> tuple[ProfileLine, ...]:
    """Return the lines, ordered by workload and then by arm; empty if nothing was profiled."""
    trials = {arm: [t.profile for t in records.trials(arm)] for arm in arms}
    workloads = dict.fromkeys(w for found in trials.values() for profile in found for w in profile)
    return tuple(
        _line(workload, arm, [p[workload] for p in found if p.get(workload)])
        for workload in workloads
        for arm, found in trials.items()
        if any(p.get(workload) for p in found)
    )


def computation_shares(arms: Sequence[str], records: RecordIndex) -> dict[tuple[str, str], float]:
    """Return the time of computation as a fraction of computation and communication, by (arm, workload)."""
    return {
        (line.arm, line.workload): share
        for line in profile_lines(arms, records)
        if (share := line.computing) is not None
    }


def _line(workload: str, arm: str, trials: Sequence[Ranks]) -> ProfileLine:
    def middle(of: Callable[[Ranks], float]) -> float:
        return median(map(of, trials))

    last = calls_together(rank.calls for rank in trials[-1])
    return ProfileLine(
        workload=workload,
        arm=arm,
        trials=len(trials),
        init=middle(lambda ranks: fmean(r.init for r in ranks)),
        compute=middle(lambda ranks: fmean(r.compute for r in ranks)),
        communication=middle(lambda ranks: fmean(r.communication for r in ranks)),
        calls=middle(lambda ranks: sum(c.count for r in ranks for c in r.calls.values())),
        messages=middle(lambda ranks: sum(r.messages for r in ranks)),
        bytes=middle(lambda ranks: sum(p.bytes for r in ranks for p in r.peers)),
        slowest_call=max(last, key=lambda name: last[name].seconds, default="none"),
    )
