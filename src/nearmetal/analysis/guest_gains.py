"""Checks whether a slow clock explains that a guest beats bare metal or exceeds an upper bound. No I/O.

A guest measures its programs by its own clock. If this clock is slow, every time is too short and every rate
too high.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..model.result import Cell
from .instances import InstanceFigures


class ClockAnswer(StrEnum):
    """Whether the clock of a guest explains why the guest seems faster.

    EXPLAINS: the clock is slow by at least as much as the guest seems faster.
    UNSURE: the clock may be slow by as much, but its rate is not known precisely enough.
    PARTLY: the clock is slow, but by less than the guest seems faster.
    AGREES: the clock is not known to be slow, so it explains nothing.
    UNKNOWN: the guest's clock was not compared with the machine's.
    """

    EXPLAINS = "explained by its clock"
    UNSURE = "perhaps explained by its clock, whose rate is not known well enough"
    PARTLY = "not explained by its clock alone"
    AGREES = "not explained"
    UNKNOWN = "its clock was not compared"


@dataclass(frozen=True, kw_only=True)
class GuestGain:
    """A guest that is faster than bare metal, or that exceeds an upper bound of bare metal.

    beyond: True if the guest exceeds an upper bound; False if it is faster than its baseline.
    gain: the negative overhead to explain, as a fraction: centre, lower and upper end of its interval. If the
        guest exceeds a bound, all three are 1 / (value / bound) - 1, without an interval.
    rate: rate of the guest's clock relative to the machine's, minus 1; None if they were not compared.
    error: uncertainty of that rate; 0 if unknown.
    """

    cell: Cell
    beyond: bool
    gain: tuple[float, float, float]
    rate: float | None
    error: float
    answer: ClockAnswer


def guest_gains(
    cells: Sequence[Cell], figures: Sequence[InstanceFigures], guests: Collection[str], bare: Collection[str]
) -> tuple[GuestGain, ...]:
    """Return the gains of guests, in the order of the cells.

    A guest is faster than its baseline if the whole interval of its overhead is below zero.

    figures: clock rates of the guests, by arm and workload.
    guests: names of the environments that are guests.
    bare: names of the environments that are bare metal.
    """
    known = {(f.arm, f.workload): f for f in figures}
    out = []
    for c in cells:
        if c.environment not in guests:
            continue
        if c.baseline.partition("/")[0] in bare and c.high < 0 and c.low <= c.high:
            out.append(_gain(c, (c.overhead, c.low, c.high), known, beyond=False))
        if c.beyond is not None:
            out.append(_gain(c, (1 / c.beyond.share - 1,) * 3, known, beyond=True))
    return tuple(out)


def _gain(
    cell: Cell,
    gain: tuple[float, float, float],
    known: Mapping[tuple[str, str], InstanceFigures],
    *,
    beyond: bool,
) -> GuestGain:
    figures = known.get((cell.arm, cell.workload))
    rate = None if figures is None else figures.clock_rate
    error = 0.0 if figures is None or figures.clock_rate_error is None else figures.clock_rate_error
    return GuestGain(
        cell=cell,
        beyond=beyond,
        gain=gain,
        rate=rate,
        error=error,
        answer=ClockAnswer.UNKNOWN if rate is None else answer_of(gain[2], rate, error),
    )


def answer_of(high: float, rate: float, error: float) -> ClockAnswer:
    """Return whether the rate of a guest's clock explains a negative overhead.

    A clock that runs at 1 + rate shows 1 + rate times the time that passed, so it explains an overhead of
    `rate`.

    high: upper end of the interval of the overhead, as a fraction.
    rate: rate of the clock relative to the machine's, minus 1.
    error: uncertainty of the rate.
    """
    if rate + error <= high:
        return ClockAnswer.EXPLAINS
    if rate - error <= high:
        return ClockAnswer.UNSURE
    return ClockAnswer.PARTLY if rate + error < 0 else ClockAnswer.AGREES
