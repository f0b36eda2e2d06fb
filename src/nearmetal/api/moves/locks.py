"""Locks, so that no two commands write, restore or move the same instance at a time. The kernel releases a
lock when its holder ends, even by kill -9."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ...errors import BusyError, UsageError
from ...host.runtime import user_state
from ...host.untrusted import UntrustedDirectory

_PLACES = 1 << 60
"""Number of bytes of the lock file that can be locked. The byte of an instance follows from a digest of its
name."""


@contextmanager
def only_one(instance: str) -> Iterator[None]:
    """Lock an instance of the user's by its name while the body runs.

    Raises BusyError if another command has locked it, UsageError if the lock file cannot be opened.
    """
    file = user_state() / "nearmetal" / "moves.lock"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = UntrustedDirectory(file.parent).open_to_append(file.name, 0o600)
    except OSError as e:
        remedy = f"remove {file}, or make its directory writable"
        raise UsageError(f"{file}: {e.strerror}", remedy=remedy) from e
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise UsageError(f"{file} belongs to another user", remedy=f"remove {file}")
    place = int.from_bytes(sha256(instance.encode()).digest()[:8]) % _PLACES
    busy = f"{instance} is checkpointed, restored or moved by another command"
    with _locked(fd, lambda fd, how: fcntl.lockf(fd, how, 1, place), busy):
        yield


@contextmanager
def only_one_of(directory: Path) -> Iterator[None]:
    """Lock the images in a directory while the body runs. A directory that cannot be opened is not locked.

    Raises BusyError if another command restores from them.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # who reads the images says what is wrong with them
        yield
        return
    with _locked(fd, fcntl.flock, f"another command restores from {directory}"):
        yield


@contextmanager
def _locked(fd: int, lock: Callable[[int, int], object], busy: str) -> Iterator[None]:
    """Lock an open file while the body runs, and close it then.

    fd: the open file.
    lock: fcntl.flock or fcntl.lockf, called with the file and the kind of lock.

    Raises BusyError with the text `busy` if another process holds the lock.
    """
    try:
        try:
            lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise BusyError(busy, remedy="wait until it has ended") from e
        yield
    finally:
        os.close(fd)
