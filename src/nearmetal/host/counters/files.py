"""Counter files: their names, their paths on this machine, and their unparsed contents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Mapping
from functools import lru_cache
from pathlib import Path
from weakref import WeakKeyDictionary

from ..base import Host, MissingValue

NODE_FILES: Mapping[str, str] = {
    "stat": "/proc/stat",
    "vmstat": "/proc/vmstat",
    "meminfo": "/proc/meminfo",
    "loadavg": "/proc/loadavg",
    "pressure.cpu": "/proc/pressure/cpu",
    "pressure.memory": "/proc/pressure/memory",
    "pressure.io": "/proc/pressure/io",
}
_PIECE = 1 << 16
_SHORT = 1 << 11
"""A read that returns fewer bytes than this is the last one of a file.

The kernel returns such files in pages of whole lines, and none of their lines is as long as half a page; or
it returns them at once (fs/seq_file.c).
"""
#: By cgroup v1 controller, or 'unified' for v2.
CGROUP_FILES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu.stat",),
    "cpuacct": ("cpuacct.usage", "cpuacct.stat"),
    "memory": ("memory.usage_in_bytes", "memory.stat", "memory.failcnt"),
    "blkio": ("blkio.throttle.io_service_bytes",),
    "unified": (
        *("cpu.stat", "memory.current", "memory.swap.current", "memory.stat", "memory.events", "io.stat"),
        *("cpu.pressure", "memory.pressure", "io.pressure"),
    ),
}


def cgroup_paths(cgroups: Mapping[str, Path]) -> dict[str, str]:
    """Return the paths of an instance's counter files, by file name.

    cgroups: directory by controller of version 1, or {'unified': directory}.
    """
    found: dict[str, str] = {}
    for controller, directory in cgroups.items():
        for name in CGROUP_FILES.get(controller, ()):
            name = _with_groups_below(directory.parent, name) if controller == "blkio" else name
            found[name] = f"{directory}/{name}"
    return found


@lru_cache(maxsize=8)
def _with_groups_below(parent: Path, name: str) -> str:
    """Return the variant of the file that includes child groups created by container programs, if the kernel
    has it."""
    whole = f"{name}_recursive"
    return whole if (parent / whole).exists() else name


def node_paths(host: Host) -> Mapping[str, str]:
    """Return the paths of the node's counter files, found once per host.

    They include the CPU time of the root cgroup if the mount shows the real root, and not the root of a
    cgroup namespace. Only the real root has a release_agent (version 1) or no cgroup.type (version 2).
    """
    paths = _NODE_PATHS.get(host)
    if paths is None:
        paths = _NODE_PATHS[host] = {**NODE_FILES, **_root_clock(host)}
    return paths


_NODE_PATHS: WeakKeyDictionary[Host, Mapping[str, str]] = WeakKeyDictionary()


def _root_clock(host: Host) -> dict[str, str]:
    for directory in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"):
        if not isinstance(host.read(f"{directory}/release_agent"), MissingValue):
            return {"cpuacct.usage": f"{directory}/cpuacct.usage"}
    for directory in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        stat = host.read(f"{directory}/cpu.stat")
        if isinstance(stat, MissingValue) or b"usage_usec" not in stat:
            continue
        if isinstance(host.read(f"{directory}/cgroup.type"), MissingValue):
            return {"cpu.stat": f"{directory}/cpu.stat"}
    return {}


class CounterFiles:
    """Counter files that are read repeatedly.

    held: whether the files stay open, because opening a file takes longer than reading it. If False, each
        file is opened for every read, because many open files would use up the descriptors of a process. Only
        files of this machine can be held.
    """

    def __init__(self, host: Host, paths: Mapping[str, str], *, held: bool) -> None:
        self._host, self._paths = host, paths
        self._held: dict[str, int] | None = opened(paths) if held else None

    def read(self, names: Container[str] | None = None) -> dict[str, bytes]:
        """Return the contents of the files by name. Files that cannot be read are missing.

        names: the files to read; None for all.
        """
        if self._held is None:
            wanted = {n: p for n, p in self._paths.items() if names is None or n in names}
            return read_files(self._host, wanted)
        out: dict[str, bytes] = {}
        for name, descriptor in self._held.items():
            if names is None or name in names:
                with contextlib.suppress(OSError):  # for example because its group no longer exists
                    out[name] = whole_file(descriptor)
        return out

    def close(self) -> None:
        """Close the files; harmless if they are closed already."""
        while self._held:
            os.close(self._held.popitem()[1])


def opened(paths: Mapping[str, str]) -> dict[str, int]:
    """Open files and return their descriptors by name. Those that cannot be opened are missing."""
    descriptors: dict[str, int] = {}
    for name, path in paths.items():
        with contextlib.suppress(OSError):
            descriptors[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return descriptors


def whole_file(descriptor: int) -> bytes:
    """Return the contents of a file from its beginning, wherever its offset is. Raises OSError."""
    data = piece = os.pread(descriptor, _PIECE, 0)
    while len(piece) >= _SHORT:
        piece = os.pread(descriptor, _PIECE, len(data))
        data += piece
    return data


def read_files(host: Host, paths: Mapping[str, str]) -> dict[str, bytes]:
    """Return the contents of the files that could be read, by name."""
    out: dict[str, bytes] = {}
    for name, path in paths.items():
        data = host.read(path)
        if not isinstance(data, MissingValue):
            out[name] = data
    return out
