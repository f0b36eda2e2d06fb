"""Computes the digest of a directory tree, and clamps its time stamps so that builds of one day are equal."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

PATH_LIMIT = 2048
"""Longest path inside a tree, in bytes. With the path of the store, it stays below PATH_MAX."""
HOLES_LIMIT = 16 << 30
"""Largest sum of the holes in sparse files of a tree, in bytes. A hole needs no space on the disk, but the
digest reads it like any other content."""
_LATEST = (1 << 32) - 1
"""Latest time stamp that all archive formats can express, in Unix seconds."""
_CAPABILITIES = "security.capability"


def entries(tree: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every entry below a directory with its relative path, in an order that does not depend on the
    file system. Symbolic links are not followed.

    Raises OSError, also for a path of more than PATH_LIMIT bytes.
    """
    waiting = [("", str(tree))]
    while waiting:
        inside, directory = waiting.pop()
        if len(os.fsencode(inside)) > PATH_LIMIT:
            raise OSError(errno.ENAMETOOLONG, "directories are nested too deep", f"{inside[:100]}...")
        with os.scandir(directory) as found:  # trusted: reached without links
            here = sorted(found, key=lambda entry: entry.name)
        for entry in here:
            yield f"{inside}{entry.name}", entry
        below = [e for e in here if e.is_dir(follow_symlinks=False)]
        waiting += [(f"{inside}{e.name}/", e.path) for e in reversed(below)]


def tree_digest(tree: Path) -> str:
    """Return the SHA-256, in hex, of a tree: of paths, file types, modes, modification times, contents, link
    targets and capabilities.

    Owners are not included, because all files of a tree that was built without root belong to the user.
    Raises OSError, also if the holes in sparse files exceed HOLES_LIMIT.
    """
    sha, holes = hashlib.sha256(), 0
    for name, entry in entries(tree):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            holes += max(found.st_size - found.st_blocks * 512, 0)
        if holes > HOLES_LIMIT:
            raise OSError(errno.EFBIG, f"sparse files have more than {HOLES_LIMIT} bytes of holes", name)
        head = f"{stat.S_IFMT(found.st_mode):o} {stat.S_IMODE(found.st_mode):o} {int(found.st_mtime)}"
        sha.update(os.fsencode(name) + b"\0" + head.encode() + b"\0" + _content(entry, found))
    return sha.hexdigest()


def _content(entry: os.DirEntry[str], found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return os.fsencode(Path(entry.path).readlink()) + b"\0"
    if stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode):
        return f"{found.st_rdev}\0".encode()
    if not stat.S_ISREG(found.st_mode):
        return b"\0"
    with Path(entry.path).open("rb") as file:  # trusted: a regular file, reached without links
        sha = hashlib.file_digest(file, "sha256")
    if _CAPABILITIES in os.listxattr(entry.path, follow_symlinks=False):
        sha.update(os.getxattr(entry.path, _CAPABILITIES, follow_symlinks=False))
    return sha.digest()


def tree_bytes(tree: Path) -> int:
    """Return the bytes that a tree occupies on the disk. A file with several hard links counts once."""
    seen: set[int] = set()
    total = 0
    for _, entry in entries(tree):
        found = entry.stat(follow_symlinks=False)
        if found.st_ino not in seen:
            seen.add(found.st_ino)
            total += found.st_blocks * 512
    return total


def newest_time(tree: Path) -> int:
    """Return the latest modification time of any entry in a tree, in Unix seconds; 0 for an empty tree. Times
    that archives cannot express are replaced by the nearest one."""
    newest = max((entry.stat(follow_symlinks=False).st_mtime for _, entry in entries(tree)), default=0)
    return int(min(max(newest, 0), _LATEST))


def clamp_times(tree: Path, epoch: int) -> None:
    """Set all modification times in a tree that are later than epoch to epoch. Files that are created by a
    build then have the same time in all builds of one day.

    epoch: Unix seconds.
    """
    for _, entry in entries(tree):
        if entry.stat(follow_symlinks=False).st_mtime > epoch:
            os.utime(entry.path, (epoch, epoch), follow_symlinks=False)
    if tree.stat().st_mtime > epoch:
        os.utime(tree, (epoch, epoch))
