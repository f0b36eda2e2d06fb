"""Curves over the number of ranks: one line for each environment, on each number of nodes. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...model.result import Cell, Interval
from ...model.study import Arm, Study
from ...model.sweep import LEAST_NUMBERS
from ..charts.chart import LinesFigure, Panel
from ..charts.curves import caption_of
from ..tables.papers.beside import WHOLE
from ..text import one_line, plural


def rank_figures(study: Study, cells: Sequence[Cell]) -> tuple[LinesFigure, ...]:
    """Return a figure for each metric that represents a whole workload, with a panel for each workload.

    Workloads that were measured with fewer than LEAST_NUMBERS different numbers of ranks are left out.
    """
    arms = {a.name: a for a in study.arms()}
    several = len({a.placement.nodes for a in arms.values()}) > 1
    panels: dict[tuple[str, str], list[Panel]] = {}
    for workload, metric in dict.fromkeys((c.workload, c.metric) for c in cells if c.metric in WHOLE):
        own = [c for c in cells if (c.workload, c.metric) == (workload, metric) and c.n]
        lines = _lines(own, arms, several=several)
        if own and len({at for points in lines.values() for at, _ in points}) >= LEAST_NUMBERS:
            panel = Panel(
                title=one_line(workload),
                over="ranks",
                unit=own[0].unit,
                lines=lines,
                text=lambda at: f"{at:.0f}",
            )
            panels.setdefault((metric, own[0].unit), []).append(panel)
    used = [c for c in cells if c.metric in WHOLE and c.n]
    return tuple(
        LinesFigure(
            name=f"ranks-{metric}",
            title=f"{metric} over the number of ranks",
            caption=caption_of(used),
            panels=tuple(own_panels),
        )
        for (metric, _), own_panels in panels.items()
    )


def _lines(
    cells: Sequence[Cell], arms: Mapping[str, Arm], *, several: bool
) -> dict[str, list[tuple[float, Interval]]]:
    """Return the points of each line in ascending order, the baseline's first.

    several: whether the names of lines give the number of nodes.
    """
    sides = [(c.baseline, c.baseline_value) for c in cells] + [(c.arm, c.value) for c in cells]
    lines: dict[str, dict[float, Interval]] = {}
    for name, value in sides:
        if name in arms and math.isfinite(value.centre):
            place = arms[name].placement
            line = one_line(arms[name].environment.name)
            line += f" on {plural(place.nodes, 'node')}" if several else ""
            lines.setdefault(line, {}).setdefault(float(place.ranks), value)
    return {line: sorted(points.items()) for line, points in lines.items()}
