"""A copy of a directory that is reset by difference: only what a program has changed is made anew.

A change is found by inode, change time, size, mode and owner. Copying the whole directory before each run
would take much longer, and a fresh overlay would slow down the program.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from ..host import Host
from ..host.removal import remove_tree
from ..host.untrusted import UntrustedDirectory

TICK = 0.01
"""Seconds to wait after a reset. The clock of a file system may be as coarse as this, and a change in the
same tick would keep the change time of the reset."""
COPY_LIMIT = 600.0
"""Time limit of one copying command, in seconds."""
_WORDS = 100_000
"""Bytes of file names on one command line. The kernel accepts at least 128 KiB."""
_A_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Mark(NamedTuple):
    """What is compared of one entry of a tree.

    changed: change time in ns; 0 for a directory, whose entries are compared one by one.
    modified: modification time of a directory in ns; 0 for all others.
    """

    inode: int
    changed: int
    size: int
    mode: int
    owner: tuple[int, int]
    modified: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


def mark_of(status: os.stat_result) -> Mark:
    directory = stat.S_ISDIR(status.st_mode)
    return Mark(
        inode=status.st_ino,
        changed=0 if directory else status.st_ctime_ns,
        size=0 if directory else status.st_size,
        mode=status.st_mode,
        owner=(status.st_uid, status.st_gid),
        modified=status.st_mtime_ns if directory else 0,
    )


def walk(root: Path) -> Generator[tuple[str, os.stat_result]]:
    """Yield the relative path and the status of everything below a directory, each directory before its
    entries. Links are not followed, even if a program puts one in the place of a directory meanwhile.

    Raises OSError.
    """
    own = UntrustedDirectory(root)
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        fd = own.open(directory or ".", _A_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = f"{directory}/{entry.name}" if directory else entry.name
                    status = entry.stat(follow_symlinks=False)
                    yield name, status
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(name)
        finally:
            os.close(fd)


@dataclass(kw_only=True)
class ResetTree:
    """A copy of a directory, in which programs run, and which is reset to the contents of the directory.

    The programs may be hostile and run on during a reset. So what is made anew is copied to another place,
    which they do not see, and renamed from there.

    original: the directory. It is only read.
    place: an empty directory on the same file system, which only this user can enter.
    hidden: relative paths in the original that the copy lacks.
    """

    host: Host
    original: Path
    place: Path
    hidden: tuple[PurePath, ...] = ()
    _marks: dict[str, Mark] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.place / "tree"

    def fill(self) -> None:
        """Make the copy. Raises RunError, OSError."""
        self.tree.mkdir()
        self._copy(sorted(entry.name for entry in os.scandir(self.original)), self.tree)
        for name in self.hidden:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _remove(self.tree / name)
        for path in {PurePath(), *(parent for name in self.hidden for parent in name.parents)}:
            self._restore_directory(path)
        self._settle()

    def reset(self) -> tuple[str, ...]:
        """Undo all changes, on the disk too. Returns the relative paths of what had changed.

        Raises RunError, OSError.
        """
        now = self._look()
        changed = sorted(n for n in {**now, **self._marks} if now.get(n) != self._marks.get(n))
        if not changed:
            return ()
        anew = _topmost(n for n in changed if not self._is_kept(n, now.get(n)))
        own = UntrustedDirectory(self.tree)
        staged, removed = self.place / "staged", self.place / "removed"
        for directory in (staged, removed):
            remove_tree(directory)  # of a reset that failed
            directory.mkdir()
        self._copy(again := [n for n in anew if self._is_shown(n)], staged)
        for number, name in enumerate(anew):
            if name in now:
                with _parent(own, name) as (parent, last):
                    os.rename(last, removed / str(number), src_dir_fd=parent)
        for name in again:
            with _parent(own, name) as (parent, last):
                os.rename(staged / name, last, dst_dir_fd=parent)
        for directory in (staged, removed):
            remove_tree(directory)
        # Their times have changed with their entries.
        above = {parent for name in changed for parent in (PurePath(name), *PurePath(name).parents)}
        for path in {PurePath(), *above}:
            self._restore_directory(path)
        self._settle()
        return tuple(changed)

    def _settle(self) -> None:
        """Take the tree, once it is on the disk, for the state to which it is reset."""
        self.host.run(["sync", "--file-system", str(self.tree)], timeout=COPY_LIMIT)
        time.sleep(TICK)
        self._marks = self._look()

    def _look(self) -> dict[str, Mark]:
        found = {name: mark_of(status) for name, status in walk(self.tree)}
        return {".": mark_of(self.tree.stat()), **found}

    def _is_kept(self, name: str, now: Mark | None) -> bool:
        """Return whether a name is the same directory as before, of which only attributes differ."""
        before = self._marks.get(name)
        if now is None or before is None:
            return False
        return now.is_directory and before.is_directory and now.inode == before.inode

    def _is_shown(self, name: str) -> bool:
        path = PurePath(name)
        return not any(path.is_relative_to(h) for h in self.hidden) and os.path.lexists(self.original / path)

    def _restore_directory(self, path: PurePath) -> None:
        """Give a directory in the tree the attributes of the original; nothing if it is no directory."""
        source = self.original / path
        if not self._is_shown(str(path)) or not stat.S_ISDIR((before := source.lstat()).st_mode):
            return
        try:
            fd = UntrustedDirectory(self.tree).open(path, _A_DIRECTORY)
        except FileNotFoundError:
            return
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, stat.S_IMODE(before.st_mode))
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(fd)

    def _copy(self, names: Sequence[str], target: Path) -> None:
        options = ["--archive", "--reflink=auto", "--parents", f"--target-directory={target}"]
        for some in _chunks([n for n in names if self._is_shown(n)]):
            self.host.run(["cp", *options, "--", *some], timeout=COPY_LIMIT, cwd=self.original).require(
                f"{self.original} cannot be copied"
            )


def _topmost(names: Iterable[str]) -> list[str]:
    """Return the names that are below no other of the names."""
    found: dict[PurePath, str] = {}
    for name in sorted(names, key=lambda n: n.count("/")):  # "." is always kept
        if found.keys().isdisjoint(PurePath(name).parents):
            found[PurePath(name)] = name
    return list(found.values())


@contextlib.contextmanager
def _parent(own: UntrustedDirectory, name: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the directory that holds a name, and the last part of the name."""
    path = PurePath(name)
    fd = own.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd, path.name
    finally:
        os.close(fd)


def _chunks(names: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for name in names:
        size += len(os.fsencode(name)) + 1
        if size > _WORDS and some:
            yield some
            some, size = [], len(os.fsencode(name)) + 1
        some.append(name)
    if some:
        yield some


def _remove(path: Path) -> None:
    if stat.S_ISDIR(path.lstat().st_mode):
        remove_tree(path)
    else:
        path.unlink()
