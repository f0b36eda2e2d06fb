"""Makes and removes named network namespaces (/run/netns) and mounts."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import RunError

NETNS_DIRECTORY = Path("/run/netns")
PATIENCE = 2.0
"""Seconds after which a file system that is in use is detached instead of unmounted."""

_CLONE_NEWNET = 0x40000000
_MNT_DETACH = 2
_MS_NOSUID, _MS_NODEV = 2, 4
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 0x100000
_UMOUNT_NOFOLLOW = 8


_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    """Raise OSError with the errno of the last call of libc, unless its result is 0."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


def _bind(source: str, target: Path, flags: int) -> int:
    return int(_libc.mount(os.fsencode(source), os.fsencode(target), b"none", flags, None))


def mount(source: str, target: Path, kind: str, *, options: str = "") -> None:
    """Mount a file system by mount(2). Its set-user-ID bits and device nodes, which the root user of an
    instance may have made, have no effect.

    Raises RunError with the message of the kernel.
    """
    data = os.fsencode(options) if options else None
    try:
        flags = _MS_NOSUID | _MS_NODEV
        words = (os.fsencode(word) for word in (source, target, kind))
        _checked(_libc.mount(*words, flags, data), source)
    except OSError as e:
        raise RunError(f"mount {kind} on {target}: {e.strerror}", remedy="run as root") from e


def detach(path: Path) -> None:
    """Unmount lazily: the mount point is free at once, and the file system is released when its last user
    ends.

    Raises OSError.
    """
    _checked(_libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW), str(path))


def unmount(path: Path) -> None:
    """Unmount a file system after writing all its data; harmless if nothing is mounted.

    If the file system is still in use after PATIENCE seconds, it is detached.

    Raises OSError.
    """
    deadline = time.monotonic() + PATIENCE
    while _libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOENT):  # not mounted
            return
        if code != errno.EBUSY or time.monotonic() > deadline:
            detach(path)
            return
        time.sleep(0.005)


def join(descriptor: int) -> None:
    """Move the calling thread into the network namespace of an open descriptor.

    Raises OSError.
    """
    _checked(_libc.setns(descriptor, _CLONE_NEWNET), "network namespace")


@contextmanager
def entered(path: str) -> Iterator[None]:
    """Move the calling thread into another network namespace, and back into its own on exit.

    Raises OSError if the namespace cannot be entered (this needs root), RunError if the thread cannot return.
    """
    with _opened("/proc/thread-self/ns/net") as own, _opened(path) as other:
        join(other)
        try:
            yield
        finally:
            try:
                join(own)
            except OSError as e:
                raise RunError(f"this thread cannot leave the network namespace {path}: {e.strerror}") from e


def is_network_namespace(path: str) -> bool:
    """Return whether a network namespace is mounted at a path. A killed program may have left a plain file
    there.

    Raises OSError if the namespace cannot be entered (this needs root).
    """
    try:
        with entered(path):
            return True
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.EINVAL):
            return False
        raise


@contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_network_namespaces(names: Sequence[str]) -> None:
    """Make network namespaces with names, as ip-netns(8) does.

    The calling thread stays in the last of them, so call this in a thread that ends afterwards.

    Raises OSError.
    """
    if names:
        place = str(NETNS_DIRECTORY)
        NETNS_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
        if _bind("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC) != 0:  # no mount point yet
            _checked(_bind(place, NETNS_DIRECTORY, _MS_BIND | _MS_REC), place)
            _checked(_bind("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC), place)
    for name in names:
        path = NETNS_DIRECTORY / name
        path.touch(mode=0o444, exist_ok=False)
        _checked(_libc.unshare(_CLONE_NEWNET), name)
        _checked(_bind("/proc/thread-self/ns/net", path, _MS_BIND), str(path))


def same_namespace(pid: int, kind: str) -> bool:
    """Return whether a process is in our namespace of this kind. The kind is a name in /proc/<pid>/ns."""
    own, other = (Path(f"/proc/{p}/ns/{kind}").stat() for p in ("self", pid))
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


def remove_network_namespace(path: Path) -> None:
    """Remove a name from /run/netns; harmless if there is none. The namespace itself ends with its last
    process.

    Raises RunError if the kernel refuses.
    """
    with contextlib.suppress(OSError):  # a name that was never mounted
        detach(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise RunError(f"{path}: {e.strerror}", remedy=f"ip netns delete {path.name}") from e


@contextmanager
def named_network_namespaces(names: Sequence[str]) -> Iterator[None]:
    """Remove the names of network namespaces on exit. The caller makes them in the body.

    /run/netns is removed too if it did not exist before.
    """
    was_there = NETNS_DIRECTORY.exists()
    try:
        yield
    finally:
        for name in names:
            remove_network_namespace(NETNS_DIRECTORY / name)
        if not was_there:
            remove_empty_directory()


def remove_empty_directory() -> None:
    """Remove /run/netns if no name is left in it. It is made again together with the next name."""
    with contextlib.suppress(OSError):  # another run may have removed it
        if any(NETNS_DIRECTORY.iterdir()):
            return
        with contextlib.suppress(OSError):  # mounted on itself, so detach until it is no mount point
            while True:
                detach(NETNS_DIRECTORY)
        NETNS_DIRECTORY.rmdir()
