"""The only way to files that somebody else may have made: results directories that were unpacked or cloned,
trees of images, checkpoints, and files that an instance has written.

No link leads out of the directory, nothing blocks on a FIFO, devices are never opened, and no file is read
without a limit on its size.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader, FileIO
from pathlib import Path, PurePath

from .durable import replace_in

LIMIT = 16 << 20
"""Default for the largest file that is read whole, in bytes. Parsed as JSON, such a file needs less than
1 GiB of memory."""

_BUFFER = 1 << 20
"""Bytes that are read at once from a file that is read by lines."""
_OPENAT2 = 437
_NO_MAGIC_LINKS, _BENEATH, _IN_ROOT = 0x02, 0x08, 0x10
_HERE = PurePath()
_UNKNOWN = (errno.ENOSYS, errno.EPERM)
"""What openat2(2) reports before Linux 5.6, and under an old seccomp filter."""
_ATTEMPTS = 100
"""The kernel refuses '..' with EAGAIN while anything is renamed; the next attempt usually succeeds."""
_STREAM = re.compile(r"/dev/stdin|(?:/dev|/proc/self)/fd/\d+")
"""Path of a stream of this process. A shell writes it for <(COMMAND)."""
_REPLACED = 10
"""Attempts to open a file on NFS that another machine replaces meanwhile."""
_REASONS = {errno.EXDEV: "leads out of the directory", errno.ELOOP: "is a symbolic link"}


class _StaleError(OSError):
    """A file on NFS was replaced between its two openings (ESTALE)."""


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class UntrustedDirectory:
    """A directory whose contents somebody else may have made. All names are relative to it.

    path: path of the directory, which the user has named. It may itself be a link.
    as_root: whether links are resolved as if the directory were /, as in the tree of an image. Otherwise a
        link may lead to a place inside the directory only.
    inner: the directory inside `path` to which all names are relative; see below().

    Every method raises OSError, whose `strerror` also says why a file is refused.
    """

    path: Path
    as_root: bool = False
    inner: PurePath = _HERE

    @classmethod
    def part(cls, place: Path) -> UntrustedDirectory:
        """Return a directory in a directory that somebody else may have made, such as samples/ of a results
        directory. A link at `place` itself must not lead out of the parent either."""
        return cls(place.parent).below(place.name)

    def below(self, name: str | PurePath) -> UntrustedDirectory:
        """Return a directory inside this one. Its links may lead to any place in this one."""
        return replace(self, inner=self.inner / name)

    def path_to(self, name: str | PurePath) -> Path:
        """Return the path of a file for messages. It must not be opened."""
        return self.path / self.inner / name

    def open(self, name: str | PurePath, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
        """Return a descriptor of a file of any kind, without waiting for the other end of a FIFO."""
        flags |= os.O_CLOEXEC | (0 if flags & os.O_PATH else os.O_NONBLOCK | os.O_NOCTTY)
        root = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        inner = self.inner / name
        try:
            try:
                return _open_beneath(root, str(inner), flags, mode, _IN_ROOT if self.as_root else _BENEATH)
            except OSError as e:
                if e.errno not in _UNKNOWN:
                    raise
                inner = _resolve(root, inner, flags) if self.as_root else inner
                return _open_without_links(root, inner, flags, mode)
        except OSError as e:
            reason = _REASONS.get(e.errno or 0, os.strerror(e.errno or 0))
            raise OSError(e.errno, reason, str(self.path_to(name))) from None
        finally:
            os.close(root)

    def open_file(self, name: str | PurePath, buffering: int = 1 << 16) -> BufferedReader:
        """Open a regular file for reading."""
        for _ in range(_REPLACED):
            # Opened as a path first, because opening a device can have an effect.
            with self._path_of(name) as fd, contextlib.suppress(_StaleError):
                return _open_regular(fd, self.path_to(name), buffering)
        raise OSError(errno.ESTALE, "is replaced all the time", str(self.path_to(name)))

    def open_to_append(self, name: str | PurePath, mode: int = 0o644) -> int:
        """Return a descriptor of a regular file for reading and appending. A missing file is made."""
        with contextlib.suppress(FileNotFoundError), self._path_of(name) as fd:
            _require_regular(fd, self.path_to(name))
        fd = self.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
        try:
            _require_regular(fd, self.path_to(name))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read_bytes(self, name: str | PurePath, limit: int = LIMIT) -> bytes:
        """Return the contents of a regular file of at most `limit` bytes."""
        with self.open_file(name) as file:
            return _read_all(file, self.path_to(name), limit)

    def read_own(self, name: str | PurePath, limit: int = LIMIT) -> bytes:
        """Return the contents of a regular file of at most `limit` bytes that belongs to this user."""
        with self.open_file(name) as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "belongs to another user", str(self.path_to(name)))
            return _read_all(file, self.path_to(name), limit)

    def lines(self, name: str | PurePath, offset: int = 0, limit: int = LIMIT) -> Iterator[bytes]:
        """Yield the lines of a regular file, of at most `limit` bytes each, from an offset on."""
        with self.open_file(name, _BUFFER) as file:
            file.seek(offset)
            while line := file.readline(limit + 1):
                if len(line) > limit:
                    raise OSError(
                        errno.EFBIG, f"has a line of more than {limit} bytes", str(self.path_to(name))
                    )
                yield line

    def exists(self, name: str | PurePath) -> bool:
        """Return whether anything has this name, even if it is refused when it is opened."""
        try:
            with self._path_of(name):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def status(self, name: str | PurePath = ".") -> os.stat_result:
        """Return the status of a file or directory."""
        with self._path_of(name) as fd:
            return os.fstat(fd)

    def stat(self, name: str | PurePath) -> os.stat_result | None:
        """Return the status of a file; None if there is no such file inside the directory."""
        try:
            return self.status(name)
        except OSError:
            return None

    def is_file(self, name: str | PurePath) -> bool:
        """Return whether a regular file has this name."""
        found = self.stat(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def is_directory(self, name: str | PurePath) -> bool:
        """Return whether a directory has this name."""
        found = self.stat(name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def has_name(self, name: str | PurePath) -> bool:
        """Return whether anything, even a link to nothing, has this name."""
        try:
            os.close(self.open(name, os.O_PATH | os.O_NOFOLLOW))
        except OSError:
            return False
        return True

    def real_path(self, name: str | PurePath) -> Path:
        """Return the path of a file or directory without any link. It is safe to use as long as nobody
        changes the directory."""
        with self._path_of(name) as fd:
            return Path(f"/proc/self/fd/{fd}").readlink()

    def names(self, name: str | PurePath = ".") -> tuple[str, ...]:
        """Return the sorted names of everything in a directory; () if it does not exist."""
        try:
            fd = self.open(name, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return ()
        try:
            return tuple(sorted(entry.name for entry in os.scandir(fd)))
        finally:
            os.close(fd)

    def make_directory(self, name: str | PurePath, mode: int = 0o755) -> None:
        """Make a directory. Harmless if the name, or the target of a link with this name, is a directory."""
        if self.is_directory(name):
            return
        name = PurePath(name)
        with self._path_of(name.parent) as parent:
            os.mkdir(name.name, mode, dir_fd=parent)

    def files(self) -> Iterator[str]:
        """Yield the names of all regular files at any depth. No link is followed."""
        directories = [""]
        while directories:
            directory = directories.pop()
            fd = self.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for entry in os.scandir(fd):
                    name = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(name)
                    elif entry.is_file(follow_symlinks=False):
                        yield name
            finally:
                os.close(fd)

    def replace_file(self, name: str | PurePath, data: bytes, mode: int = 0o644) -> None:
        """Write a whole file to disk, replacing atomically whatever has its name, but not the target of a
        link. The temporary file of a failed attempt is removed."""
        name = PurePath(name)
        parent = self.open(name.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            replace_in(parent, name.name, data, mode)
        finally:
            os.close(parent)

    def link(self, name: str, new: str) -> None:
        """Give a file a second name in the same directory. Raises FileExistsError if anything has that
        name."""
        with self._path_of(".") as directory:
            os.link(name, new, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)

    def write_bytes(
        self, name: str | PurePath, data: bytes, mode: int | None = None, *, sync: bool = False
    ) -> None:
        """Make a new file. Raises FileExistsError if anything, even a broken link, has this name.

        mode: its mode, whatever the umask; None for a file as any other program would make it.
        sync: return only when the file is on disk.
        """
        name = PurePath(name)
        with self._path_of(name.parent) as parent:
            fd = os.open(
                name.name,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o666 if mode is None else mode,
                dir_fd=parent,
            )
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(fd, mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(fd)

    def overwrite(self, name: str | PurePath, data: bytes) -> None:
        """Make a new file in place of a file or link of this name."""
        self.unlink(name)
        self.write_bytes(name, data)

    def make_fifo(self, name: str | PurePath, flags: int = os.O_RDWR) -> int:
        """Make a FIFO, and return its descriptor. Raises FileExistsError if anything has this name.

        flags: for open_fifo().
        """
        name = PurePath(name)
        with self._path_of(name.parent) as parent:
            os.mkfifo(name.name, 0o600, dir_fd=parent)
        return self.open_fifo(name, flags)

    def open_fifo(self, name: str | PurePath, flags: int = os.O_RDWR) -> int:
        """Return a non-blocking descriptor of a FIFO.

        flags: O_RDWR, with which there is never an end of file, or O_RDONLY.
        """
        fd = self.open(name, flags)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "is not a FIFO", str(self.path / name))
        return fd

    def unlink(self, name: str | PurePath) -> None:
        """Remove a file, or a link but not its target. Harmless if it does not exist."""
        name = PurePath(name)
        with contextlib.suppress(FileNotFoundError), self._path_of(name.parent) as parent:
            os.unlink(name.name, dir_fd=parent)

    @contextmanager
    def _path_of(self, name: str | PurePath) -> Iterator[int]:
        """Yield a descriptor of a file or directory that is good for its status and as `dir_fd` only."""
        fd = self.open(name, os.O_PATH)
        try:
            yield fd
        finally:
            os.close(fd)


def read_named(path: Path, limit: int = LIMIT) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes that the user has named. Links in its
    path are followed, also out of the directory. The user's own streams, such as /dev/stdin, are read too.

    Raises OSError, like the methods of UntrustedDirectory.
    """
    if _STREAM.fullmatch(str(path)):
        with path.open("rb") as stream:
            return _read_all(stream, path, limit)
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with _open_regular(fd, path) as file:
            return _read_all(file, path, limit)
    finally:
        os.close(fd)


