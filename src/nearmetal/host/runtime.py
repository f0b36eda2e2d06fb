"""Directories for files that must not outlive a run: a runtime directory with one scratch directory per
run. Only their user can read them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import RunError
from . import namespaces
from .removal import discard_tree
from .untrusted import UntrustedDirectory

PROBED = 32 << 20
"""Bytes that are written to measure a speed."""


def user_cache() -> Path:
    """Return the directory for caches of this user: $XDG_CACHE_HOME, else ~/.cache.

    Raises OSError if this user has no home directory.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or _home("XDG_CACHE_HOME") / ".cache")


def cache_directory() -> Path:
    """Return the directory where nearmetal keeps what it can make again, such as compiled programs."""
    return user_cache() / "nearmetal"


def rebuild_remedy() -> str:
    """Return the remedy for a compiled program that is missing, or does not run."""
    return f"remove the cache, {cache_directory()}, to have it built again"


def user_state() -> Path:
    """Return the directory for data of this user that must not be lost: $XDG_STATE_HOME, else
    ~/.local/state.

    Raises OSError if this user has no home directory.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or _home("XDG_STATE_HOME") / ".local" / "state")


def _home(instead: str) -> Path:
    try:
        return Path.home()
    except RuntimeError as e:  # such as in a container that is run with any user number
        raise OSError(errno.ENOENT, "this user has no home directory", f"${instead}") from e


def runtime_directory() -> Path:
    """Return the path of the runtime directory, without making it.

    It is /run/nearmetal for root, else $XDG_RUNTIME_DIR/nearmetal if $XDG_RUNTIME_DIR is writable, else
    /tmp/nearmetal-<uid>.
    """
    if os.geteuid() == 0:
        return Path("/run/nearmetal")
    own = os.environ.get("XDG_RUNTIME_DIR")
    # After the end of a login, or after `su`, the directory may be missing or belong to another user.
    if own and os.access(own, os.W_OK):
        return Path(own) / "nearmetal"
    return Path(f"/tmp/nearmetal-{os.geteuid()}")


def make_runtime_directory() -> None:
    """Make the runtime directory if it is missing.

    Raises RunError if the path is not a real directory of this user; anybody can make files in /tmp.
    """
    path = runtime_directory()
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not _is_own_directory(path):
        raise RunError(
            f"{path} is not a directory of this user",
            remedy=f"have {path} removed, or set XDG_RUNTIME_DIR to a directory of your own",
        )


@contextmanager
def scratch_directory(label: str) -> Iterator[Path]:
    """Make an empty directory for the run that only this user can enter, and remove it with its contents on
    exit."""
    path = runtime_directory() / label
    parent = path.parent
    try:
        for _ in range(100):
            # Another run that ends at this moment may remove the parent again.
            with contextlib.suppress(FileNotFoundError):
                make_runtime_directory()
                # What an instance leaves here may have set-user-ID bits.
                path.mkdir(mode=0o700)
                break
        yield path
    finally:
        discard_tree(path)
        with contextlib.suppress(OSError):  # not empty: it contains a directory of another run
            parent.rmdir()


@contextmanager
def memory_scratch_directory(label: str) -> Iterator[Path]:
    """Make a scratch directory in memory, so that files of trials neither wait for a disk nor keep it busy
    while records are written.

    If this user may not mount a tmpfs, the directory is an ordinary scratch directory.
    """
    with scratch_directory(label) as path:
        mounted = False
        try:
            with contextlib.suppress(RunError):
                namespaces.mount(label, path, "tmpfs", options="mode=0700")
                mounted = True
            yield path
        finally:
            if mounted:
                with contextlib.suppress(OSError):  # another process has unmounted it already
                    namespaces.detach(path)


def own_notes(name: str) -> Iterator[str]:
    """Yield the contents of the files with this name in all scratch directories.

    Only files of this user in a directory of this user are read, because anybody can make files in /tmp.
    """
    scratch, labels = UntrustedDirectory(runtime_directory()), list[str]()
    with contextlib.suppress(OSError):
        if _is_own_directory(runtime_directory()):
            labels += scratch.names()
    for label in (label for label in labels if label.startswith("nearmetal-")):
        with contextlib.suppress(OSError):
            yield scratch.read_own(f"{label}/{name}").decode(errors="replace")


def _is_own_directory(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def find_exposure(directory: Path) -> str | None:
    """Return why other users may have changed what is directly in a directory; None if none can have.

    Raises OSError, for instance FileNotFoundError.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{directory} belongs to another user"
    return f"{directory} is open to other users" if status.st_mode & 0o077 else None


SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def shared_memory_directory(label: str) -> Iterator[Path]:
    """Make an empty directory in /dev/shm, and remove it with its contents on exit."""
    path = SHARED_MEMORY / label
    try:
        path.mkdir(mode=0o700)
        yield path
    finally:
        try:
            path.rmdir()  # ranks that end without an error leave nothing
        except OSError:
            discard_tree(path)


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
