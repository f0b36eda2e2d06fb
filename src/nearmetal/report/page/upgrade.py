"""The answer to 'Did the upgrade hurt?' as one HTML file with static SVG, so that it needs no JavaScript."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..tables import upgrade as words
from ..tables.cells import verdict_text
from ..tables.upgrade import Upgrade, UpgradeRow
from ..text import tight
from .document import Drawings, framed
from .markup import Markup, join, table, tag
from .sections import CHIP

WIDTH, HEIGHT = 240, 22
"""Width and height of the drawing in one row, in pixels."""
MOST_ROWS = 12
"""Number of rows that are always visible."""
_HEADS = ("comparison", "before → after", "change in time", "verdict")


def upgrade_page(u: Upgrade) -> str:
    rows = words.rows(u)
    most = _reach(rows, u.margin)
    step = words.next_step(u)
    noted = [item for label, text in words.notes(u) for item in (tag("dt", label), tag("dd", text))]
    scale = (
        f" Every strip runs from {_end(-most)} to {_end(most)}; the grey band is the margin." if rows else ""
    )
    body = join(
        tag(
            "section",
            tag("h2", "Comparisons"),
            tag("p", f"{words.basis(u)}.{scale if rows else ''}", class_="quiet"),
            *_tables(rows, most),
            tag("p", f"Next: {step}.") if step else "",
            id="verdicts",
            aria_label="Comparisons",
        ),
        tag("section", tag("h2", "The two sides"), tag("dl", *noted, class_="facts")) if noted else "",
    )
    warnings = [tag("p", text, class_="alert", role="note") for text in words.warnings(u)]
    return framed(
        study="compare",
        question="Did the upgrade hurt?",
        head=join(tag("p", tight(words.sentence(u)), class_="answer"), *warnings),
        body=body,
        footer=u.machine,
        drawings=Drawings(),
    )


def _tables(rows: Sequence[UpgradeRow], most: float) -> list[Markup]:
    """Return the first rows as a table, and the others as a table that can be opened."""
    if not rows:
        return []
    first, others = (
        table(_HEADS, [_line(r, most) for r in some], label=f"Comparisons over boots, {which}")
        for some, which in ((rows[:MOST_ROWS], "the first"), (rows[MOST_ROWS:], "the others"))
    )
    if len(rows) <= MOST_ROWS:
        return [first]
    summary = tag("summary", words.more_text(rows[MOST_ROWS:]))
    return [first, tag("details", summary, others, class_="plain")]


def _line(r: UpgradeRow, most: float) -> tuple[str, ...]:
    verdict = tag("span", verdict_text(r.cell.verdict), class_=f"chip {CHIP[r.cell.verdict]}")
    return (
        f"{r.subject}: {r.metric}" + ("" if r.cell.deciding else " (does not decide)"),
        f"{r.before} → {r.after}",
        join(_strip(r, most), tag("b", r.change), f" {r.interval}"),
        join(verdict, " ", tag("span", r.cell.reason, class_="sub")),
    )


def _reach(rows: Sequence[UpgradeRow], margin: float) -> float:
    """Return the end of the axis of all rows, as the logarithm of a time ratio: slightly more than the
    largest finite value of any row, and at least twice the margin. The axis begins at its negative."""
    ends = [end for r in rows for end in (r.cell.low, r.cell.high)]
    logs = [abs(math.log1p(x)) for x in (*ends, *(r.cell.overhead for r in rows), 2 * margin)]
    return max(x for x in logs if math.isfinite(x)) * 1.05


def _end(theta: float) -> str:
    return f"{math.expm1(theta) * 100:+.2g} %".replace("-", "−")


def _strip(r: UpgradeRow, most: float) -> Markup:
    """Draw the interval of one row over the band of the margin: a line, its estimate, and a tick at zero.

    most: end of the axis, as _reach() returns it.
    """

    def x(theta: float) -> float:
        return round((1 + max(-1.0, min(1.0, theta / most))) * WIDTH / 2, 1)

    def at(share: float) -> str:
        return str(x(math.log1p(share)))

    c, middle, delta = r.cell, HEIGHT / 2, math.log1p(r.cell.margin)
    colour = f"stroke: var(--{CHIP[c.verdict]}); fill: var(--{CHIP[c.verdict]})"
    parts = [
        tag(
            "rect",
            x=str(x(-delta)),
            y="0",
            width=str(round(x(delta) - x(-delta), 1)),
            height=str(HEIGHT),
            style="fill: var(--margin)",
        ),
        _rule(str(x(0)), str(x(0)), 0, HEIGHT, "stroke: var(--quiet)"),
        _rule(at(c.low), at(c.high), middle, middle, f"{colour}; stroke-width: 3"),
        tag("circle", cx=at(c.overhead), cy=str(middle), r="4", style=colour),
    ]
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT)}
    label = f"{r.change} {r.interval}"
    return tag("svg", *parts, role="img", aria_label=label, style="display: block; max-width: 100%", **size)


def _rule(left: str, right: str, top: float, bottom: float, style: str) -> Markup:
    return tag("line", x1=left, x2=right, y1=str(top), y2=str(bottom), style=style)
