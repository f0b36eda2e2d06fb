"""Where a run keeps what must not outlive it: a runtime directory, in it one scratch directory per run."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..errors import RunError
from . import namespaces

OUTSIDE = "outside"
"""The file in a scratch directory that names what its run has made elsewhere."""

SHORT_PARENT = Path("/tmp")
"""Where a directory has a short path whoever the user is."""


def user_cache() -> Path:
    """The directory for caches of this user: $XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


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


@contextmanager
def memory_scratch_directory(label: str) -> Iterator[Path]:
    """scratch_directory() in memory, whatever /run stands on: what trials write there waits for no disk, and
    no disk is busy with it when records are written. Where we may not mount it stands on what is there."""
    with scratch_directory(label) as path:
        mounted = False
        try:
            with contextlib.suppress(RunError):
                namespaces.mount(label, path, "tmpfs", options="mode=0755")
                mounted = True
            yield path
        finally:
            if mounted:
                with contextlib.suppress(OSError):  # somebody has unmounted it already
                    namespaces.detach(path)


def own_notes(name: str) -> Iterator[str]:
    """What files of this name in scratch directories say. Of this user's alone, and not through links: in
    /tmp anybody could have made them."""
    if not _own(runtime_directory(), stat.S_IFDIR):
        return
    for file in sorted(runtime_directory().glob(f"nearmetal-*/{name}")):
        if _own(file.parent, stat.S_IFDIR) and _own(file, stat.S_IFREG):
            with contextlib.suppress(OSError):
                yield file.read_text(errors="replace")


def _own(path: Path, kind: int) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid()


def note_outside(scratch: Path, path: Path) -> None:
    """Note in a run's scratch directory what it is about to make elsewhere, so that it is found after a kill
    -9. path: a directory whose name begins with the run's label, without a newline."""
    with (scratch / OUTSIDE).open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{path}\n")


def noted_outside(scratch: Path) -> tuple[Path, ...]:
    """What a run of this user has noted; empty where it has noted nothing."""
    if not (_own(scratch, stat.S_IFDIR) and _own(scratch / OUTSIDE, stat.S_IFREG)):
        return ()
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
        try:
            path.rmdir()  # ranks that end well leave nothing
        except OSError:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def outside_directory(path: Path, scratch: Path, *, mode: int = 0o755) -> Iterator[Path]:
    """An empty directory of the run's own away from its scratch directory, removed on leaving with all that
    is in it. path: its name begins with the label; scratch: where it is noted, to be found after a kill -9.

    Raises RunError where something of this name is there.
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


def short_directory(label: str, scratch: Path) -> AbstractContextManager[Path]:
    """outside_directory() for programs that refuse long paths, readable by us alone."""
    return outside_directory(SHORT_PARENT / label, scratch, mode=0o700)
