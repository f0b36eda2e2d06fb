"""Charts of the counters of guests for each second of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from ...analysis.instances import CPU, RATES, memory_of, rates_of, shares_of
from ...samplers import SampleSection, in_windows
from ...units import scale_of
from .altair_here import alt
from .chart import Chart, Palette, Row
from .parts import colour_and_shape, data, layered, short, tips

HEIGHT = 170
_MEMORY = ("swap", "free", "inactive", "active")


@dataclass(frozen=True, kw_only=True)
class GuestRun:
    """One guest during one run.

    points: for each sample interval, the second of the run at which it ends, and values by name: the shares
        of CPU time (CPU), the bytes of 'swap', 'free', 'inactive' and 'active', and the rates (RATES).
    """

    instance: int
    points: tuple[tuple[float, Mapping[str, float]], ...]


def runs_of(sections: Sequence[SampleSection], trial: str, workload: str) -> tuple[GuestRun, ...]:
    own = [s for s in sections if s.header.trial == trial and s.header.windows.get(workload)]
    return tuple(
        GuestRun(instance=n, points=tuple(_points(s, s.header.windows[workload][-1])))
        for n, s in enumerate(own, 1)
    )


def _points(section: SampleSection, window: tuple[float, float]) -> list[tuple[float, Mapping[str, float]]]:
    """Return the points between the start and the end of a run, one for each sample interval."""
    begin, end = window
    scope = next((scope for s in section.samples for scope in s.scopes), None)
    if scope is None:
        return []
    inner = [s.monotonic for s in section.samples if begin + 0.2 < s.monotonic < end - 0.2]
    out: list[tuple[float, Mapping[str, float]]] = []
    for first, last in pairwise((begin, *inner, end)):
        counted = in_windows(section.samples, scope, [(first, last)])
        memory = memory_of(counted)
        found = {**shares_of(counted), **rates_of(counted)}
        if memory is not None:
            found |= {name: getattr(memory, name) for name in _MEMORY}
        if found:
            out.append((last - begin, found))
    return out


def instances_charts(arm: str, runs: Sequence[GuestRun]) -> list[Chart]:
    """Return charts of the CPU time of each guest, and of memory, disk traffic and system counters of all
    guests.
    """
    shown = [r for r in runs if r.points]
    if not shown:
        return []
    made = (
        *(_cpu(arm, r, len(shown)) for r in shown),
        _lines(arm, shown, "memory", "Memory", _MEMORY, "B"),
        _lines(arm, shown, "disk", "Disk traffic", RATES[:2], "B/s"),
        _lines(arm, shown, "system", "Interrupts and context switches", RATES[2:], ""),
    )
    return [c for c in made if c is not None]


def _lines_view(label: str, names: tuple[str, ...], several: bool, p: Palette) -> alt.LayerChart:
    colour, shape = colour_and_shape("what", names)
    x = alt.X("at:Q", title="seconds of the run", axis=alt.Axis(tickCount=8))
    y = alt.Y("value:Q", title=label, axis=alt.Axis(tickCount=5))
    lines = data("seconds").mark_line().encode(x=x, y=y, color=colour)
    marks = data("seconds").mark_point(filled=True, size=20, opacity=1, aria=True)
    if several:
        lines = lines.encode(strokeDash=alt.StrokeDash("guest:N", legend=None))
    return layered(lines, marks.encode(x=x, y=y, color=colour, shape=shape, description=tips()))


def _cpu(arm: str, run: GuestRun, guests: int) -> Chart:
    which = f", guest {run.instance}" if guests > 1 else ""
    return _chart(
        title=f"CPU time: {arm}{which}",
        caption="Shares of each second of a typical run, as the guest's own kernel counts them.",
        label="CPU time, %",
        names=CPU,
        runs=(run,),
        size=0.01,
    )


def _lines(
    arm: str, runs: Sequence[GuestRun], key: str, title: str, names: Sequence[str], unit: str
) -> Chart | None:
    values = [v[n] for r in runs for _, v in r.points for n in names if n in v]
    if not values:
        return None
    prefix, size = scale_of(max(values), unit)
    label = {"memory": f"memory, {prefix}", "disk": f"read and written, {prefix}", "system": "a second"}[key]
    captions = {
        "memory": "Swap used, free, inactive and active memory of each guest.",
        "disk": "What each guest read from its devices (received) and wrote to them (sent).",
        "system": "Interrupts and context switches of each guest.",
    }[key]
    return _chart(
        title=f"{title}: {arm}",
        caption=f"{captions} One typical run, second by second"
        + (", a line style for each guest, the first drawn through." if len(runs) > 1 else "."),
        label=label,
        names=names,
        runs=runs,
        size=size,
    )


def _chart(
    *, title: str, caption: str, label: str, names: Sequence[str], runs: Sequence[GuestRun], size: float
) -> Chart:
    """Return one chart of lines over the seconds of a run.

    label: title of the value axis.
    size: size of one unit of the value axis, in the unit of the points: 0.01 to show fractions in percent.
    """
    several = len(runs) > 1
    rows: list[Row] = [
        {
            "at": short(at),
            "what": name,
            "guest": f"guest {run.instance}",
            "value": short(found[name] / size),
            "tip": (f"guest {run.instance}, " if several else "")
            + f"{name}, second {at:.3g}: {found[name] / size:.4g} ({label})",
        }
        for run in runs
        for at, found in run.points
        for name in names
        if name in found
    ]
    return Chart(
        kind="instances",
        title=title,
        caption=caption,
        height=HEIGHT,
        view=partial(_lines_view, label, tuple(names), several),
        data={"seconds": rows},
    )
