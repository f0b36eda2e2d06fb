"""The mark of a living run: other processes on the machine see it even if the run has a /tmp of its own.

The mark is the name of the run's process (/proc/PID/comm), which only the process itself can set, and an
abstract UNIX socket with the run's label. The name is seen from other network namespaces, and the socket from
other PID namespaces and where /proc shows only the processes of the user (hidepid).

Nobody can take the mark from a run. Anybody can mark a process of his own with the label of an ended run; the
leftovers of that run are then kept.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .labels import LABEL
from .processes.labelled import name_of

_SOCKET = "nearmetal-run/"
_FIRST = "nearmetal"
_NAME_LENGTH = 15
"""Length at which Linux cuts the name of a process."""

_own: list[str] = []
"""Labels of the runs that this process is: several only if it holds the lock more than once."""


def process_name(label: str) -> str:
    """Return the name of the process that is a run: the label without its first hyphen, which leaves room for
    six digits. No I/O."""
    return label.replace("-", "", 1)[:_NAME_LENGTH]


@contextmanager
def set_mark(label: str) -> Iterator[None]:
    """Let this process bear the mark of a run until exit."""
    name = Path("/proc/self/comm")
    # Without a listener nobody can connect. A name that is taken shows the run as well.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        with contextlib.suppress(OSError):
            held.bind(f"\0{_SOCKET}{label}")
        before = name_of(os.getpid())
        with contextlib.suppress(OSError):  # a container may have a /proc that cannot be written to
            name.write_text(process_name(label))
        _own.append(label)
        try:
            yield
        finally:
            _own.remove(label)
            with contextlib.suppress(OSError):
                name.write_text(before)


def bears_mark(pid: int, label: str) -> bool:
    """Return whether a process is the run with this label, by the name that it gives itself."""
    return label in _own if pid == os.getpid() else name_of(pid) == process_name(label)


def bears_no_mark(pid: int) -> bool:
    """Return whether a process bears the mark of no run, like those of versions that had no marks."""
    name = name_of(pid)
    return pid != os.getpid() and (name == _FIRST or not name.startswith(_FIRST))


def find_marks() -> frozenset[str]:
    """Return the labels of all runs whose mark can be seen from here."""
    found = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
            found.add(line.partition(f" @{_SOCKET}")[2])
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            first, same, rest = name_of(int(entry.name)).partition(_FIRST)
            if not first and same:
                found.add(f"{_FIRST}-{rest}")
    return frozenset(label for label in found if LABEL.fullmatch(label))
