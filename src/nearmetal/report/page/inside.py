"""The sections of the page about what was counted beside the work, and about the roofs over it."""

from __future__ import annotations

from ...model.result import Analysis
from ..tables.inside import InsideRecord
from ..tables.roofs import HEADS, roof_lines
from .markup import Markup, table, tag
from .sections import definition_list


def counted(inside: InsideRecord) -> Markup:
    """Return which counters were read, which were missing, and what reading cost; empty if nothing is
    known."""
    lines = inside.lines()
    if not lines:
        return Markup("")
    return tag("section", tag("h2", "Counted inside the run"), definition_list(lines), id="inside")


def roofs(analysis: Analysis) -> Markup:
    """Return the results as shares of the roofs of the bare machine; empty if no roof was measured."""
    lines = roof_lines(analysis)
    if not lines:
        return Markup("")
    said = "Each roof was measured on the bare machine; no result is expected beyond it."
    return tag(
        "section",
        tag("h2", "Roofs"),
        tag("p", said),
        table(HEADS, [line.cells() for line in lines], label="Roofs"),
        id="roofs",
    )
