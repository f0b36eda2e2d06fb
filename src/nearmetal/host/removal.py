"""Removes directories that an instance or somebody else may have filled."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a directory and everything in it. Does nothing if it does not exist.

    Links are not followed, and directories may be nested to any depth (shutil.rmtree fails at about 1000).
    Without root, directories that are not writable are made writable first.
    Raises OSError.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    path.rmdir()


def discard_tree(path: Path) -> None:
    """Remove a directory and what can be removed of its contents. No error is raised."""
    with contextlib.suppress(OSError):
        remove_tree(path)


def _empty(top: int) -> None:
    """Remove everything in a directory. What a directory contains is first moved up to `top`, so that no path
    ever has more than two components. An error is raised after all else has been removed."""
    prefix, moved = f".nearmetal-{os.urandom(8).hex()}-", itertools.count()
    failed: dict[str, OSError] = {}
    while entries := [entry for entry in os.scandir(top) if entry.name not in failed]:
        for entry in entries:
            try:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                    continue
                _make_writable(entry, top)
                inner = os.open(
                    entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top
                )
                try:
                    for deeper in list(os.scandir(inner)):
                        _make_writable(deeper, inner)
                        os.rename(deeper.name, f"{prefix}{next(moved)}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(entry.name, dir_fd=top)
            except OSError as e:
                failed[entry.name] = e
    for error in failed.values():
        raise error


def _make_writable(entry: os.DirEntry[str], parent: int) -> None:
    """Let this user, if it is not root, move and empty a directory. Files may have other links elsewhere, so
    their mode is not changed."""
    if os.geteuid() != 0 and entry.is_dir(follow_symlinks=False):
        with contextlib.suppress(OSError):
            fd = os.open(entry.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                Path(f"/proc/self/fd/{fd}").chmod(0o700)  # glibc before 2.32 has no fchmodat() without links
            finally:
                os.close(fd)
