"""Lets Ctrl-C stop a run between two steps, but never within a start, a clean-up or an import."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""Batch systems announce the end of a job by SIGTERM, Grid Engine by SIGUSR2."""
AGAIN = 0.01
"""Seconds to wait before trying again when a signal came at a moment that must not be interrupted."""

_IMPORTING = "<frozen importlib."
_ENTERING = contextlib.__name__


@contextmanager
def interruptible(undo: Callable[[], None]) -> Iterator[None]:
    """Raise KeyboardInterrupt in the body at the first signal; ignore later signals until clean-up is
    complete.

    undo: called after an interrupted body, while signals are ignored. It removes everything that still has
        the run's label. Context managers clean up after themselves, but library code may not tolerate an
        interruption at any point.
    """
    stopping = False

    def stop(_signal: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            return
        if _must_not_tear(frame):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
            return
        stopping = True
        raise KeyboardInterrupt

    # Under nohup(1), SIGHUP is ignored, so that a run goes on when its terminal is closed.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [s for s in SIGNALS if not (ignored and s is signal.SIGHUP)]
    before = {s: signal.signal(s, stop) for s in (*heard, signal.SIGALRM)}
    try:
        yield
    finally:
        if stopping:
            undo()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for s, handler in before.items():
            signal.signal(s, handler)


def _must_not_tear(frame: FrameType | None) -> bool:
    """Return whether a signal arrived within an import, or within the entry or exit of a context manager,
    none of which may be interrupted.

    An interrupted import would leave a module half initialised (numpy then recurses without end). An
    interrupted context manager could leave something started but not registered, or not removed. Both end by
    themselves, since all their waits are bounded.
    """
    while frame is not None:
        importing = frame.f_code.co_filename.startswith(_IMPORTING)
        if importing or frame.f_globals.get("__name__") == _ENTERING:
            return True
        frame = frame.f_back
    return False
