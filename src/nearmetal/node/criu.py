"""Finds a CRIU that works on this machine: the one that is installed, or the one of the image criu."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..environments import Criu, Unavailable
from ..host import Host
from ..images import ImageStore
from .machine import image_store

IMAGE = "criu"
BUILD = f"nearmetal image build {IMAGE}"
LEAST = (4, 2)
"""Older versions do not initialise on Linux 6.16 and later."""
_SECONDS = 60.0
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
            return Criu(argv=argv, version=".".join(map(str, version)))
        reasons.append(f"{argv[-1]} check: {done.failure()}")
    if not host.is_root():
        return Unavailable(reason="; ".join(reasons) or "CRIU needs root", remedy="run as root")
    return Unavailable(reason="; ".join(reasons) or "CRIU is not installed", remedy=BUILD)


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
