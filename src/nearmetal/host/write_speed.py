"""Measures how fast a directory receives data."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

PROBED = 32 << 20
"""Bytes that are written to measure a speed."""


def write_speed(directory: Path) -> float:
    """Return how many bytes per second a directory receives. A file of PROBED bytes is written to it, and
    removed again.

    The file system may keep the bytes in memory, as it does with the images of a checkpoint.
    Raises OSError.
    """
    block = os.urandom(1 << 20)
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".nearmetal-probe-", buffering=0) as out:
        for _ in range(PROBED // len(block)):
            out.write(block)
    return PROBED / (time.monotonic() - begin)
