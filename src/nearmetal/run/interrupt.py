"""Ctrl-C stops a run in order: between two steps, never within a start, a clean-up or an import."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.01
"""Seconds after which a signal that came at a bad moment is looked at again."""

_IMPORTING = "<frozen importlib."
_ENTERING = contextlib.__name__


@contextmanager
def interruptible(undo: Callable[[], None]) -> Iterator[None]:
    """The first signal raises KeyboardInterrupt in the body; further ones wait until all is undone.

    undo: called after an interrupted body, when no signal strikes any more, for what bears our label still:
    clean-ups are the context managers' own, but a library's code need not be written for being torn.
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

    before = {s: signal.signal(s, stop) for s in (*SIGNALS, signal.SIGALRM)}
    try:
        yield
    finally:
        if stopping:
            undo()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for s, handler in before.items():
            signal.signal(s, handler)


def _must_not_tear(frame: FrameType | None) -> bool:
    """Whether this moment lies within an import, which would leave a module half made for ever (numpy then
    recurses to death), or within the entering or leaving of a context manager: what was started must come
    to be registered, and what is being removed must go. Both end by themselves, all their waits are
    bounded."""
    while frame is not None:
        importing = frame.f_code.co_filename.startswith(_IMPORTING)
        if importing or frame.f_globals.get("__name__") == _ENTERING:
            return True
        frame = frame.f_back
    return False
