"""Processes that do not outlive the process that has started them."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(pid: int) -> None:
    """Let this process be killed when its parent ends, and end it now if the parent has ended already.

    pid: PID of the parent.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != pid:
        os._exit(1)
