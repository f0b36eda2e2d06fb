"""Named network namespaces (/run/netns) and mounts, as far as they must be taken away again."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import RunError

NETNS_DIRECTORY = Path("/run/netns")

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


def detach(path: Path) -> None:
    """Unmount, at once for us and in the end for those who still use it.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))


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
        if not was_there and NETNS_DIRECTORY.exists() and not any(NETNS_DIRECTORY.iterdir()):
            # Whoever makes the first name mounts the directory on itself (iproute2, pyroute2).
            with contextlib.suppress(OSError):
                while True:
                    detach(NETNS_DIRECTORY)
            with contextlib.suppress(OSError):
                NETNS_DIRECTORY.rmdir()
