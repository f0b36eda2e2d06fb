"""Figures printed in a paper, next to the corresponding values that were measured here. No I/O.

No value of a paper is used in an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from ....analysis.papers.claims import ClaimOutcome, far_words
from ....analysis.published import rate_loss, speed_gain
from ....model.papers.published import PublishedFigure, Quantity
from ....model.record import JsonValue
from ....model.result import Analysis, Cell, Interval
from ....model.study import Study
from ....published import PHASES
from ....units import show, show_effect
from ...record_index import RecordIndex
from ...sheet import Grid
from ...text import one_line
from ..cells import bounded, has_interval
from ..profile import ProfileLine, profile_lines

COMPUTATION, COMMUNICATION, START_OF_MPI = PHASES
WHOLE = ("rate", "bandwidth", "wall")
"""Metrics that represent a whole kernel."""


@dataclass(frozen=True, kw_only=True)
class OwnValue:
    """One of our values, in base units.

    what: the workload; for the quantities WALL and VALUE, the description of the printed figure.
    low, high: the interval of the value. The ends are infinite if there is no interval yet, and equal to the
        value if it cannot have an interval.
    """

    what: str
    value: float
    low: float
    high: float
    text: str

    def as_json(self) -> dict[str, JsonValue]:
        low, high = end_or_none(self.low), end_or_none(self.high)
        return {"what": self.what, "value": self.value, "low": low, "high": high, "text": self.text}


def end_or_none(end: float) -> float | None:
    """Return an end of an interval of overheads; None if it is not bounded: -1 is exp(-inf) - 1."""
    return end if math.isfinite(end) and end > -1 else None


@dataclass(frozen=True, kw_only=True)
class PrintedComparison:
    """A figure that a paper printed, and our values for it.

    found: our values; empty if nothing was measured.
    lacking: reason why `found` is empty.
    far: why our values cannot be compared with the printed one; '' if they can.
    """

    figure: PublishedFigure
    found: tuple[OwnValue, ...] = ()
    lacking: str = ""
    far: str = ""

    @property
    def likeness(self) -> str:
        """Text on how well the printed figure can be compared with our values."""
        return _likeness(self.figure, self.far)

    @property
    def printed(self) -> str:
        """Return the paper's figure as text: '15 to 67 %', '1.04 s', '20'."""
        f = self.figure
        if f.quantity is Quantity.VALUE:
            return f.text
        if f.unit == "share":
            low, high = (f"{100 * v:.4g}" for v in (f.low, f.high))
            return f"{low} %" if low == high else f"{low} to {high} %"
        if f.quantity is Quantity.TIME:
            return f"{1000 * f.low:.8g} ms"  # every digit that was printed
        if f.quantity is Quantity.WALL:
            return f"{f.low:g} {f.unit}"
        return show(f.low, f.unit) if f.unit else f"{f.low:g}"

    @property
    def ours(self) -> str:
        if not self.found:
            return self.lacking
        if len(self.found) == 1:
            return self.found[0].text
        return "; ".join(f"{f.what} {f.text}" for f in self.found)

    def as_json(self) -> dict[str, JsonValue]:
        """Return the printed figure, its source and its likeness as JSON, and our values separately."""
        f = self.figure
        return {
            "what": f.what,
            "published": {"low": f.low, "high": f.high, "unit": f.unit, "text": self.printed},
            "where": f.source,
            "quantity": f.quantity.value,
            "likeness": f.likeness.value,
            "far": self.far,
            "differs": f.differs,
            "workloads": list(f.workloads),
            "class": f.size,
            "arm": f.arm,
            "baseline": f.baseline,
            "phase": f.phase,
            "ours": [x.as_json() for x in self.found],
            "lacking": self.lacking,
        }


def beside(
    figures: Sequence[PublishedFigure],
    places: Mapping[str, str],
    study: Study | None,
    analysis: Analysis | None,
    records: RecordIndex,
    why: str,
) -> tuple[PrintedComparison, ...]:
    """Return each figure with our values.

    places: our arm, by the paper's name for it.
    study, analysis: None if nothing was measured.
    why: why the part has no results; used if it has none.
    """
    if study is None or analysis is None:
        return tuple(PrintedComparison(figure=f, lacking=f"not measured: {why}") for f in figures)
    ran = {w.name: w.ran for w in study.workloads if w.ran}
    lines = profile_lines(tuple(dict.fromkeys(places.values())), records)
    computing = _printed_computing(figures)
    return tuple(_one(f, places, ran, analysis, lines, computing) for f in figures)


