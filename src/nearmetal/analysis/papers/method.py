"""Applies the method of a paper to our data. Its answer is shown beside ours and affects no verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from ...model.papers.published import MethodKind, PaperMethod
from ...model.study import Better
from ..intervals.mean import Moments, welch


@dataclass(frozen=True, kw_only=True)
class MethodAnswer:
    """The result of a paper's method for two samples.

    baseline, sample: the values of the baseline and of the environment.
    differs: whether the two differ according to the method; None if there are too few values.
    text: the answer in a clause.
    t, freedom: t and degrees of freedom of the t-test; t is negative if the mean of the environment is
        smaller. None for other methods, with too few values, and if neither side has any spread.
    """

    baseline: Moments
    sample: Moments
    differs: bool | None
    text: str
    t: float | None = None
    freedom: float | None = None


def answer_of(
    method: PaperMethod, baseline: Sequence[float], values: Sequence[float], better: Better
) -> MethodAnswer:
    """Decide by a paper's method whether an environment and its baseline differ.

    baseline, values: at least one value each.
    """
    a, b = Moments.of(baseline), Moments.of(values)
    if method.kind is not MethodKind.MEANS and min(a.n, b.n) < 2:
        return MethodAnswer(baseline=a, sample=b, differs=None, text="needs two rounds")
    match method.kind:
        case MethodKind.T_TEST:
            return _t_test(method, a, b, better)
        case MethodKind.INTERVALS:
            half = [_half_width(s, method.confidence) for s in (a, b)]
            name = f"the {100 * method.confidence:g} % intervals of the means"
        case MethodKind.DEVIATIONS:
            half = [a.deviation, b.deviation]
            name = "mean ± standard deviation of both"
        case MethodKind.MEANS:
            half = [0.0, 0.0]
            name = ""
    apart = abs(b.mean - a.mean) > sum(half)
    if method.kind is MethodKind.MEANS:
        text = _side(a, b, better) if apart else "equal means"
    else:
        text = f"{_side(a, b, better)}: {name} do not overlap" if apart else f"no difference: {name} overlap"
    return MethodAnswer(baseline=a, sample=b, differs=apart, text=text)


def _t_test(method: PaperMethod, a: Moments, b: Moments, better: Better) -> MethodAnswer:
    test = welch(a, b, method.confidence) if a.deviation or b.deviation else None
    differs = a.mean != b.mean if test is None else abs(test.t) > test.limit
    text = f"significant: {_side(a, b, better)}" if differs else "not significant"
    if test is None:
        return MethodAnswer(baseline=a, sample=b, differs=differs, text=f"{text} (no spread)")
    text += f" (t = {abs(test.t):.3g}; {100 * method.confidence:g} % needs {test.limit:.3g})"
    return MethodAnswer(baseline=a, sample=b, differs=differs, text=text, t=test.t, freedom=test.df)


def _half_width(s: Moments, confidence: float) -> float:
    """Return half the width of Student's interval of the mean."""
    return float(special.stdtrit(s.n - 1, (1 + confidence) / 2)) * s.deviation / math.sqrt(s.n)


def _side(a: Moments, b: Moments, better: Better) -> str:
    return "slower" if (b.mean > a.mean) is (better is Better.LOWER) else "faster"
