"""Shows the progress of a run: a live display on a terminal, or a line from time to time in a pipe.

It is written to standard error; standard output contains only the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from ..api.results import analysed as analysed_silently
from ..api.results import furthest_from_verdict
from ..model.result import Cell, Verdict
from ..plain_text import one_line
from ..units import show_clock, show_effect
from .output import live_display, print_lines

if TYPE_CHECKING:
    from rich.live import Live

    from ..api.results import BlockDone, Results
    from ..records import ResultsDirectory

#: Seconds between two lines in a pipe.
QUIET_STEP = 10.0
#: Bytes of records that take some seconds to read.
LONG = 48 << 20
#: Seconds between two updates of a step on a terminal.
LIVE_STEP = 0.5
#: Number of running intervals shown on a terminal.
ROWS = 12


def headline(done: BlockDone) -> str:
    """Return the progress of the run in one line."""
    cells = done.analysis.cells
    decided = len(cells) - len(done.analysis.undecided)
    left = "" if done.left is None else f", at most {show_clock(done.left)} left"
    gone = f"{show_clock(done.elapsed)} gone{left}"
    of = "" if done.rounds is None else f" of about {done.rounds}"
    line = f"round {done.number}{of} · {gone} · {decided} of {len(cells)} figures decided"
    floor = done.analysis.noise_floor.cells
    if decided == len(cells) and (open_ := sum(c.verdict is Verdict.NONE for c in floor)):
        # Otherwise a run that goes on after everything is decided would seem to hang.
        line += f"; {open_} of {len(floor)} of the baseline against itself still undecided"
    return line


def running(cell: Cell) -> str:
    """Return the current interval of one cell as text."""
    name = cell.label
    where = f"{cell.arm} against {cell.baseline}"
    if not cell.looks:
        return f"{name:<24} {where:<36} no interval yet (n = {cell.n})"
    return f"{name:<24} {where:<36} {show_effect(cell.overhead, cell.low, cell.high)} n = {cell.n}"


def analysed(directory: ResultsDirectory, *, quiet: bool = False) -> Results:
    """Analyse a results directory. If this takes long, show its progress on standard error."""
    if directory.trials_bytes() < LONG:  # a live display itself takes a tenth of a second
        return analysed_silently(directory)
    with View(quiet=quiet) as view:
        return analysed_silently(directory, _reading(view))


def _reading(view: View) -> Callable[[float], None]:
    began = time.monotonic()
    last = began

    def report(share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if share < 1 and now - last >= (LIVE_STEP if view.live else QUIET_STEP):
            last = now
            left = (now - began) * (1 - share) / share
            view.phase(f"reading the records: {share:.0%}, {show_clock(left)} left")

    return report


class View:
    """Shows the progress of a run to a person. It implements Progress, and is a context manager, so that the
    live display is removed in any case."""

    def __init__(
        self, stream: TextIO | None = None, *, quiet: bool = False, shown: set[str] | None = None
    ) -> None:
        """Write to a stream; None for standard error.

        quiet: show notes only.
        shown: notes that are not shown again. Views of consecutive runs share one set, to which each adds its
            notes. None: show every note.
        """
        self._shown = shown
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live: Live | None = None
        self._display = ExitStack()
        self._last = 0.0

    def __enter__(self) -> View:
        if not self._quiet and self._stream.isatty():
            self._live = self._display.enter_context(live_display(self._stream))
        return self

    def __exit__(self, *_: object) -> None:
        self._live = None
        self._display.close()

    @property
    def live(self) -> bool:
        """Whether the display is redrawn, as on a terminal."""
        return self._live is not None

    def phase(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(f"… {one_line(text)}"))
        elif not self._quiet:
            self._say(f"… {text}")

    def note(self, text: str) -> None:
        if self._shown is not None:
            if text in self._shown:
                return
            self._shown.add(text)
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(f"note: {one_line(text)}"))
        else:
            self._say(f"note: {one_line(text)}")

    def block(self, done: BlockDone) -> None:
        if self._live is not None:
            from rich.text import Text

            lines = [headline(done), *(f"  {running(c)}" for c in furthest_from_verdict(done.analysis, ROWS))]
            self._live.update(Text("\n".join(lines)))
            return
        now = time.monotonic()
        if not self._quiet and now - self._last >= QUIET_STEP:
            self._last = now
            self._say(headline(done))
            for cell in furthest_from_verdict(done.analysis, 1):
                self._say(f"  furthest from a verdict: {running(cell)}")

    def _say(self, text: str) -> None:
        print_lines(text, to=self._stream)
