"""The sections of the page on counters of the run and on upper bounds."""

from __future__ import annotations

from ...model.result import Analysis
from ..tables.inside import InsideRecord
from ..tables.roofs import HEADS, roof_lines
from .markup import Markup, folded, table, tag
from .sections import definition_list


def counted(inside: InsideRecord) -> Markup:
    """Return the section on counters: those that were read, those that were missing, and what sampling cost;
    empty if nothing is known."""
    lines = inside.lines()
    if not lines:
        return Markup("")
    return folded("inside", "Counted inside the run", definition_list(lines))


def roofs(analysis: Analysis) -> Markup:
    """Return the section on results as shares of upper bounds (roofs); empty if there are none."""
    lines = roof_lines(analysis)
    if not lines:
        return Markup("")
    text = "Each upper bound was measured on bare metal. No result is expected above it."
    return folded(
        "roofs",
        "Upper bounds",
        tag("p", text),
        table(HEADS, [line.cells() for line in lines], label="Upper bounds"),
    )
