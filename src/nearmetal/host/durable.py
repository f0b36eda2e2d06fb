"""Writes files such that they are on the disk when a function returns. All functions raise OSError."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a whole file to disk, replacing an existing one atomically. A link at its path is replaced too.

    mode: permissions of the file.
    """
    parent = _open_directory(path.parent)
    try:
        replace_in(parent, path.name, data, mode)
    finally:
        os.close(parent)


def replace_in(directory: int, name: str, data: bytes, mode: int) -> None:
    """Write a whole file to disk as write_file() does, in the directory of a descriptor. A failed attempt
    leaves no temporary file."""
    temporary = f".{name}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):  # left by a killed process, or planted
        os.unlink(temporary, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode, dir_fd=directory), "wb", 0) as file:
            write_all(file.fileno(), data)
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)  # so that the name survives a power cut


def is_temporary(name: str) -> bool:
    """Return whether a file has the name of a temporary file of write_file(). A killed process leaves it."""
    return name.startswith(".") and name.endswith(".tmp")


def write_all(fd: int, data: bytes) -> None:
    """Write all data to a file descriptor. After a short write, which happens when a disk becomes full, the
    rest is written, so that the error itself occurs."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def sync_directory(path: Path) -> None:
    """Flush a directory to disk, so that its new and changed names survive a power cut."""
    fd = _open_directory(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
