"""Variance components of a balanced nested design (runs in processes in boots), after Kalibera and Jones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class VarianceComponents:
    """Variance components by level, lowest (run) first.

    s2: variance of the means of a level inside the level above (biased).
    t2: unbiased component of the level; negative if chance made it so, and never clipped.
    """

    mean: float
    s2: tuple[float, ...]
    t2: tuple[float, ...]


def variance_components(values: FloatArray) -> VarianceComponents:
    """Return the variance components of values of shape (r_n, ..., r_2, r_1), highest level first.

    S2_i is the variance, with r_i - 1, of the means over all lower levels, averaged over the higher levels;
    T2_1 = S2_1, T2_i = S2_i - S2_(i-1) / r_(i-1). Raises ValueError for a level repeated fewer than twice: a
    spread from one value is unknown, not zero. Source: Kalibera and Jones, 2012 (technical report, section
    6).
    """
    if values.ndim == 0 or min(values.shape) < 2:
        raise ValueError("every level needs at least two repetitions")
    means = values.astype(np.float64)
    s2: list[float] = []
    t2: list[float] = []
    below = 1
    for repetitions in values.shape[::-1]:
        spread = float(np.mean(np.var(means, axis=-1, ddof=1)))
        t2.append(spread - s2[-1] / below if s2 else spread)
        s2.append(spread)
        means, below = np.mean(means, axis=-1), repetitions
    return VarianceComponents(mean=float(np.mean(values)), s2=tuple(s2), t2=tuple(t2))


def group_moments(values: FloatArray, lengths: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return the mean and unbiased variance of each group; the variance is nan for fewer than two values.

    values: shape (groups, longest); entries after the end of a group are ignored.
    lengths: shape (groups,).
    """
    inside = np.arange(values.shape[1]) < lengths[:, None]
    means = np.where(inside, values, 0.0).sum(axis=1) / lengths
    squares = np.where(inside, values - means[:, None], 0.0) ** 2
    freedom = np.where(lengths > 1, lengths - 1.0, np.nan)
    return means, squares.sum(axis=1) / freedom


def components_of_moments(
    means: FloatArray, variances: FloatArray, lengths: NDArray[np.int64]
) -> tuple[float, float]:
    """Return the unbiased variance within groups and between groups, for groups of unequal lengths.

    The variance between groups is negative if chance made it so. It is the variance of the groups' means
    minus the part that is due to the spread within groups; if all groups are equally long, it is T2 of two
    levels.
    means, variances, lengths: of each group, shape (groups,); two groups or more, each at least 2 long.
    Raises ValueError if a group or a value is missing.
    """
    if lengths.size < 2 or int(lengths.min()) < 2:
        raise ValueError("every level needs at least two repetitions")
    within = float(np.mean(variances))
    return within, float(np.var(means, ddof=1) - np.mean(variances / lengths))
