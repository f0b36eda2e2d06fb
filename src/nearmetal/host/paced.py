"""Copies standard input to standard output at a limited rate: python paced.py RATE (in bytes per second).

It is a separate program, for use in a pipe between two others. It does not import nearmetal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

_STEPS_PER_SECOND = 50
_MOST = 256 << 10
"""Largest number of bytes that are copied at once."""


def copy(
    source: int,
    target: int,
    rate: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Copy a descriptor to another until end of file.

    rate: bytes per second. The rate is not exceeded to catch up after the source was slow.
    """
    step = max(min(int(rate / _STEPS_PER_SECOND), _MOST), 1)
    due = clock()
    while data := os.read(source, step):
        sleep(max(due - clock(), 0.0))
        due = max(due, clock()) + len(data) / rate
        while data:
            data = data[os.write(target, data) :]
    sleep(max(due - clock(), 0.0))


def argv(rate: float) -> list[str]:
    """Return the command line of this program."""
    return [sys.executable, "-I", __file__, f"{rate:.0f}"]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end without a traceback when the reader has ended
    copy(0, 1, float(sys.argv[1]))
