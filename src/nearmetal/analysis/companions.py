"""Statistics that are shown beside a cell's interval and do not affect its verdict: the ratio of totals, the
spread within and between blocks, and the evidence against "no difference at all"."""

from __future__ import annotations

import math

import numpy as np

from ..model.result import Interval, SliceSpread
from ..model.study import Better
from .fold.comparisons import Paired
from .fold.counts import FloatArray
from .intervals.fieller import fieller
from .intervals.sign import log_e_value
from .intervals.variance_components import components_of_moments


def totals(paired: Paired, better: Better, confidence: float) -> Interval | None:
    """Return the overhead of all blocks together, as a fraction with Fieller's interval: the total time of
    the arm divided by that of its baseline, minus 1. Returns None for fewer than two blocks.

    A rate is replaced by its reciprocal, the time of one unit of work.
    """
    if paired.d.size < 2:
        return None
    power = 1.0 if better is Better.LOWER else -1.0
    ratio = fieller(paired.env_values**power, paired.base_values**power, confidence)
    return Interval(centre=ratio.centre - 1, low=ratio.low - 1, high=ratio.high - 1)


def slice_spread(paired: Paired, block_seconds: float) -> SliceSpread | None:
    """Return the spread of the paired log ratios within blocks and between blocks.

    Returns None if there are fewer than two blocks, if blocks have no slices, or if the time of a slice is
    unknown.
    """
    both = paired.both
    if both.blocks.size < 2 or bool(np.isnan(both.variances).any()):
        return None
    each = float(np.median(both.env_slice) + np.median(both.base_slice))
    if math.isnan(each):
        return None
    within, between = components_of_moments(both.centres, both.variances, both.lengths)
    slices = round(float(np.median(both.lengths)))
    return SliceSpread(
        slices=slices,
        slice_variance=within,
        block_variance=between,
        slice_seconds=each,
        other_seconds=max(block_seconds - slices * each, 0.0),
    )


def evidence(d: FloatArray) -> float:
    """Return the e-value of the signs of d against the hypothesis that the median is 0. It is valid at any
    stopping block.

    Zeros are counted on the side that makes the e-value smallest.

    Raises ValueError if d is empty.
    """
    n = int(d.size)
    if n == 0:
        raise ValueError("at least one block is needed")
    below, at_most = int(np.sum(d < 0)), int(np.sum(d <= 0))
    nearest = min(max(n // 2, below), at_most)
    log_e = log_e_value(n, nearest)
    return math.exp(log_e) if log_e < 700 else math.inf
