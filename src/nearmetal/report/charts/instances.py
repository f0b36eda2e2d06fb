"""Charts of the counters of guests for each second of a run. No drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...analysis.instances import CPU, RATES, memory_of, rates_of, shares_of
from ...model.record import JsonValue
from ...samplers import SampleSection, in_windows
from ...units import scale_of
from .parts import Chart, Spec, colours_and_shapes, short, tip

HEIGHT = 170
_MEMORY = ("swap", "free", "inactive", "active")


@dataclass(frozen=True, kw_only=True)
class GuestRun:
    """One guest during one run.

    points: values by the second at which each sample interval ends: shares of CPU time by CPU, bytes of
        'swap', 'free', 'inactive' and 'active', and RATES.
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
    scope = next((scope for s in section.samples for scope in s.scopes), "")
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


def _cpu(arm: str, run: GuestRun, guests: int) -> Chart:
    rows: list[JsonValue] = [
        {"at": short(at), "kind": name, "share": short(100 * values[name])}
        for at, values in run.points
        for name in CPU
        if name in values
    ]
    which = f", guest {run.instance}" if guests > 1 else ""
    colour, shapes = colours_and_shapes("kind", CPU)
    spec: Spec = {
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 18}},
        "encoding": {
            "x": _time(),
            "y": {"field": "share", "type": "quantitative", "axis": {"title": "CPU time, %", "tickCount": 5}},
            "color": colour,
            "shape": shapes,
            "tooltip": [tip("kind", "CPU time", None), tip("at", "second"), tip("share", "%", ".3~f")],
        },
    }
    return Chart(
        kind="instances",
        title=f"CPU time: {arm}{which}",
        caption="Shares of each second of a typical run, as the guest's own kernel counts them.",
        height=HEIGHT,
        spec=spec,
    )


def _lines(
    arm: str, runs: Sequence[GuestRun], key: str, title: str, names: Sequence[str], unit: str
) -> Chart | None:
    values = [v[n] for r in runs for _, v in r.points for n in names if n in v]
    if not values:
        return None
    prefix, factor = scale_of(max(values), unit)
    several = len(runs) > 1
    rows: list[JsonValue] = [
        {
            "at": short(at),
            "what": name,
            "guest": f"guest {run.instance}",
            "value": short(found[name] / factor),
        }
        for run in runs
        for at, found in run.points
        for name in names
        if name in found
    ]
    colour, shapes = colours_and_shapes("what", names)
    dash: Spec = {"field": "guest", "type": "nominal", "legend": None}
    label = {"memory": f"memory, {prefix}", "disk": f"read and written, {prefix}", "system": "a second"}[key]
    tips: list[JsonValue] = [
        tip("guest", "guest", None),
        tip("what", "what", None),
        tip("at", "second"),
        tip("value", label, ".4~g"),
    ]
    encoding: Spec = {
        "x": _time(),
        "y": {"field": "value", "type": "quantitative", "axis": {"title": label, "tickCount": 5}},
        "color": colour,
        "shape": shapes,
        "tooltip": tips,
    }
    if several:
        encoding = {**encoding, "detail": dash, "strokeDash": dash}
    captions = {
        "memory": "Swap used, free, inactive and active memory of each guest.",
        "disk": "What each guest read from its devices (received) and wrote to them (sent).",
        "system": "Interrupts and context switches of each guest.",
    }[key]
    return Chart(
        kind="instances",
        title=f"{title}: {arm}",
        caption=f"{captions} One typical run, second by second"
        + (", a line style for each guest, the first drawn through." if several else "."),
        height=HEIGHT,
        spec={
            "data": {"values": rows},
            "mark": {"type": "line", "point": {"size": 24}},
            "encoding": encoding,
        },
    )


def _time() -> Spec:
    return {"field": "at", "type": "quantitative", "axis": {"title": "seconds of the run", "tickCount": 8}}
