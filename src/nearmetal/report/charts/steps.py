"""Charts of the steps of events of instances, such as the phases of a move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

from ...model.record import STEP
from ...model.study import Study
from ...units import show
from ..record_index import RecordIndex
from ..text import one_line, plural
from .altair_here import alt
from .chart import Chart, Palette, Row, guest_sentences
from .parts import colour_and_shape, data, layered, names_y, short, tips


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one metric of an arm: the median over all its events, in seconds.

    whole: median of the metric itself. It may differ from the sum of its steps, which may overlap and may
        include steps after its end.
    """

    arm: str
    workload: str
    metric: str
    whole: float
    seconds: tuple[tuple[str, float], ...]
    events: int


def steps_of(study: Study, records: RecordIndex) -> tuple[Steps, ...]:
    """Return the steps of every metric that is measured with steps, ordered by arm."""
    return tuple(found for arm in study.arms() for found in _of_arm(arm.name, records))


def _of_arm(arm: str, records: RecordIndex) -> Iterator[Steps]:
    values: dict[tuple[str, str], list[float]] = {}
    parts: dict[tuple[str, str], dict[str, list[float]]] = {}
    for trial in records.trials(arm):
        for row in trial.rows:
            own = {k.removeprefix(STEP): v for k, v in row.parts.items() if k.startswith(STEP)}
            if own and row.values:
                values.setdefault((row.workload, row.metric), []).extend(row.values)
                for name, seconds in own.items():
                    parts.setdefault((row.workload, row.metric), {}).setdefault(name, []).extend(seconds)
    for (workload, metric), every in values.items():
        yield Steps(
            arm=arm,
            workload=workload,
            metric=metric,
            whole=median(every),
            seconds=tuple((k, median(v)) for k, v in parts[workload, metric].items()),
            events=len(every),
        )


def _steps_view(steps: tuple[str, ...], p: Palette) -> alt.LayerChart:
    colour, _ = colour_and_shape("step", steps)
    x = alt.X("seconds:Q", title="s", stack="zero", axis=alt.Axis(tickCount=6))
    bars = data("steps").mark_bar(aria=True)
    y = names_y("arm", p)
    return layered(bars.encode(x=x, y=y, color=colour, order="order:Q", description=tips()))


def steps_charts(study: Study, records: RecordIndex, name: Callable[[str], str]) -> list[Chart]:
    """Return a chart for each metric that is measured with steps: a bar for each arm, divided into its steps.

    name: returns the label of an arm.
    """
    found = steps_of(study, records)
    guests = {a.name: a.environment.emulation for a in study.arms()}
    out = []
    for workload, metric in dict.fromkeys((s.workload, s.metric) for s in found):
        own = [s for s in found if (s.workload, s.metric) == (workload, metric)]
        labels = {s.arm: one_line(name(s.arm)) for s in own}
        rows: list[Row] = [
            {
                "arm": labels[s.arm],
                "step": one_line(step),
                "seconds": short(seconds),
                "order": order,
                "tip": f"{labels[s.arm]}, {one_line(step)}: {show(seconds, 's')} of {show(s.whole, 's')}",
            }
            for s in own
            for order, (step, seconds) in enumerate(s.seconds)
        ]
        longest_first = sorted(own, key=lambda s: -len(s.seconds))
        guest = next((guests[s.arm] for s in own if guests[s.arm]), "")
        caption = [
            f"Median seconds of each step, {plural(min(s.events for s in own), 'event')} or more.",
            *(f"{labels[s.arm]}: {show(s.whole, 's')} in all." for s in own),
            *guest_sentences(guest),
        ]
        chart = Chart(
            kind="steps",
            title=one_line(f"{workload}.{metric} by steps"),
            caption=" ".join(caption),
            height=max(80, 34 * len(own)),
            width=300,
            view=partial(_steps_view, tuple(one_line(step) for s in longest_first for step, _ in s.seconds)),
            data={"steps": rows},
        )
        out.append(chart)
    return out
