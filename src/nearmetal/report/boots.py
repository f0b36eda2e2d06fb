"""Boot states compared, for a terminal and as JSON: n counts boots, and one boot each carries no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..model.record import JsonValue
from ..units import show, show_effect
from .cells_table import SYMBOLS, verdict_text
from .json_form import to_json
from .text import one_line

if TYPE_CHECKING:
    from ..analysis.two_level import StateCell

NOTE = (
    "Two boot states, compared unpaired: n counts boots, [low … high] is Welch's interval of their means. "
    "Overheads are of the second against the first, in time."
)
_HEADS = ("metric", "before", "after", "overhead", "n", "verdict")


def compare_text(comparisons: Sequence[StateCell]) -> str:
    """One table per arm, then the reasons of what has no verdict."""
    if not comparisons:
        return "The two have no arm and metric in common: nothing to compare."
    out = []
    for arm in dict.fromkeys(c.arm for c in comparisons):
        rows = [_HEADS, *(_row(c) for c in comparisons if c.arm == arm)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
        out.append(one_line(arm))
        out += ["  " + "  ".join(t.ljust(w) for t, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        out.append("")
    reasons = dict.fromkeys(one_line(c.reason) for c in comparisons if c.reason)
    return "\n".join([*out, *reasons, NOTE])


def compare_json(comparisons: Sequence[StateCell]) -> dict[str, JsonValue]:
    """The same as data: shares and base units; null as an end of an interval: not bounded."""
    cells: list[JsonValue] = []
    for c in comparisons:
        form = to_json(asdict(c))
        if isinstance(form, dict):
            cells.append({**form, "low": form["low"] if c.low > -1 else None, "symbol": SYMBOLS[c.verdict]})
    return {"note": NOTE, "cells": cells}


def _row(c: StateCell) -> tuple[str, ...]:
    return (
        one_line(f"{c.workload}.{c.metric}"),
        show(c.before, c.unit),
        show(c.after, c.unit),
        show_effect(c.overhead, c.low, c.high),
        f"{c.boots[0]} + {c.boots[1]}",
        verdict_text(c.verdict),
    )
