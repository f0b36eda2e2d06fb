"""Compares the costs planted in a calibration run with the measured intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.record import JsonValue
from ..model.result import Analysis, Cell, Verdict
from ..model.study import Arm, Mode, Study
from ..records.json_files import to_json
from ..units import show_overhead

#: Tolerance for the true cost of a quota: a rank that has used up its quota continues until the next timer
#: tick, and stopping and starting it has a cost of its own.
QUOTA_KNOWN_TO = 0.01
_MATERIAL = (Verdict.SLOWER, Verdict.FASTER)


@dataclass(frozen=True, kw_only=True)
class PlantedCheck:
    """A planted cost, compared with the measured overhead. All costs and overheads are fractions.

    design: mode of the run, 'slices' or 'plain'.
    what: 'workload.metric'.
    planted: 0 for the baseline compared with itself.
    low, high: interval of the overhead.
    n: number of blocks that the interval is based on.
    reason: why the check failed; '' if it passed.
    """

    design: str
    environment: str
    what: str
    planted: float
    overhead: float
    low: float
    high: float
    n: int
    verdict: str
    passed: bool
    reason: str

    def as_json(self) -> dict[str, JsonValue]:
        """Return the fields for --json; numbers that are not finite become null."""
        return {name: to_json(value) for name, value in vars(self).items()}


def planted_overhead(arm: Arm) -> float:
    """Return the overhead that the settings of an arm plant on purpose, as a fraction of the run time.

    Extra work adds its fraction. A quota of q CPUs for r ranks of one instance, each of which would use a
    whole CPU, makes them r/q times as slow.
    """
    quota = arm.environment.limits.cpu_quota
    slow = 1.0 if quota is None else max(1.0, arm.placement.tasks / quota)
    return (1.0 + arm.environment.extra_work) * slow - 1.0


def judge(study: Study, analysis: Analysis, mode: Mode) -> list[PlantedCheck]:
    """Return one check per cell, including the A/A cells.

    If no cost was planted, the check passes if the overhead is not called material. Otherwise it passes if
    the planted cost is inside the interval; an infinite interval does not pass. Each interval has its own
    confidence, so at 95 % about one in twenty misses by chance. A failed check states the distance.
    """
    arms = {a.name: a for a in study.arms()}
    own = [_check(c, 0.0, 0.0, mode) for c in analysis.noise_floor.cells]
    return own + [
        _check(
            c,
            planted_overhead(arms[c.arm]),
            0.0 if arms[c.arm].environment.limits.cpu_quota is None else QUOTA_KNOWN_TO,
            mode,
        )
        for c in analysis.cells
    ]


def _check(cell: Cell, planted: float, known_to: float, mode: Mode) -> PlantedCheck:
    finite = cell.low > -1 and cell.high < float("inf")
    inside = finite and cell.low - known_to <= planted <= cell.high + known_to
    if planted == 0:
        passed = finite and cell.verdict not in _MATERIAL
        reason = "" if passed else ("no interval yet" if not finite else "nothing was planted")
    else:
        passed = inside
        miss = min(abs(cell.low - planted), abs(cell.high - planted)) if finite else 0.0
        reason = "" if inside else ("no interval yet" if not finite else f"misses by {show_overhead(miss)}")
    return PlantedCheck(
        design=mode.value,
        environment=cell.environment,
        what=f"{cell.workload}.{cell.metric}",
        planted=planted,
        overhead=cell.overhead,
        low=cell.low,
        high=cell.high,
        n=cell.n,
        verdict=cell.verdict.value,
        passed=passed,
        reason=reason,
    )


def likely_misses(intervals: int, alpha: float) -> int:
    """Return the smallest number of misses that is exceeded with a probability of at most 5 %, for this many
    independent intervals.

    alpha: probability that an interval misses.
    """
    below, k = 0.0, -1
    while below < 0.95:
        k += 1
        below += math.comb(intervals, k) * alpha**k * (1 - alpha) ** (intervals - k)
    return k
