"""Groups of processes that are identified by descriptors (pidfd), such as the processes of an instance that
is checkpointed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .helper import wait_readable
from .labelled import tree

_LOOK_AGAIN = 0.001


@contextmanager
def holding(pid: int) -> Iterator[Sequence[int]]:
    """Yield descriptors (pidfd) of a process and its descendants. A descriptor still identifies its process
    when another process has its PID."""
    with ExitStack() as stack:
        held = []
        for member in tree(pid):
            with contextlib.suppress(ProcessLookupError):
                held.append(os.pidfd_open(member))
                stack.callback(os.close, held[-1])
        yield held


@contextmanager
def holding_mounts(pid: int) -> Iterator[None]:
    """Keep the file systems that a process sees mounted until exit, even if the process ends.

    When an overlay is unmounted, the kernel writes all that the file system below it has not yet written to
    its disk. The images of a checkpoint are in it, so their copy and the restore would wait for the disk.
    """
    with ExitStack() as stack:
        with contextlib.suppress(OSError):  # has ended
            stack.callback(os.close, os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
        yield


def signal_all(held: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to all processes of holding() that still exist."""
    for fd in held:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)


def await_ends(held: Sequence[int], seconds: float) -> int:
    """Wait until the processes of holding() have ended, for at most `seconds`. Returns how many still run."""
    end = time.monotonic() + seconds
    return sum(not wait_readable(fd, end - time.monotonic()) for fd in held)


def await_reaped(held: Sequence[int], seconds: float) -> None:
    """Wait until the ended processes of holding() are reaped and their PIDs are free, for at most
    `seconds`."""
    end, left = time.monotonic() + seconds, list(held)
    while left and time.monotonic() < end:
        try:
            signal.pidfd_send_signal(left[-1], 0)  # succeeds until its parent has waited for it
            time.sleep(_LOOK_AGAIN)
        except ProcessLookupError:
            left.pop()
