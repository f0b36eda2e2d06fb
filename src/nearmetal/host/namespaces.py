"""Named network namespaces (/run/netns) and mounts, as far as they must be taken away again."""

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

_CLONE_NEWNET = 0x40000000
_MNT_DETACH = 2
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 0x100000
_UMOUNT_NOFOLLOW = 8


def mount(source: str, target: Path, kind: str, *, flags: int = 0, options: str = "") -> None:
    """mount(2).

    Raises RunError with what the kernel says.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    data = os.fsencode(options) if options else None
    if libc.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, data) != 0:
        raise RunError(f"mount {kind} on {target}: {os.strerror(ctypes.get_errno())}", remedy="run as root")


def detach_if_mounted(path: Path) -> None:
    """detach(), harmless where nothing is mounted. Raises OSError."""
    try:
        detach(path)
    except OSError as e:
        if e.errno != errno.EINVAL:
            raise


def detach(path: Path) -> None:
    """Unmount, at once for us and in the end for those who still use it.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))


def unmount(path: Path, *, patience: float = 2.0) -> None:
    """Unmount what is mounted there, with all that is still to be written; harmless where nothing is. After
    `patience` seconds of being in use it is detached.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    deadline = time.monotonic() + patience
    while libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOENT):  # not mounted
            return
        if code != errno.EBUSY or time.monotonic() > deadline:
            detach(path)
            return
        time.sleep(0.005)


def join(descriptor: int) -> None:
    """This thread into the network namespace that is open there.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextmanager
def entered(path: str) -> Iterator[None]:
    """This thread in another network namespace; back in its own on leaving.

    Raises OSError (of entering: without root), RunError when there is no way back.
    """
    with _opened("/proc/thread-self/ns/net") as own, _opened(path) as other:
        join(other)
        try:
            yield
        finally:
            try:
                join(own)
            except OSError as e:
                raise RunError(f"no way back from {path}: {e.strerror}") from e


@contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_network_namespaces(names: Sequence[str]) -> None:
    """Named as ip-netns(8) does it. The calling thread ends up in the last of them: call it in one that ends.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int, what: str) -> None:
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), what)

    def mounted(source: str, target: Path, flags: int) -> int:
        return int(libc.mount(os.fsencode(source), os.fsencode(target), b"none", flags, None))

    if names:
        NETNS_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
        if mounted("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC) != 0:  # no mount point yet
            checked(mounted(str(NETNS_DIRECTORY), NETNS_DIRECTORY, _MS_BIND | _MS_REC), str(NETNS_DIRECTORY))
            checked(mounted("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC), str(NETNS_DIRECTORY))
    for name in names:
        path = NETNS_DIRECTORY / name
        path.touch(mode=0o444, exist_ok=False)
        checked(libc.unshare(_CLONE_NEWNET), name)
        checked(mounted("/proc/thread-self/ns/net", path, _MS_BIND), str(path))


def remove_network_namespace(path: Path) -> None:
    """Take a name out of /run/netns; the namespace goes when its last process does. Harmless where there
    is none.

    Raises RunError when the kernel refuses.
    """
    with contextlib.suppress(OSError):  # a name that was never mounted
        detach(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise RunError(f"{path}: {e.strerror}", remedy=f"ip netns delete {path.name}") from e


@contextmanager
def named_network_namespaces(names: Sequence[str]) -> Iterator[None]:
    """The names will be made inside; on leaving they are removed, and /run/netns too where it was not
    there."""
    was_there = NETNS_DIRECTORY.exists()
    try:
        yield
    finally:
        for name in names:
            remove_network_namespace(NETNS_DIRECTORY / name)
        if not was_there:
            remove_empty_directory()


def remove_empty_directory() -> None:
    """Remove /run/netns where no name is left in it; whoever makes the next one makes it again."""
    if not NETNS_DIRECTORY.exists() or any(NETNS_DIRECTORY.iterdir()):
        return
    with contextlib.suppress(OSError):  # until it is no mount point; the first name mounted it on itself
        while True:
            detach(NETNS_DIRECTORY)
    with contextlib.suppress(OSError):
        NETNS_DIRECTORY.rmdir()
