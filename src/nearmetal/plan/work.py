"""Computes the work that fills a slice: the number of units, from measured slices of one kernel. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

SLICE_SECONDS = 1e-3
"""Seconds that the work of a slice takes on the baseline. At equal total time, shorter slices have a smaller
spread (METHOD, 'Slices')."""
TOKEN_SHARE = 10
"""Least ratio of the mean slice of a round, over its arms, to the cost of passing a token."""
LONGEST_TARGET = 4e-3
"""Longest target in seconds. If passing a token seems to cost more than a tenth of this, the machine was busy
with other work, or it is an emulated guest; longer slices would not help."""
SLOWEST_SECONDS = 20e-3
"""Longest slice, in seconds, of an arm that is slower than the baseline, as far as TOKEN_SHARE allows."""
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
    """Return the units of the next trial slice.

    Returns None if `units` are close enough to the target to be scaled, or are already the maximum.
    seconds: duration of the last trial slice, with this many units.
    """
    if seconds >= target / 2 or (most is not None and units + least > most):
        return None
    grown = units * min(GROWTH, 0.8 * target / seconds if seconds > 0 else GROWTH)
    return max(units + least, _multiple(grown, least, most))


def fitting_units(
    units: int, seconds: Sequence[float], *, least: int, target: float, most: int | None = None
) -> int:
    """Return the units that take `target` seconds: a multiple of `least`, at least `least`, and no more than
    `most`.

    seconds: durations of slices of `units`; the fastest one is used, since other processes only add time.
    """
    return _multiple(units * target / min(seconds), least, most)


def capped_units(units: int, arms: Sequence[float], *, least: int, token: float) -> int:
    """Return fewer units if the slowest arm would take too long.

    arms: seconds of a slice of `units` on each arm.
    """
    slowest, together = max(arms), sum(arms)
    if slowest <= SLOWEST_SECONDS:
        return units
    share = max(SLOWEST_SECONDS / slowest, min(1.0, TOKEN_SHARE * token * len(arms) / together))
    return _multiple(units * share, least)


def _multiple(units: float, least: int, most: int | None = None) -> int:
    return max(1, int((units if most is None else min(units, most)) / least)) * least