def _printed_computing(figures: Sequence[PublishedFigure]) -> dict[tuple[str, str], float]:
    """Return the printed share of computation in computation and communication, by workload and arm."""
    times = {
        (workload, f.arm, f.phase): f.low
        for f in figures
        if f.quantity is Quantity.TIME
        for workload in f.workloads[:1]
    }
    return {
        (workload, arm): seconds / (seconds + messages)
        for (workload, arm, phase), seconds in times.items()
        if phase == COMPUTATION and (messages := times.get((workload, arm, COMMUNICATION))) is not None
    }


def _far(own: ProfileLine, there: float | None) -> str:
    """Return how our share of computation differs from the paper's; '' if they are near each other, or if one
    of them is not known.

    there: the paper's share as a fraction; None if it is not known.
    """
    return "" if there is None or own.computing is None else far_words(own.computing, there, there)


def _likeness(f: PublishedFigure, far: str) -> str:
    return f"{ClaimOutcome.IMPOSSIBLE}: {far}" if far else f.likeness.value


def _one(
    f: PublishedFigure,
    places: Mapping[str, str],
    ran: Mapping[str, str],
    analysis: Analysis,
    lines: Sequence[ProfileLine],
    computing: Mapping[tuple[str, str], float],
) -> PrintedComparison:
    if f.quantity is Quantity.GAIN and not f.arm:
        return PrintedComparison(figure=f, lacking=f"needs more than one boot state: {f.differs}")
    arm, baseline = places.get(f.arm, ""), places.get(f.baseline, "")
    if not arm or (f.baseline and not baseline):
        return PrintedComparison(figure=f, lacking="not measured: no such environment on this machine")
    wanted = {name for name, what in ran.items() if what in f.workloads}
    if f.quantity in (Quantity.TIME, Quantity.TIME_SHARE):
        own = next((line for line in lines if line.arm == arm and line.workload in wanted), None)
        if own is None:
            return PrintedComparison(figure=f, lacking="not measured: no profile")
        if f.phase not in (known := phases(own)):
            lacking = f'not measured: "{f.phase}" is not one of {", ".join(known)}'
            return PrintedComparison(figure=f, lacking=lacking)
        far = _far(own, computing.get((f.workloads[0], f.arm)))
        return PrintedComparison(figure=f, found=(_phase(f, own),), far=far)
    if f.quantity in (Quantity.WALL, Quantity.VALUE):
        values = _values(analysis, arm, wanted, f.metric or "wall")
        found = tuple(_value(f, interval, unit) for interval, unit in values)
        return PrintedComparison(figure=f, found=found, lacking="" if found else "not measured yet")
    metrics = (f.metric,) if f.metric else WHOLE
    cells = [c for c in analysis.cells if c.arm == arm and c.workload in wanted and c.metric in metrics]
    if f.quantity in _AS_PRINTED:
        found = tuple(_overhead(f.quantity, c) for c in cells if c.baseline == baseline)
    else:  # from the arm's own trials, for any baseline
        found = tuple(_trouble(f, c) for c in {c.workload: c for c in cells}.values())
    return PrintedComparison(figure=f, found=found, lacking="" if found else "not measured yet")


def _values(analysis: Analysis, arm: str, wanted: Set[str], metric: str) -> list[tuple[Interval, str]]:
    """Return one pair, the value of a metric of an arm and its unit, from the first cell of a workload in
    `wanted` that has the arm on either side. The list is empty if there is no such cell."""
    for c in analysis.cells:
        if c.workload in wanted and c.metric == metric and c.n and arm in (c.arm, c.baseline):
            return [(c.value if arm == c.arm else c.baseline_value, c.unit)]
    return []


def _value(f: PublishedFigure, v: Interval, unit: str) -> OwnValue:
    text = show(v.centre, unit)
    if f.quantity is Quantity.VALUE and math.isfinite(v.low) and math.isfinite(v.high):
        text += f" ({show(v.low, unit)} to {show(v.high, unit)})"
    return OwnValue(what=f.what, value=v.centre, low=v.low, high=v.high, text=text)


