"""Compares boot states. Conditions that cannot change within a block (kernel, machine, day) are compared
unpaired, boot by boot.

Each boot gives one mean of logs per arm and metric, however often it was measured. The sample size n is the
number of boots, never the number of blocks: treating the blocks of one boot as independent makes half of all
verdicts false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model.result import Analysis, Interval, Verdict
from ..model.study import Better
from .intervals.mean import welch
from .verdict import judge

LEAST_BOOTS = 2


@dataclass(frozen=True, kw_only=True)
class StateCell:
    """Boot state `after` compared with `before` for one arm and metric.

    arm: the arm in `before`.
    other: the arm in `after`; the same as arm, unless two different arms are compared.
    boots: number of boots (before, after).
    before, after: geometric means of the boot means, in base units.
    overhead, low, high: time-equivalent share and its interval; low and high are infinite if a side has only
        one boot.
    verdict: always NONE if a side has only one boot.
    reason: why, in words.
    guest: as in model.result.Cell, from either boot state.
    """

    arm: str
    other: str
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
    guest: str = ""


def compare_boots(
    before: Sequence[float], after: Sequence[float], better: Better, confidence: float
) -> Interval:
    """Return Welch's interval of theta = s (mean(after) - mean(before)), with s = 1 if lower is better, else
    -1.

    before, after: means of logs, one number per boot.

    The ends are infinite if a side has fewer than two boots, because the spread between boots is then
    unknown.

    Raises ValueError if a side has no boot.
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
    before: Sequence[Sequence[Analysis]],
    after: Sequence[Sequence[Analysis]],
    *,
    margin: float,
    confidence: float,
    against: Sequence[tuple[str, str]] = (),
) -> tuple[StateCell, ...]:
    """Compare every arm and metric that both boot states have.

    before, after: the analyses of the runs of each boot, in any order.
    against: pairs of arms ('bare/1x1') of `before` and `after` to compare, or pairs of environments ('bare'),
        which are compared placement by placement. If empty, each arm is compared with itself.
    """
    old, new = [_boot_means(a) for a in before], [_boot_means(a) for a in after]
    out: list[StateCell] = []
    for key in dict.fromkeys(k for boot in old for k in boot):
        left = [boot[key] for boot in old if key in boot]
        for arm in _others(key.arm, against):
            right = [boot[own] for boot in new if (own := replace(key, arm=arm)) in boot]
            if right:
                out.append(_cell(key, arm, left, right, margin=margin, confidence=confidence))
    return tuple(out)


@dataclass(frozen=True, kw_only=True)
class _Key:
    """Identifies one arm and metric to compare."""

    arm: str
    workload: str
    metric: str
    unit: str
    better: Better


@dataclass(frozen=True, kw_only=True)
class _Mean:
    """The mean of one run or one boot.

    log: mean of the logs of the values.
    guest: as in StateCell.
    """

    log: float
    guest: str


def _others(arm: str, against: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the arms of `after` that an arm of `before` is compared with."""
    if not against:
        return (arm,)
    environment, _, placement = arm.partition("/")
    whole = [after for before, after in against if before == arm]
    parts = [f"{after}/{placement}" for before, after in against if before == environment]
    return tuple(dict.fromkeys((*whole, *parts)))


def _cell(
    key: _Key,
    other: str,
    before: Sequence[_Mean],
    after: Sequence[_Mean],
    *,
    margin: float,
    confidence: float,
) -> StateCell:
    left, right = [m.log for m in before], [m.log for m in after]
    theta = compare_boots(left, right, key.better, confidence)
    enough = min(len(left), len(right)) >= LEAST_BOOTS
    verdict = judge(theta.low, theta.high, n=1 if enough else 0, margin=margin, min_blocks=1)
    return StateCell(
        arm=key.arm,
        other=other,
        workload=key.workload,
        metric=key.metric,
        unit=key.unit,
        better=key.better,
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
        guest=next((m.guest for m in (*after, *before) if m.guest), ""),
    )


def _boot_means(runs: Sequence[Analysis]) -> Mapping[_Key, _Mean]:
    """Return the mean of logs of one boot, by arm and metric.

    For each run of the boot, the logs of the values of its blocks are averaged. The result is the mean over
    the runs.
    """
    found: dict[_Key, list[_Mean]] = {}
    for analysis in runs:
        for key, mean in _run_means(analysis).items():
            found.setdefault(key, []).append(mean)
    return {
        key: _Mean(log=math.fsum(m.log for m in means) / len(means), guest=means[0].guest)
        for key, means in found.items()
    }


def _run_means(analysis: Analysis) -> Mapping[_Key, _Mean]:
    out: dict[_Key, _Mean] = {}
    for cell in (*analysis.noise_floor.cells, *analysis.cells):
        for arm, values in ((cell.baseline, cell.baseline_values), (cell.arm, cell.values)):
            key = _Key(
                arm=arm, workload=cell.workload, metric=cell.metric, unit=cell.unit, better=cell.better
            )
            mean = math.fsum(math.log(v) for v in values) / len(values)
            own = not cell.guest_of or arm.partition("/")[0] in cell.guest_of
            out.setdefault(key, _Mean(log=mean, guest=cell.guest if own else ""))
    return out


def _reason(before: int, after: int, verdict: Verdict) -> str:
    boots = f"unpaired, {before} against {after} boot{'s' if after != 1 else ''}"
    if min(before, after) < LEAST_BOOTS:
        return f"{boots}: with one boot on a side the spread between boots is unknown, so this is no verdict"
    if verdict is Verdict.NONE:
        return f"{boots}: the interval reaches across the margin; more boots narrow it, more rounds do not"
    return boots
