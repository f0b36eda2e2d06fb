"""The verdict table as CSV, one row per cell, in shares and base units; 'inf' is an unbounded end."""

from __future__ import annotations

import csv
import io
import math

from ...model.result import Analysis, Cell
from ..tables.cells import cause_text
from ..text import one_line

COLUMNS = (
    "environment",
    "placement",
    "attachment",
    "baseline",
    "workload",
    "metric",
    "unit",
    "better",
    "n",
    "failed",
    "baseline_value",
    "value",
    "overhead",
    "low",
    "high",
    "margin",
    "confidence",
    "verdict",
    "cause",
    "smallest_material",
    "blocks_needed",
    "difference",
    "difference_low",
    "difference_high",
    "p_holm",
    "exploratory",
    "noise_floor",
    "emulated",
    "guest",
)
NODE_COLUMNS = (
    "estimand",
    "nodes",
    "nodes_disagree",
    "other_estimand",
    "other_overhead",
    "other_low",
    "other_high",
    "other_verdict",
)
"""Further columns of a run on several nodes."""
# A spreadsheet interprets a text with this beginning as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(analysis: Analysis) -> str:
    """Return the table by RFC 4180 with a header line: the cells, then the A/A cells (noise_floor true)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    several = analysis.nodes is not None
    writer.writerow((*COLUMNS, *NODE_COLUMNS) if several else COLUMNS)
    for floor, cells in ((False, analysis.cells), (True, analysis.noise_floor.cells)):
        writer.writerows([*_row(c, floor=floor), *(_node_fields(c) if several else [])] for c in cells)
    return out.getvalue()


def _node_fields(c: Cell) -> list[str]:
    found = c.nodes
    if found is None or not found.estimates:
        return [""] * len(NODE_COLUMNS)
    other = found.estimates[found.other]
    return [
        found.estimand.value,
        str(other.nodes),
        str(found.disagree).lower(),
        found.other.value,
        repr(other.overhead),
        repr(other.low if other.low > -1 else -math.inf),
        repr(other.high),
        other.verdict.value,
    ]


def _row(c: Cell, *, floor: bool) -> list[str]:
    return [
        *(_words(s) for s in (c.environment, c.placement, c.attachment, c.baseline)),
        *(_words(s) for s in (c.workload, c.metric, c.unit)),
        c.better.value,
        str(c.n),
        str(c.failed),
        *(repr(v) for v in (c.baseline_value.centre, c.value.centre)),
        repr(c.overhead),
        repr(c.low if c.low > -1 else -math.inf),
        *(repr(v) for v in (c.high, c.margin, c.confidence)),
        c.verdict.value,
        _words(cause_text(c)),
        repr(c.smallest_material),
        "" if c.blocks_needed is None else str(c.blocks_needed),
        *(repr(v) for v in (c.difference.centre, c.difference.low, c.difference.high)),
        "" if c.p_holm is None else repr(c.p_holm),
        str(c.exploratory).lower(),
        str(floor).lower(),
        str(c.emulated).lower(),
        _words(c.guest),
    ]


def _words(text: str) -> str:
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
