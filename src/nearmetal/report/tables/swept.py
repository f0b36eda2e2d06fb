"""The sections on sweeps (curves, and the points at which pre-copy stops converging), on boot times, and on
guests that are faster than bare metal."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.record import JsonValue
from ...model.result import Analysis
from ...model.study import Study
from ...units import show
from ..charts.chart import LinesFigure
from ..charts.curves import swept_figures
from ..record_index import RecordIndex
from ..sheet import Block, Grid, Leaf, Words
from ..text import one_line
from .events.sweeps import convergence_sentences
from .guest_gains import gains_leaf
from .instances import instances_of
from .papers.boot import boot_leaf


def event_leaves(
    study: Study, analysis: Analysis, records: RecordIndex, provenance: Mapping[str, JsonValue]
) -> tuple[Leaf, ...]:
    """Return the sections on sweeps, on boot times, and on guests that are faster than bare metal. A section
    without results is left out."""
    found = (
        swept_leaf(study, analysis, records),
        boot_leaf(study, records, provenance),
        gains_leaf(study, analysis, instances_of(study, records)),
    )
    return tuple(leaf for leaf in found if leaf is not None)


def swept_leaf(study: Study, analysis: Analysis, records: RecordIndex) -> Leaf | None:
    """Return the section on sweeps; None if the study has none, or nothing was measured."""
    figures = swept_figures(study, analysis.cells)
    blocks: list[Block] = [Words(text=text) for text in convergence_sentences(study, records)]
    blocks += [block for figure in figures for block in (figure, _grid(figure))]
    return Leaf(key="swept", title="Curves over swept numbers", blocks=tuple(blocks)) if blocks else None


def _grid(figure: LinesFigure) -> Grid:
    text = figure.panels[0].text
    heads = sorted({at for p in figure.panels for points in p.lines.values() for at, _ in points})
    rows = []
    for panel in figure.panels:
        for side, points in panel.lines.items():
            known = {at: show(value.centre, panel.unit) for at, value in points}
            what = f"{side}, {panel.title}" if panel.title else side
            rows.append((one_line(what), *(known.get(at, "not measured") for at in heads)))
    return Grid(title=figure.title, heads=("environment", *map(text, heads)), rows=tuple(rows), numbers=True)