_AS_PRINTED: Mapping[Quantity, Callable[[float], float]] = {
    Quantity.OVERHEAD: float,
    Quantity.LOSS: rate_loss,
    Quantity.GAIN: speed_gain,
}
"""How a time-equivalent overhead is converted to the quantity that a paper printed."""


def _overhead(quantity: Quantity, c: Cell) -> OwnValue:
    convert = _AS_PRINTED[quantity]
    value = convert(c.overhead)
    low, high = sorted((convert(c.low), convert(c.high))) if bounded(c) else (-math.inf, math.inf)
    known = show_effect(value, low, high) if has_interval(c) else "no interval yet"
    text = f"{known}, n {c.n}"
    return OwnValue(what=one_line(c.workload), value=value, low=low, high=high, text=text)


def _phase(f: PublishedFigure, line: ProfileLine) -> OwnValue:
    seconds = phases(line)
    value = seconds[f.phase]
    text = show(value, "s")
    if f.quantity is Quantity.TIME_SHARE:
        value = value / whole if (whole := sum(seconds.values())) > 0 else math.nan
        text = f"{100 * value:.3g} %"
    return OwnValue(what=one_line(line.workload), value=value, low=value, high=value, text=text)


def phases(line: ProfileLine) -> dict[str, float]:
    """Return the seconds of each phase, by its name in published tables."""
    return {COMPUTATION: line.compute, COMMUNICATION: line.communication, START_OF_MPI: line.init}


def _trouble(f: PublishedFigure, c: Cell) -> OwnValue:
    """Return the number of TCP timeouts in a trial, or the seconds spent waiting for them. It is 0 if nothing
    was lost, and NaN if it was not counted."""
    t = c.network
    counted = 0.0 if t is None else (t.timeouts if f.quantity is Quantity.COUNT else t.waited)
    value = math.nan if counted is None else counted
    if f.quantity is Quantity.COUNT:
        text = "unavailable" if counted is None else f"{counted:.3g} in a trial"
    else:
        text = "unavailable" if counted is None else f"{show(counted, 's')} in a trial"
    return OwnValue(what=one_line(c.workload), value=value, low=value, high=value, text=text)


def times_grid(
    study: Study, places: Mapping[str, str], times: Sequence[PrintedComparison], records: RecordIndex
) -> Grid:
    """Return the table of the time that a process spent in each phase, with the paper's values beside ours.

    places: our arm, by the paper's name for it.
    times: the printed figures; at least one.
    """
    printed: dict[tuple[str, str, str], dict[Quantity, str]] = {}
    computing = _printed_computing([b.figure for b in times])
    for b in times:
        f = b.figure
        for kernel in f.workloads[:1]:
            printed.setdefault((kernel, f.arm, f.phase), {})[f.quantity] = b.printed
    sizes = {kernel: b.figure.size for b in times for kernel in b.figure.workloads[:1]}
    kernels = {w.name: w for w in study.kernels}
    on_emulated = {a.name for a in study.arms() if a.placement.node.emulated}
    rows = []
    for line in profile_lines(tuple(places.values()), records):
        workload = kernels[line.workload]
        place = next(word for word, arm in places.items() if arm == line.arm)
        seconds = phases(line)
        whole = sum(seconds.values()) or 1.0
        emulated = ", emulated" if line.arm in on_emulated else ""
        cells = [f"{workload.kernel.upper()}-{workload.params.get('class')}, {place}{emulated}"]
        for phase, value in seconds.items():
            cells.append(f"{100 * value / whole:.0f} %, {show(value, 's')}")
            held = printed.get((workload.kernel, place, phase), {})
            cells.append(", ".join(held[q] for q in (Quantity.TIME_SHARE, Quantity.TIME) if q in held))
        cells.append(f"{line.messages:,.0f}")
        cells.append(f"class {sizes[workload.kernel]}" if workload.kernel in sizes else "")
        cells.append(_likeness(times[0].figure, _far(line, computing.get((workload.kernel, place)))))
        rows.append(tuple(cells))
    heads = [h for phase in PHASES for h in (phase, "paper")]
    source = times[0].figure
    return Grid(
        title=f"Where the time of a process went, and the paper's {source.source} ({source.differs})",
        heads=("benchmark, environment", *heads, "messages of all ranks", "paper's class", "likeness"),
        rows=tuple(rows),
        numbers=True,
    )