def _open_regular(fd: int, path: Path, buffering: int = 1 << 16) -> BufferedReader:
    """Open the regular file of an O_PATH descriptor for reading."""
    _require_regular(fd, path)
    try:
        opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        kind = _StaleError if e.errno == errno.ESTALE else OSError
        raise kind(e.errno, e.strerror, str(path)) from None
    return BufferedReader(FileIO(opened), buffering)


def _read_all(file: BufferedReader, path: Path, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"has more than {limit} bytes", str(path))
    return data


def _require_regular(fd: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def _open_beneath(root: int, name: str, flags: int, mode: int, resolve: int) -> int:
    how = _OpenHow(flags=flags, mode=mode if flags & os.O_CREAT else 0, resolve=resolve | _NO_MAGIC_LINKS)
    for _ in range(_ATTEMPTS):
        fd: int = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(os.fsencode(name or ".")),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EAGAIN:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _resolve(root: int, name: str | PurePath, flags: int) -> PurePath:
    """Return a path without links and '..', where the kernel has no openat2(2): `root` stands for /. If
    somebody changes a link meanwhile, _open_without_links() refuses the path."""
    waiting, inside = [*reversed(PurePath(name).parts)], list[str]()
    for _ in range(_ATTEMPTS * len(waiting)):
        if not waiting:
            break
        part = waiting.pop()
        if part in ("/", ".."):
            inside = inside[:-1] if part == ".." else []
            continue
        inside.append(part)
        if waiting or not flags & os.O_NOFOLLOW:
            with contextlib.suppress(OSError):  # not a link, or it does not exist
                target = os.readlink("/".join(inside), dir_fd=root)
                inside.pop()
                waiting += reversed(PurePath(target).parts)
    if waiting:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return PurePath(*inside)


def _open_without_links(root: int, name: PurePath, flags: int, mode: int) -> int:
    """Open a file where the kernel has no openat2(2): component by component, and no component may be a
    link, except the last one with O_NOFOLLOW."""
    parts = [part for part in name.parts if part != "/"]
    if ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    at = os.dup(root)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = inner
        last = parts[-1] if parts else "."
        fd = os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=at)
        # O_PATH | O_NOFOLLOW opens the link itself.
        if stat.S_ISLNK(os.fstat(fd).st_mode) and not flags & os.O_NOFOLLOW:
            os.close(fd)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return fd
    finally:
        os.close(at)
