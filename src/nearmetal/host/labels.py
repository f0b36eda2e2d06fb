"""The labels of runs, and of checks and image builds. They are the names of what these make on a machine. No
I/O."""

from __future__ import annotations

import re

LABEL = re.compile(r"nearmetal(?:-[0-9a-zA-Z]+)+")
"""The labels of runs in the lock file and in marks, also of other versions."""
OURS = re.compile(r"(?P<run>nearmetal-(?:[0-9a-f]{6}|(?:check|image)-(?P<pid>\d{1,9})))(?:-.*)?")
"""The labels that this version gives: those of runs, and those of checks and image builds, with the PID of
the process that makes them. A suffix names a part of the run, such as an instance."""


def owns(run: str, name: str) -> bool:
    """Return whether a name is the label of a run, or of a part of it such as an instance."""
    return name == run or name.startswith(f"{run}-")
