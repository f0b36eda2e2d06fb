"""Variance components of two levels: within groups and between groups."""

from __future__ import annotations

import numpy as np

from . import FloatArray, IntArray


def group_moments(values: FloatArray, lengths: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and unbiased variance of each group; the variance is nan for fewer than two values.

    values: shape (groups, longest); entries after the end of a group are ignored, and no bit of the result
        depends on their number.
    lengths: shape (groups,), each at least 1.
    """
    if lengths.size == 0:
        return np.empty(0), np.empty(0)
    flat = values[np.arange(values.shape[1]) < lengths[:, None]]
    first = np.cumsum(lengths) - lengths
    means: FloatArray = np.add.reduceat(flat, first) / lengths
    squares = np.add.reduceat((flat - np.repeat(means, lengths)) ** 2, first)
    return means, squares / np.where(lengths > 1, lengths - 1.0, np.nan)


def components_of_moments(means: FloatArray, variances: FloatArray, lengths: IntArray) -> tuple[float, float]:
    """Return the unbiased variance within groups and between groups, for groups of unequal lengths.

    The variance between groups may be negative by chance. It is the variance of the groups' means minus the
    part that is due to the spread within groups. If all groups are equally long, it is the variance component
    T2 of Kalibera and Jones for two levels.

    means, variances, lengths: mean, variance and number of values of each group, shape (groups,). At least
        two groups with at least two values each are needed.

    Raises ValueError if a group or a value is missing.
    """
    if lengths.size < 2 or int(lengths.min()) < 2:
        raise ValueError("every level needs at least two repetitions")
    within = float(np.mean(variances))
    return within, float(np.var(means, ddof=1) - np.mean(variances / lengths))
