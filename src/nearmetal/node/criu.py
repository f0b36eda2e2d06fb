"""Finds a CRIU that works on this machine: the one that is installed, or the one of the image criu."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..environments import Criu, Unavailable
from ..host import Host, MissingValue
from ..images import ImageStore
from ..lifecycle import Method
from .machine import image_store

IMAGE = "criu"
BUILD = f"nearmetal image build {IMAGE}"
LEAST = (4, 2)
"""Oldest version of CRIU that is used. Older versions do not initialise on Linux 6.16 and later."""
CHECKED_METHODS = (Method.CRIU_LAZY, Method.CRIU_PRECOPY)
"""Methods for which the machine may lack something that CRIU's own check does not require."""
_SECONDS = 60.0
_LEAST_PIPE = 4 << 20
"""Smallest size in bytes of the pipes in which CRIU keeps memory that is fetched later."""
_SYS_RESOURCE = 24
"""Number of CAP_SYS_RESOURCE (linux/capability.h)."""
_LOADER, _PROGRAM = "ld-linux*.so.*", "usr/sbin/criu"


def find_criu(host: Host, store: ImageStore | None = None) -> Criu | Unavailable:
    """Return the first CRIU whose own check passes, or why there is none.

    store: images of this user; None for the usual ones.
    """
    reasons = []
    for argv in _candidates(host, store or image_store()):
        version = _version(host, argv)
        if version < LEAST:
            number = ".".join(map(str, version)) or "unknown"
            reasons.append(f"{argv[-1]} is of version {number}, older than {'.'.join(map(str, LEAST))}")
            continue
        done = host.run([*argv, "check"], timeout=_SECONDS)
        if done.ok:
            return Criu(argv=argv, version=".".join(map(str, version)), unable=_unable(host, argv))
        reasons.append(f"{argv[-1]} check: {done.failure()}")
    if not host.is_root():
        return Unavailable(reason="; ".join(reasons) or "CRIU needs root", remedy="run as root")
    return Unavailable(reason="; ".join(reasons) or "CRIU is not installed", remedy=BUILD)


def _unable(host: Host, argv: Sequence[str]) -> Mapping[Method, Unavailable]:
    """Return the methods that cannot be used with this CRIU on this machine, each with the reason."""
    found = {}
    if not host.run([*argv, "check", "--feature", "mem_dirty_track"], timeout=_SECONDS).ok:
        found[Method.CRIU_PRECOPY] = Unavailable(
            reason="the kernel does not track writes to memory by soft-dirty bits, and CRIU tracks them by "
            "nothing else (PAGEMAP_SCAN included)",
            remedy="boot a kernel with CONFIG_MEM_SOFT_DIRTY",
        )
    if not host.run([*argv, "check", "--feature", "uffd-noncoop"], timeout=_SECONDS).ok:
        found[Method.CRIU_LAZY] = Unavailable(
            reason="the kernel has no userfaultfd with events of forks and unmaps",
            remedy="a kernel with CONFIG_USERFAULTFD",
        )
    elif (small := _small_pipes(host)) is not None:
        found[Method.CRIU_LAZY] = small
    return found


def _small_pipes(host: Host) -> Unavailable | None:
    """Return why pipes here are too small for CRIU's memory that is fetched later; None if they are not."""
    most, status = host.read("/proc/sys/fs/pipe-max-size"), host.read("/proc/self/status")
    if isinstance(most, MissingValue) or isinstance(status, MissingValue):
        return None
    effective = re.search(rb"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    if int(most) >= _LEAST_PIPE or (effective is not None and int(effective[1], 16) >> _SYS_RESOURCE & 1):
        return None
    return Unavailable(
        reason=f"without CAP_SYS_RESOURCE pipes have at most {int(most) >> 10} KiB (fs.pipe-max-size)",
        remedy=f"sysctl -w fs.pipe-max-size={_LEAST_PIPE}",
    )


def _candidates(host: Host, store: ImageStore) -> Iterator[tuple[str, ...]]:
    installed = host.which("criu")
    if installed is not None:
        yield (installed,)
    image = store.find(IMAGE, None)
    if image is not None:
        yield from started_from(image.tree)


def started_from(tree: Path) -> Iterator[tuple[str, ...]]:
    """Yield the command line of the CRIU in a tree; nothing if the tree has none.

    The machine may have an older C library, so the loader of the tree starts it with the tree's libraries.
    """
    program = tree / _PROGRAM
    for directory in ("usr/lib64", "lib64", "usr/lib", "lib"):
        for loader in sorted((tree / directory).glob(_LOADER)):
            libraries = sorted((tree / "usr/lib").glob("*-linux-gnu*"))
            if program.is_file() and libraries:
                paths = ":".join(map(str, libraries))
                yield (str(loader), "--library-path", paths, str(program))
                return


def _version(host: Host, argv: Sequence[str]) -> tuple[int, ...]:
    output = host.run([*argv, "--version"], timeout=_SECONDS).stdout
    number = re.search(r"Version: (\d+(?:\.\d+)*)", output)
    return tuple(map(int, number[1].split("."))) if number else ()
