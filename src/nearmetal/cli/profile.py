"""Formats an MPI profile as text: seconds of each rank, MPI calls by their time, messages of each pair of
ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.workloads.profile import calls_together
from ..units import show

if TYPE_CHECKING:
    from ..api.kernels import ProfiledRank

MOST_PAIRS = 16
"""Maximum number of pairs of ranks that are shown; --json contains all."""


def profile_lines(ranks: Sequence[ProfiledRank]) -> list[str]:
    """Return the lines of three tables: the seconds of each rank over its lifetime, and the MPI calls and the
    messages of the kernel's timed section and verification. The list is empty if there are no ranks."""
    if not ranks:
        return []
    return [*_seconds(ranks), "", *_calls(ranks), "", *_pairs(ranks)]


def _seconds(ranks: Sequence[ProfiledRank]) -> list[str]:
    heads = ("rank", "before MPI", "init", "compute", "communication", "finalize", "sum", "wall")
    rows = []
    for r in ranks:
        w = r.whole
        parts = (w.before, w.init, w.compute, w.communication, w.finalize, w.seconds, r.wall)
        # All are rounded to the same thousandth of the total, so that a reader can add them.
        rows.append((str(w.rank), *(show(s, "s", half_width=r.wall / 1000) for s in parts)))
    return _table(heads, rows)


def _calls(ranks: Sequence[ProfiledRank]) -> list[str]:
    """Return the table of MPI calls in the kernel's timed section and verification, summed over all ranks."""
    together = calls_together(r.kernel.calls for r in ranks)
    slowest_first = sorted(together.items(), key=lambda item: -item[1].seconds)
    rows = [(name, f"{c.count:,}", show(c.seconds, "s"), show(c.bytes, "B")) for name, c in slowest_first]
    return _table(("call in the kernel, all ranks", "count", "time", "handed over"), rows)


def _pairs(ranks: Sequence[ProfiledRank]) -> list[str]:
    rows = [
        (f"{r.kernel.rank} to {p.rank if p.rank >= 0 else 'outside'}", f"{p.messages:,}", show(p.bytes, "B"))
        for r in ranks
        for p in r.kernel.peers
    ]
    more = len(rows) - MOST_PAIRS
    lines = _table(("messages in the kernel", "count", "bytes"), rows[:MOST_PAIRS])
    return lines if more <= 0 else [*lines, f"and {more:,} more pairs; --json has them"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns to their widest cell; numbers are right-aligned."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in (heads, *rows)
    ]
