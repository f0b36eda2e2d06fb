"""Appends trial records to a file of its own. A record is completely on disk when append() returns."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from ..errors import RecordsError
from ..host.durable import sync_directory, write_all
from ..host.untrusted import UntrustedDirectory
from ..model.record import TrialRecord
from .codec import to_line
from .disk import failure

_TAIL = 1 << 20


class TrialWriter:
    """Writes one trials file. An incomplete line at its end, left by a killed writer, is removed on opening.

    torn: number of such lines (0 or 1).

    Raises RecordsError if another process writes the same file, and DiskFullError if the disk is full.
    """

    def __init__(self, path: Path, *, directory: Path) -> None:
        self.path, self._directory = path, directory
        try:
            self._fd = UntrustedDirectory.part(path.parent).open_to_append(path.name)
        except OSError as e:
            raise failure(e, directory, kept="nothing was written") from e
        try:
            _lock(self._fd, path)
            size = os.fstat(self._fd).st_size
            self._whole = _whole_bytes(self._fd, size)
            self.torn = int(self._whole < size)
            if self.torn:
                os.ftruncate(self._fd, self._whole)
            sync_directory(path.parent)
        except OSError as e:
            os.close(self._fd)
            raise failure(e, directory, kept="nothing was written") from e
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, record: TrialRecord) -> None:
        """Write a record as one line and wait until it is on disk.

        Raises DiskFullError or RecordsError if it cannot be written; earlier records stay complete. Raises
        RecordsError for a record with a value that is not finite.
        """
        line = to_line(record)
        try:
            write_all(self._fd, line)
            os.fsync(self._fd)
        except OSError as e:
            self._cut()
            raise failure(e, self._directory, kept="the records before it are whole") from e
        except BaseException:
            # Ctrl-C within a line: the trial is not recorded, so no part of the line may stay.
            self._cut()
            raise
        self._whole += len(line)

    def _cut(self) -> None:
        # If even this fails, readers ignore the incomplete line, and so does the next writer.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._whole)
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the file. Harmless if it is closed already."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> TrialWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise RecordsError(
            "another process is writing this file",
            where=str(path),
            remedy="wait for that run, or end it; nearmetal status shows what runs",
        ) from e
    except OSError as e:
        if e.errno not in (errno.ENOLCK, errno.ENOTSUP):  # some network file systems have no locks
            raise


def _whole_bytes(fd: int, size: int) -> int:
    """Return the number of bytes up to the end of the last complete line.

    A last line that ends in a newline but is not JSON also counts as incomplete: a power cut may happen after
    the size of a file was written to disk and before its data were.

    size: size of the file in bytes.
    """
    tail = min(size, _TAIL)
    while True:
        data = _pread_all(fd, tail, size - tail)
        end = data.rfind(b"\n") + 1
        begin = data.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if begin or tail == size:
            break
        tail = min(size, tail * 16)
    if not end:
        return 0
    return size - tail + (end if is_whole(data[begin:end]) else begin)


def is_whole(line: bytes) -> bool:
    """Return whether a line is complete: it ends in a newline and is JSON."""
    if not line.endswith(b"\n"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _pread_all(fd: int, count: int, offset: int) -> bytes:
    parts = []
    while count:
        part = os.pread(fd, count, offset)
        if not part:
            break
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)
