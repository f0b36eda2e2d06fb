"""The ratio of two arithmetic means with Fieller's interval, for the overhead of all blocks together.

The mean of the ratios of single blocks would be another quantity than the ratio of the totals."""

from __future__ import annotations

import math

import numpy as np
import scipy  # its modules are loaded on first use, so the first block need not wait for them

from ...model.result import Interval
from . import FloatArray
from .mean import variance


def fieller(numerator: FloatArray, denominator: FloatArray, confidence: float) -> Interval:
    """Return mean(numerator) / mean(denominator) of paired values (same blocks, same length), with its
    interval.

    The ends are the roots of (my^2 - q vy) r^2 - 2 (mx my - q cxy) r + (mx^2 - q vx), where mx and my are the
    means of numerator and denominator, vx, vy and cxy the variances and the covariance of these means, and q
    the square of Student's t. If the denominator does not differ from zero at this confidence, the set of
    accepted ratios is not an interval, and infinite ends are returned.

    Raises ValueError for unequal lengths or fewer than two pairs.
    """
    n = numerator.size
    if n != denominator.size or n < 2:
        raise ValueError("the same two or more blocks are needed on both sides")
    mx, my = float(np.mean(numerator)), float(np.mean(denominator))
    vx, vy = variance(numerator) / n, variance(denominator) / n
    cxy = float(np.sum((numerator - mx) * (denominator - my)) / (n - 1)) / n
    q = float(scipy.special.stdtrit(n - 1, 0.5 + confidence / 2)) ** 2
    a, b, c = my**2 - q * vy, mx * my - q * cxy, mx**2 - q * vx
    centre = mx / my if my != 0 else math.nan
    if a <= 0:
        return Interval.unbounded(centre)
    # With a > 0 the discriminant is negative only because of rounding.
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Interval(centre=centre, low=(b - root) / a, high=(b + root) / a)
