"""Where a run keeps what must not outlive it: a runtime directory, in it one scratch directory per run."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import RunError

OUTSIDE = "outside"
"""The file in a scratch directory that names what its run has made elsewhere."""

SHORT_PARENT = Path("/tmp")
"""Where a directory has a short path whoever the user is."""


def runtime_directory() -> Path:
    """/run/nearmetal for root, $XDG_RUNTIME_DIR/nearmetal where that can be written, else
    /tmp/nearmetal-<uid>; not made."""
    if os.geteuid() == 0:
        return Path("/run/nearmetal")
    own = os.environ.get("XDG_RUNTIME_DIR")
    # A login that has ended, or `su`, leaves a name behind that is not there or is another user's.
    if own and os.access(own, os.W_OK):
        return Path(own) / "nearmetal"
    return Path(f"/tmp/nearmetal-{os.geteuid()}")


def make_runtime_directory() -> Path:
    """The runtime directory, made where missing.

    Raises RunError when something else stands there: /tmp is everyone's, so it must be a real directory of
    ours.
    """
    path = runtime_directory()
    path.mkdir(mode=0o755, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RunError(f"{path} is not a directory of this user", remedy=f"remove {path}")
    return path


@contextmanager
def scratch_directory(label: str) -> Iterator[Path]:
    """An empty directory of the run's own, removed on leaving with all that is in it."""
    path = runtime_directory() / label
    parent = path.parent
    try:
        for _ in range(100):
            make_runtime_directory()
            # Another run that ends just now may take the parent away again.
            with contextlib.suppress(FileNotFoundError):
                path.mkdir(mode=0o755)
                break
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: another run's
            parent.rmdir()


def note_outside(scratch: Path, path: Path) -> None:
    """Note in a run's scratch directory what it is about to make elsewhere, so that it is found after a kill
    -9. path: a directory whose name begins with the run's label, without a newline."""
    with (scratch / OUTSIDE).open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{path}\n")


def noted_outside(scratch: Path) -> tuple[Path, ...]:
    """What a run has noted; empty where it has noted nothing."""
    try:
        text = (scratch / OUTSIDE).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return tuple(Path(line) for line in dict.fromkeys(text.splitlines()) if line)


SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def shared_memory_directory(label: str) -> Iterator[Path]:
    """An empty directory in memory, removed on leaving with all that is in it."""
    path = SHARED_MEMORY / label
    try:
        path.mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def short_directory(label: str, scratch: Path) -> Iterator[Path]:
    """scratch_directory() for programs that refuse long paths, readable by us alone. scratch: where it is
    noted, to be found after a kill -9.

    Raises RunError where something of this name is there.
    """
    with noted_directory(SHORT_PARENT / label, scratch, mode=0o700) as path:
        yield path


@contextmanager
def noted_directory(path: Path, scratch: Path, *, mode: int) -> Iterator[Path]:
    """A new directory outside the runtime directory, removed on leaving with all that is in it. scratch:
    where it is noted, to be found after a kill -9.

    Raises RunError where it cannot be made.
    """
    note_outside(scratch, path)
    try:
        path.mkdir(mode=mode)
    except OSError as e:
        raise RunError(f"{path}: {e.strerror}", remedy="nearmetal clean") from e
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
