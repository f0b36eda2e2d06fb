"""Compares boot states. Conditions that cannot change within a block (kernel, machine, day) are compared
unpaired, boot by boot.

For each arm and metric, a boot gives one value: the mean of the natural logarithms of its measurements. The
sample size n is the number of boots, never the number of blocks: treating the blocks of one boot as
independent makes half of all verdicts false."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..model.result import Analysis, Cell, Interval, Verdict
from ..model.study import Better
from .intervals.mean import Moments, welch
from .intervals.rank_sum import least_size, rank_sum
from .verdict import judge, share_of


class StateQuantity(StrEnum):
    """The quantity that is compared over boots.

    VALUE: the value of an arm itself.
    COST: the overhead of an arm against the baseline of its own run.
    """

    VALUE = "value"
    COST = "cost"


@dataclass(frozen=True, kw_only=True)
class StateCell:
    """Boot state `after` compared with `before` for one arm and metric.

    arm: the arm in `before`.
    other: the arm in `after`; the same as arm, unless two different arms are compared.
    baseline: the arm that the cost refers to; '' if the values are compared.
    boots: number of boots (before, after).
    before, after: geometric means over the boots, in base units; for a cost, overheads as shares.
    overhead, low, high: change in time as a share, with its interval; low is -1 and high infinite if there
        are too few boots.
    family: number of comparisons for which a material verdict is corrected.
    deciding: whether the cell counts for the answer.
    verdict: always NONE if there are too few boots.
    alone: the verdict without the correction for the other comparisons of the family.
    guest: as in model.result.Cell, from either boot state.
    """

    arm: str
    other: str
    baseline: str
    quantity: StateQuantity
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
    family: int
    deciding: bool
    verdict: Verdict
    alone: Verdict
    reason: str
    guest: str = ""


@dataclass(frozen=True, kw_only=True)
class LeastBoots:
    """The least numbers of boots on each side.

    any_verdict: boots needed for any verdict. If there are fewer than `material`, only *equivalent* is
        possible.
    material: boots needed for a material verdict, which is corrected for all comparisons of the family.
    """

    any_verdict: int
    material: int


def least_boots(confidence: float, family: int) -> LeastBoots:
    """Return the least numbers of boots on each side with which the rank-sum interval can be finite.

    confidence: of one comparison.
    family: number of comparisons for which a material verdict is corrected.
    """
    alpha = _alpha(confidence)
    return LeastBoots(any_verdict=least_size(alpha), material=least_size(alpha / max(1, family)))


def _alpha(confidence: float) -> float:
    return round(1 - confidence, 12)  # 1 - 0.95 is a little more than 0.05


def compare_boots(before: Sequence[float], after: Sequence[float], better: Better, level: float) -> Interval:
    """Return the interval of theta = s (after - before), with s = 1 if lower is better, else -1.

    The result encloses two intervals. The exact rank-sum interval assumes only that both sides have the same
    distribution apart from the shift. Welch's interval keeps its level if the two variances differ.

    before, after: mean natural logarithms, one number per boot.
    level: error probability of the interval.

    The ends are infinite if there are too few boots for the level, and always if a side has a single boot,
    because its spread is not known. Raises ValueError if a side has no boot.
    """
    sign = 1 if better is Better.LOWER else -1
    old, new = ([sign * x for x in side] for side in (before, after))
    exact = rank_sum(old, new, level)
    if math.isinf(exact.low):
        return exact
    if min(len(old), len(new)) < 2:
        return Interval.unbounded(exact.centre)
    mean = welch(Moments.of(old), Moments.of(new), 1 - level).interval
    return replace(exact, low=min(exact.low, mean.low), high=max(exact.high, mean.high))


def compare_states(
    before: Sequence[Sequence[Analysis]],
    after: Sequence[Sequence[Analysis]],
    *,
    margin: float,
    confidence: float,
    against: Sequence[tuple[str, str]] = (),
    deciding: Callable[[str, str], bool] = lambda workload, metric: True,
    left_out: Collection[str] = (),
    one_boot: bool = False,
) -> tuple[StateCell, ...]:
    """Compare every arm and metric that both boot states have.

    For arms without a baseline in their runs (bare metal), the values are compared. For all other arms, the
    overheads against the baseline of their own run are compared.

    before, after: the analyses of the runs of each boot, in any order.
    against: pairs of arms ('bare/1x1') of `before` and `after` whose values are compared, or pairs of
        environments ('bare'), which are compared placement by placement. If given, only these pairs are
        compared.
    deciding: whether a workload and its metric count for the answer.
    left_out: workloads and arms that are not compared.
    one_boot: whether the same boot is on both sides. The states cannot be distinguished then.
    """
    old, new = [_boot_means(a) for a in before], [_boot_means(a) for a in after]
    found: list[tuple[_Key, str, list[_Mean], list[_Mean]]] = []
    for key in dict.fromkeys(k for boot in old for k in boot):
        left = [boot[key] for boot in old if key in boot]
        if key.workload in left_out or any(m.compared and not against for m in left) != (
            key.quantity is StateQuantity.COST
        ):
            continue
        for arm in _others(key.arm, against):
            right = [boot[own] for boot in new if (own := replace(key, arm=arm)) in boot]
            if right and not {key.arm, arm, key.baseline} & set(left_out):
                found.append((key, arm, left, right))
    decides = [deciding(key.workload, key.metric) for key, *_ in found]
    return tuple(
        _cell(
            *of,
            margin=margin,
            alpha=0.0 if one_boot else _alpha(confidence),
            confidence=confidence,
            family=decides.count(own),
            deciding=own,
        )
        for of, own in zip(found, decides, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class _Key:
    """Identifies one quantity to compare. The fields are those of StateCell."""

    arm: str
    baseline: str
    quantity: StateQuantity
    workload: str
    metric: str
    unit: str
    better: Better


@dataclass(frozen=True, kw_only=True)
class _Mean:
    """The mean of one run or one boot.

    log: mean natural logarithm of the values, or of the overheads as ratios of times.
    guest: as in StateCell.
    compared: whether the arm is compared with another arm in its run.
    """

    log: float
    guest: str
    compared: bool


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
    alpha: float,
    confidence: float,
    family: int,
    deciding: bool,
) -> StateCell:
    left, right = [m.log for m in before], [m.log for m in after]
    cost = key.quantity is StateQuantity.COST
    better = Better.LOWER if cost else key.better  # an overhead is a time
    theta = compare_boots(left, right, better, alpha)
    alone = _judge(theta, margin)
    strict = _judge(compare_boots(left, right, better, alpha / family), margin)
    chance = alone in (Verdict.SLOWER, Verdict.FASTER) and strict is not alone
    verdict = Verdict.NONE if chance else alone
    means = [math.fsum(side) / len(side) for side in (left, right)]
    return StateCell(
        **vars(key),
        other=other,
        boots=(len(left), len(right)),
        before=math.expm1(means[0]) if cost else math.exp(means[0]),
        after=math.expm1(means[1]) if cost else math.exp(means[1]),
        overhead=math.expm1(theta.centre),
        low=math.expm1(theta.low),
        high=share_of(theta.high),
        margin=margin,
        confidence=confidence,
        family=family,
        deciding=deciding,
        verdict=verdict,
        alone=alone,
        reason=_reason(theta, len(left), len(right), alone, alpha, family, chance=chance),
        guest=next((m.guest for m in (*after, *before) if m.guest), ""),
    )


def _judge(theta: Interval, margin: float) -> Verdict:
    return judge(theta.low, theta.high, margin=margin)


def _boot_means(runs: Sequence[Analysis]) -> Mapping[_Key, _Mean]:
    """Return the mean natural logarithm of each quantity over one boot.

    The logarithms are averaged over the blocks of each run, and the results over the runs of the boot.
    """
    found: dict[_Key, list[_Mean]] = {}
    for analysis in runs:
        for key, mean in _run_means(analysis).items():
            found.setdefault(key, []).append(mean)
    return {
        key: replace(means[0], log=math.fsum(m.log for m in means) / len(means))
        for key, means in found.items()
    }


def _run_means(analysis: Analysis) -> Mapping[_Key, _Mean]:
    compared = {c.arm for c in analysis.cells}
    out: dict[_Key, _Mean] = {}
    for cell in (*analysis.noise_floor.cells, *analysis.cells):
        if not cell.d:
            continue
        for key, logs in _logs(cell, compared):
            own = not cell.guest_of or key.arm.partition("/")[0] in cell.guest_of
            mean = math.fsum(logs) / len(logs)
            guest = cell.guest if own else ""
            out.setdefault(key, _Mean(log=mean, guest=guest, compared=key.arm in compared))
    return out


def _logs(cell: Cell, compared: Collection[str]) -> Iterator[tuple[_Key, Sequence[float]]]:
    """Yield both values of a cell, and also its overhead if its baseline is compared with no other arm."""
    for arm, values in ((cell.baseline, cell.baseline_values), (cell.arm, cell.values)):
        yield _key(cell, arm, "", StateQuantity.VALUE), [math.log(v) for v in values]
    if cell.arm in compared and cell.baseline not in compared:
        yield _key(cell, cell.arm, cell.baseline, StateQuantity.COST), cell.d


def _key(cell: Cell, arm: str, baseline: str, quantity: StateQuantity) -> _Key:
    return _Key(
        arm=arm,
        baseline=baseline,
        quantity=quantity,
        workload=cell.workload,
        metric=cell.metric,
        unit=cell.unit,
        better=cell.better,
    )


def _reason(
    theta: Interval, before: int, after: int, alone: Verdict, alpha: float, family: int, *, chance: bool
) -> str:
    boots = f"{before} against {after} boot{'s' if after != 1 else ''}"
    if alpha == 0:
        return "a boot is on both sides: no verdict"
    if math.isinf(theta.low):
        return f"{boots}: no verdict, which needs at least {least_size(alpha)} on each side"
    if chance:
        return f"{boots}: {alone.value} by itself, but among {family} comparisons that may be chance"
    if alone is Verdict.NONE:
        return f"{boots}: the interval reaches across the margin; more boots narrow it, more rounds do not"
    return boots
