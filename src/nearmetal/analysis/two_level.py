"""Boot states: what cannot change within a block (kernel, machine, day) is compared unpaired, boot by boot.

Each boot (one results directory) gives one mean of logs per arm and metric; n is the number of boots, never
that of blocks: pooling blocks of one boot as independent makes half of all verdicts false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.result import Analysis, Interval, Verdict
from ..model.study import Better
from .mean_interval import welch
from .verdict import judge

LEAST_BOOTS = 2


@dataclass(frozen=True, kw_only=True)
class StateCell:
    """Boot state `after` against `before` for one arm and metric. boots: (before, after); before, after:
    geometric means of the boot means, base units; overhead, low, high: time-equivalent share, infinite ends
    with one boot on a side; verdict: NONE with one boot on a side, whatever the figures are; reason: in
    words."""

    arm: str
    workload: str
    metric: str
    unit: str
    better: Better
    boots: tuple[int, int]
    before: float
    after: float
    overhead: float
    low: float
    high: float
    margin: float
    confidence: float
    verdict: Verdict
    reason: str


def compare_boots(
    before: Sequence[float], after: Sequence[float], better: Better, confidence: float
) -> Interval:
    """Welch's interval of theta = s (mean(after) - mean(before)) of boot means of logs, one number per boot.

    Infinite ends with fewer than two boots on a side: their spread is unknown. Raises ValueError for no boot.
    """
    if not before or not after:
        raise ValueError("each side needs at least one boot")
    sign = 1 if better is Better.LOWER else -1
    theta = sign * (math.fsum(after) / len(after) - math.fsum(before) / len(before))
    if min(len(before), len(after)) < LEAST_BOOTS:
        return Interval(centre=theta, low=-math.inf, high=math.inf)
    a, b = np.asarray(after, dtype=np.float64), np.asarray(before, dtype=np.float64)
    half = welch(a, b, confidence).interval.half_width
    return Interval(centre=theta, low=theta - half, high=theta + half)


def compare_states(
    before: Sequence[Analysis], after: Sequence[Analysis], *, margin: float, confidence: float
) -> tuple[StateCell, ...]:
    """Every arm and metric that both boot states have. before, after: one Analysis per boot, in any order."""
    old, new = [_boot_means(a) for a in before], [_boot_means(a) for a in after]
    out: list[StateCell] = []
    for key in dict.fromkeys(k for boot in old for k in boot):
        left = [boot[key] for boot in old if key in boot]
        right = [boot[key] for boot in new if key in boot]
        if not right:
            continue
        arm, workload, metric, unit, better = key
        theta = compare_boots(left, right, better, confidence)
        enough = min(len(left), len(right)) >= LEAST_BOOTS
        verdict = judge(theta.low, theta.high, n=1 if enough else 0, margin=margin, min_blocks=1)
        out.append(
            StateCell(
                arm=arm,
                workload=workload,
                metric=metric,
                unit=unit,
                better=better,
                boots=(len(left), len(right)),
                before=math.exp(math.fsum(left) / len(left)),
                after=math.exp(math.fsum(right) / len(right)),
                overhead=math.expm1(theta.centre),
                low=math.expm1(theta.low),
                high=math.expm1(min(theta.high, 709.0)) if math.isfinite(theta.high) else math.inf,
                margin=margin,
                confidence=confidence,
                verdict=verdict,
                reason=_reason(len(left), len(right), verdict),
            )
        )
    return tuple(out)


def _boot_means(analysis: Analysis) -> Mapping[tuple[str, str, str, str, Better], float]:
    """Mean over blocks of the log of the instance's median, by arm and metric."""
    out: dict[tuple[str, str, str, str, Better], float] = {}
    for cell in (*analysis.noise_floor.cells, *analysis.cells):
        for arm, values in ((cell.baseline, cell.baseline_values), (cell.arm, cell.values)):
            key = (arm, cell.workload, cell.metric, cell.unit, cell.better)
            out.setdefault(key, math.fsum(math.log(v) for v in values) / len(values))
    return out


def _reason(before: int, after: int, verdict: Verdict) -> str:
    boots = f"unpaired, {before} against {after} boot{'s' if after != 1 else ''}"
    if min(before, after) < LEAST_BOOTS:
        return f"{boots}: with one boot on a side the spread between boots is unknown, so this is no verdict"
    if verdict is Verdict.NONE:
        return f"{boots}: the interval reaches across the margin; more boots narrow it, more blocks do not"
    return boots
