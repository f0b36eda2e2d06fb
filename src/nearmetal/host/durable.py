"""Writes data that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def write_all(fd: int, data: bytes) -> None:
    """Write all data to a file descriptor. After a short write, which happens when a disk becomes full, the
    rest is written, so that the error itself occurs (OSError)."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync_directory(path: Path) -> None:
    """Flush a directory to disk, so that its new and changed names survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
