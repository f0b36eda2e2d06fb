"""Decides whether the run or the check that gave a label may still be alive. Where that cannot be known, it
is taken to be alive: nothing of a living run is ever removed."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from .labels import OURS
from .lock import entered_labels
from .processes.birth import lives
from .run_mark import find_marks


def living_labels() -> frozenset[str]:
    """Return the labels of all runs that may be alive.

    The lock file alone is not enough, because it may be another file for every job: in a /tmp of its own.
    """
    return entered_labels() | find_marks()


def is_of_living_process(name: str) -> bool:
    """Return whether a name is the label of a check or an image build whose process may be alive."""
    label = OURS.fullmatch(name)
    pid = None if label is None else label["pid"]
    return pid is not None and (lives(int(pid)) or pid in _inner_pids())


def _inner_pids() -> set[str]:
    """Return the PIDs that processes of inner PID namespaces have there."""
    pids = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                status = Path(entry.path, "status").read_text(errors="replace")
                pids.update(re.findall(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE))
    return pids
