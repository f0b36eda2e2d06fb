"""Directories of a run outside its scratch directory, such as those on a disk. They are found after a kill -9
and after a power cut by undo notes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..errors import RunError
from .durable import sync_directory
from .labels import OURS, owns
from .mounts import own_mounts
from .namespaces import detach
from .notes import Directories, Note, note_error, note_until_exit, undo_after
from .removal import discard_tree, remove_tree

SHORT_PARENT = Path("/tmp")
"""Parent of directories that need a short path for every user."""

_SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Trees in which no run makes a directory, whatever a note says."""

_noted: set[tuple[str, str]] = set()
"""Label of the run and parent directory of each note that this process has written."""


@contextmanager
def outside_directory(path: Path) -> Iterator[Path]:
    """Make an empty directory of the run outside its scratch directory, and remove it with its contents on
    exit. Only this user can read it.

    path: path of the directory; its name must begin with the run's label.

    Raises RunError if the directory cannot be made, for instance because the path exists.
    """
    with _note(path):
        try:
            path.mkdir(mode=0o700)
        except OSError as e:
            raise RunError(f"{path}: {e.strerror}", remedy="nearmetal clean") from e
        try:
            yield path
        finally:
            discard_tree(path)


def short_directory(label: str) -> AbstractContextManager[Path]:
    """Make an outside_directory() with a short path, for programs that refuse long paths."""
    return outside_directory(SHORT_PARENT / label)


def _note(path: Path) -> AbstractContextManager[None]:
    """Note that a directory is made. A run notes each parent directory once, and not in every trial."""
    change = Directories(parent=str(path.parent.resolve()))
    ours = OURS.fullmatch(path.name)
    if ours is None:
        return undo_after(path.name, change, remove_directories)
    if (ours["run"], change.parent) not in _noted:
        note_until_exit(ours["run"], change, remove_directories)
        _noted.add((ours["run"], change.parent))
    return contextlib.nullcontext()


def remove_directories(note: Note) -> None:
    """Undo a note of directories. When this function returns, they are not back after a power cut.

    Raises RunError if one of them cannot be removed, or OSError.
    """
    assert isinstance(note.change, Directories)
    if (why := refused_parent(Path(note.change.parent))) is not None:
        raise note_error(note.file, why)
    for path in find_directories(note):
        remove_directory(path)
    # The note may be on another file system. After a power cut there must be no directory without a note.
    with contextlib.suppress(FileNotFoundError):
        sync_directory(Path(note.change.parent))


def find_directories(note: Note) -> tuple[Path, ...]:
    """Return the directories that a note is about and that exist."""
    assert isinstance(note.change, Directories)
    parent = Path(note.change.parent)
    try:
        if refused_parent(parent) is not None:
            return ()
        with os.scandir(parent) as entries:
            return tuple(
                parent / entry.name
                for entry in sorted(entries, key=lambda e: e.name)
                if owns(note.label, entry.name)
                and entry.is_dir(follow_symlinks=False)
                # Anybody can make a directory in /var/tmp.
                and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            )
    except FileNotFoundError:
        return ()


def refused_parent(parent: Path) -> str | None:
    """Return why a note with this parent directory is not acted upon; None if it is."""
    if not parent.is_absolute() or ".." in parent.parts:
        return f"{parent} is not an absolute path"
    if any(parent.is_relative_to(top) for top in _SYSTEM):
        return f"nearmetal makes no directory in {parent}"
    if parent.resolve() != parent:
        return f"{parent} is a symbolic link now"
    return None


def remove_directory(path: Path) -> None:
    """Remove a directory with its contents. File systems that are mounted in it are unmounted, and their
    files are kept.

    Raises RunError if the directory still exists then, or OSError.
    """
    for mount in reversed(own_mounts()):
        if Path(mount.point).is_relative_to(path):
            detach(Path(mount.point))
    parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if Path(f"/proc/self/fd/{parent}").readlink() != path.parent:
            raise RunError(f"{path.parent} is a symbolic link now", remedy=f"remove {path}")
        with contextlib.suppress(FileNotFoundError):
            remove_tree(Path(f"/proc/self/fd/{parent}", path.name))
    except OSError as e:
        e.filename = str(path)
        raise
    finally:
        os.close(parent)
    if os.path.lexists(path):
        raise RunError(f"{path} still exists", remedy=f"remove {path}")
