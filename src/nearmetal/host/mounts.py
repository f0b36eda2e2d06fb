"""The kernel's list of mounts, /proc/<pid>/mountinfo (proc_pid_mountinfo(5))."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mount.

    device: 'major:minor'.
    root: directory of the file system that is mounted; for control groups, the group at the mount point.
    kind: type of the file system.
    source: the mounted device or file system, as the kernel names it.
    options: options of the file system.
    """

    device: str
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts in the text of a mountinfo file, in the order in which they were mounted. No I/O."""
    found = []
    for line in text.split("\n"):
        left, divider, right = line.partition(" - ")
        if divider:
            fields, (kind, source, options, *_) = left.split(" "), right.split(" ")
            found.append(
                Mount(
                    device=fields[2],
                    root=unescape(fields[3]),
                    point=unescape(fields[4]),
                    kind=kind,
                    source=unescape(source),
                    options=frozenset(options.split(",")),
                )
            )
    return found


def own_mounts(root: Path = Path("/")) -> list[Mount]:
    """Return the mounts that this process sees. Bytes that are not UTF-8 become surrogate escapes.

    root: root of another directory tree, for tests.

    Raises OSError.
    """
    return parse_mounts((root / "proc/self/mountinfo").read_text(errors="surrogateescape"))


def private_tmpfs(pid: int) -> int:
    """Return the bytes in all tmpfs file systems that a process sees and this process does not, such as
    /dev/shm of a container. They exist in memory only, so a checkpoint must contain their files.

    Returns 0 if the process has ended or cannot be read.
    """
    total = 0
    with contextlib.suppress(OSError):
        shared, place = {mount.device for mount in own_mounts()}, Path("/proc") / str(pid)
        found = parse_mounts((place / "mountinfo").read_text(errors="surrogateescape"))
        for mount in {m.device: m for m in found if m.kind == "tmpfs" and m.device not in shared}.values():
            with contextlib.suppress(OSError):
                point = place / "root" / mount.point.lstrip("/")
                device = point.stat().st_dev
                # Another mount may hide it.
                if mount.device == f"{os.major(device)}:{os.minor(device)}":
                    used = os.statvfs(point)
                    total += (used.f_blocks - used.f_bfree) * used.f_frsize
    return total


def unescape(text: str) -> str:
    """Undo the escapes of mountinfo, which writes space, tab, newline and backslash as \\ooo."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
