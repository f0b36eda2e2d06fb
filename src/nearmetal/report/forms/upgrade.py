"""The answer to 'Did the upgrade hurt?' on one screen of a terminal. Prints nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tables import upgrade as words
from ..tables.roofs import share_figure
from ..tables.upgrade import Upgrade, UpgradeAnswer, UpgradeRow
from .columns import STYLES, columns, cut, pad, wrap
from .summary import LINES, WIDTH

if TYPE_CHECKING:
    from rich.text import Text

MOST_ROWS = 12
MOST_LINES = 3
"""Maximum number of lines of one note."""
_HEADS = ("", "", "before", "after", "change in time", "")
_GAP = "  "
_LABEL = 14
_STYLES = {
    UpgradeAnswer.YES: "bold red",
    UpgradeAnswer.NO: "bold green",
    UpgradeAnswer.OPEN: "bold",
    UpgradeAnswer.IMPOSSIBLE: "bold",
}


def upgrade_text(u: Upgrade, *, page: str | None, width: int, everything: bool = False) -> Text:
    """Return the answer as rich Text; its `.plain` is for a pipe.

    page: path of the HTML page; None if there is none.
    everything: whether to show all rows and whole notes, on any number of lines.
    """
    from rich.text import Text

    width = min(width, WIDTH)
    out = Text()
    _lines(out, wrap(words.sentence(u), width), _STYLES[u.answer], MOST_LINES + 2, everything=everything)
    _lines(out, wrap(f"{words.basis(u)} · {u.machine}", width), "dim", MOST_LINES, everything=everything)
    for warning in words.warnings(u)[: None if everything else 1]:
        _lines(out, wrap(warning, width), "bold red", MOST_LINES, everything=everything)
    out.append("\n")
    rows = words.rows(u)
    labelled = [*words.notes(u), ("Next", words.next_step(u)), ("Page", page or "")]
    notes = [(label, wrap(text, width - _LABEL)) for label, text in labelled if text]
    taken = out.plain.count("\n") + sum(min(len(lines), MOST_LINES) for _, lines in notes) + 4
    shown = rows if everything else rows[: max(3, min(MOST_ROWS, LINES - taken))]
    if shown:
        _table(out, shown, width)
        if len(rows) > len(shown):
            out.append(f"… and {words.more_text(rows[len(shown) :])}: --all\n", style="dim")
        margin = share_figure(u.margin)
        legend = (
            f"▲ slower by more than {margin}, ▼ faster, = within {margin}, ? undecided; "
            "cost: overhead against the baseline of the same run"
        )
        _lines(out, wrap(legend, width), "dim", MOST_LINES, everything=everything)
    for label, lines in notes:
        kept = lines if everything else lines[:MOST_LINES]
        for i, line in enumerate(kept):
            out.append(pad(label if i == 0 else "", _LABEL), style="bold")
            cut_here = i == len(kept) - 1 and len(kept) < len(lines)
            out.append(f"{line} …\n" if cut_here else f"{line}\n")
    return out


def _lines(out: Text, lines: list[str], style: str, most: int, *, everything: bool) -> None:
    kept = lines if everything else lines[:most]
    more = " …" if len(kept) < len(lines) else ""
    out.append("\n".join(kept) + f"{more}\n", style=style)


def _table(out: Text, rows: tuple[UpgradeRow, ...], width: int) -> None:
    """Append the rows. The values before and after are left out if the terminal is too narrow for them."""
    lines = [_HEADS, *((r.subject, r.metric, r.before, r.after, r.change, r.interval) for r in rows)]
    wide = [max(columns(line[i]) for line in lines) for i in range(len(_HEADS))]
    wide[4] = max(columns(line[4]) for line in lines[1:])
    wide[5] = max(wide[5], columns(_HEADS[4]) - wide[4] - 1)
    spare = width - wide[4] - wide[5] - 2 * len(_GAP) - 3
    values = wide[2] + wide[3] + 2 * len(_GAP)
    whole = wide[0] + wide[1] + values <= spare
    names = min(wide[0], spare - (values if whole else 0) - 8)
    metrics = min(wide[1], spare - names)
    for i, (subject, metric, before, after, change, interval) in enumerate(lines):
        head = f"{pad(cut(subject, names), names)}{_GAP}{pad(cut(metric, metrics), metrics)}{_GAP}"
        if whole:
            head += f"{pad(before, wide[2], right=True)}{_GAP}{pad(after, wide[3], right=True)}{_GAP}"
        if i == 0:
            out.append(f"{head}{change}\n", style="bold")
            continue
        r = rows[i - 1]
        out.append(head, style=None if r.cell.deciding else "dim")
        effect = f"{pad(change, wide[4], right=True)} {pad(interval, wide[5])} {r.symbol}\n"
        out.append(effect, style=STYLES[r.cell.verdict])
