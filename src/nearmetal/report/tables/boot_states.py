"""Boot states compared, as text and as JSON: n counts boots, and one boot each carries no verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model.record import JsonValue
from ...units import show, show_effect
from ..forms.json_form import to_json
from ..text import one_line
from .cells import SYMBOLS, emulation_said, verdict_text

if TYPE_CHECKING:
    from ...analysis.two_level import StateCell

NOTE = (
    "Unpaired, by boot: n counts boots of the first and the second state; [low … high] is Welch's interval "
    "of their means; overheads are of the second over the first, in time."
)
_HEADS = ("metric", "first", "second", "overhead", "n", "verdict")


def boots_text(cells: Sequence[StateCell]) -> str:
    """One table per arm, the reasons of what has no verdict, and how to read it."""
    if not cells:
        return "The two have no environment and metric in common: nothing to compare."
    rows = {_arms(c): [_HEADS] for c in cells}
    for c in cells:
        rows[_arms(c)].append(_row(c))
    widths = [max(len(row[i]) for table in rows.values() for row in table) for i in range(len(_HEADS))]
    lines: list[str] = []
    for arm, table in rows.items():
        lines.append(one_line(arm))
        lines += [
            "  " + "  ".join(t.ljust(w) for t, w in zip(r, widths, strict=True)).rstrip() for r in table
        ]
        lines.append("")
    reasons = dict.fromkeys(one_line(c.reason) for c in cells if c.reason)
    warnings = emulation_said((_arms(c), c.guest) for c in cells)
    return "\n".join([*lines, *warnings, *reasons, NOTE])


def _arms(c: StateCell) -> str:
    """'bare/1x1', and what it is set against where that is another."""
    return c.arm if c.other == c.arm else f"{c.arm} → {c.other}"


def boots_json(cells: Sequence[StateCell]) -> JsonValue:
    """The same as data: shares and base units; null as an end of an interval: not bounded."""
    out: list[JsonValue] = []
    for c in cells:
        form = to_json(c)
        assert isinstance(form, dict), "a dataclass"
        out.append({**form, "low": form["low"] if c.low > -1 else None, "symbol": SYMBOLS[c.verdict]})
    return out


def _row(c: StateCell) -> tuple[str, str, str, str, str, str]:
    return (
        one_line(f"{c.workload}.{c.metric}"),
        one_line(show(c.before, c.unit)),
        one_line(show(c.after, c.unit)),
        show_effect(c.overhead, c.low, c.high),
        f"{c.boots[0]} + {c.boots[1]}",
        verdict_text(c.verdict),
    )
