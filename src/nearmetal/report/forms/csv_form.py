"""The verdict table as CSV, one row per cell, in shares and base units; 'inf' is an unbounded end."""

from __future__ import annotations

import csv
import io
import math
from operator import attrgetter

from ...model.result import Analysis, Cell
from ...plain_text import spreadsheet_text
from ..tables.cells import cause_text

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
_PLACES = {
    "baseline_value": "baseline_value.centre",
    "value": "value.centre",
    "difference": "difference.centre",
    "difference_low": "difference.low",
    "difference_high": "difference.high",
}
"""The attribute of a Cell that holds the value of a column, where its name differs from that of the
column."""
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
    low = other.low if other.low > -1 else -math.inf
    of_verdicts = (found.estimand, other.nodes, found.disagree)
    return [*map(_field, (*of_verdicts, found.other, other.overhead, low, other.high, other.verdict))]


def _row(c: Cell, *, floor: bool) -> list[str]:
    own = {"low": c.low if c.low > -1 else -math.inf, "cause": cause_text(c), "noise_floor": floor}
    return [_field(own[n] if n in own else attrgetter(_PLACES.get(n, n))(c)) for n in COLUMNS]


def _field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else spreadsheet_text(str(value))
