"""Computes the work that fills a slice: the number of units, from measured slices of one kernel. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

SLICE_SECONDS = 1e-3
"""Seconds that the work of a slice takes on the baseline. At equal total time, shorter slices have a smaller
spread (METHOD, 'Slices')."""
TOKEN_SHARE = 10
"""Least ratio of the duration of a slice, as mean over the arms, to the time of passing a token."""
LONGEST_TARGET = 4e-3
"""Upper limit of target_seconds(). If passing a token seems to take more than a tenth of this, the machine
was busy with other work, or is an emulated guest. Longer slices would not help then."""
SLOWEST_SECONDS = 20e-3
"""The work is reduced until the slices of the slowest arm take at most this many seconds, as far as
TOKEN_SHARE allows."""
GROWTH = 64
"""Largest factor between two trial slices."""


def target_seconds(token: float) -> float:
    """Return the seconds that a slice should take on the baseline.

    token: seconds that passing a token costs.
    """
    return min(max(SLICE_SECONDS, TOKEN_SHARE * token), LONGEST_TARGET)


def next_trial(
    units: int, seconds: float, *, least: int, target: float, most: int | None = None
) -> int | None:
    """Return the number of units of work for the next trial slice.

    Returns None if no further trial slice is needed: the last one took at least half of `target`, or it had
    the largest number of units.

    units: units of the last trial slice.
    seconds: duration of the last trial slice.
    least: units of one indivisible step; the result is a multiple of it.
    target: wanted duration of a slice in seconds.
    most: largest number of units; None for no limit.
    """
    if seconds >= target / 2 or (most is not None and units + least > most):
        return None
    grown = units * min(GROWTH, 0.8 * target / seconds if seconds > 0 else GROWTH)
    return max(units + least, _multiple(grown, least, most))


def fitting_units(
    units: int, seconds: Sequence[float], *, least: int, target: float, most: int | None = None
) -> int:
    """Return the number of units of work that takes about `target` seconds. For least, target and most, see
    next_trial().

    seconds: durations of slices of `units` units. The shortest is used, since other processes only add time.
    """
    return _multiple(units * target / min(seconds), least, most)


def capped_units(units: int, arms: Sequence[float], *, least: int, token: float) -> int:
    """Return `units`, or fewer if a slice of the slowest arm would take too long.

    arms: seconds of a slice of `units` units on each arm.
    least: units of one indivisible step.
    token: seconds that passing a token takes.
    """
    slowest, together = max(arms), sum(arms)
    if slowest <= SLOWEST_SECONDS:
        return units
    share = max(SLOWEST_SECONDS / slowest, min(1.0, TOKEN_SHARE * token * len(arms) / together))
    return _multiple(units * share, least)


def _multiple(units: float, least: int, most: int | None = None) -> int:
    return max(1, int((units if most is None else min(units, most)) / least)) * least
