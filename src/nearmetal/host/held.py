"""Counter files: which, where they lie, and the cheap way to read them again and again.

Opening /proc/stat and its like costs more than reading them, so a file stays open and is read by pread."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from .base import Unavailable

#: A read that is shorter than this has reached the end: kernels fill at least most of a page otherwise.
_SURELY_ALL = 3072
_FIRST = 4096

NODE_FILES: Mapping[str, str] = {
    "stat": "/proc/stat",
    "vmstat": "/proc/vmstat",
    "meminfo": "/proc/meminfo",
    "loadavg": "/proc/loadavg",
    "pressure.cpu": "/proc/pressure/cpu",
    "pressure.memory": "/proc/pressure/memory",
    "pressure.io": "/proc/pressure/io",
}
#: By cgroup v1 controller, or 'unified' for v2.
CGROUP_FILES: Mapping[str, tuple[str, ...]] = {
    "cpuacct": ("cpuacct.usage", "cpuacct.stat"),
    "memory": ("memory.usage_in_bytes", "memory.stat"),
    "blkio": ("blkio.throttle.io_service_bytes",),
    "unified": (
        *("cpu.stat", "memory.current", "memory.swap.current", "io.stat"),
        *("cpu.pressure", "memory.pressure", "io.pressure"),
    ),
}


class Source(Protocol):
    """What counters are read from: a Host, or HeldFiles."""

    def read(self, path: str | Path) -> bytes | Unavailable: ...


class HeldFiles:
    """This machine's files, each opened at its first reading. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._open: dict[str | Path, int | Unavailable] = {}

    def read(self, path: str | Path) -> bytes | Unavailable:
        """The whole file as it is now; a file that could not be opened is not tried again."""
        fd = self._open.get(path)
        if fd is None:
            fd = self._open[path] = _open(path)
        if isinstance(fd, Unavailable):
            return fd
        try:
            data = os.pread(fd, _FIRST, 0)
            if len(data) < _SURELY_ALL:
                return data
            return _rest(fd, data)
        except OSError as e:
            return Unavailable(f"{path}: {e.strerror}")

    def forget(self, path: str | Path) -> None:
        """Close one file; harmless when it is not held."""
        fd = self._open.pop(path, None)
        if isinstance(fd, int):
            os.close(fd)

    def close(self) -> None:
        for path in tuple(self._open):
            self.forget(path)


def _open(path: str | Path) -> int | Unavailable:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        return Unavailable(f"{path}: {e.strerror}")


def _rest(fd: int, data: bytes) -> bytes:
    parts = [data]
    at = len(data)
    while part := os.pread(fd, 1 << 16, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def cgroup_paths(cgroups: Mapping[str, Path]) -> dict[str, str]:
    """Counter files of an instance: path by file name. cgroups: directory by v1 controller ('cpuacct' may be
    joined: 'cpu,cpuacct'), or {'unified': directory}."""
    found: dict[str, str] = {}
    for controllers, directory in cgroups.items():
        for controller in controllers.split(","):
            for name in CGROUP_FILES.get(controller, ()):
                found[name] = str(directory / name)
    return found


def node_paths(source: Source) -> Mapping[str, str]:
    """Counter files of the node, found once per source, with the root cgroup's CPU clock where the mount
    shows the real root: only there does v1 have a release_agent, and v2 no cgroup.type. What a cgroup
    namespace shows as root is not the node."""
    paths = _NODE_PATHS.get(source)
    if paths is None:
        paths = _NODE_PATHS[source] = {**NODE_FILES, **_root_clock(source)}
    return paths


_NODE_PATHS: WeakKeyDictionary[object, Mapping[str, str]] = WeakKeyDictionary()


def _root_clock(source: Source) -> dict[str, str]:
    for directory in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"):
        if not isinstance(source.read(f"{directory}/release_agent"), Unavailable):
            return {"cpuacct.usage": f"{directory}/cpuacct.usage"}
    for directory in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        stat = source.read(f"{directory}/cpu.stat")
        if isinstance(stat, Unavailable) or b"usage_usec" not in stat:
            continue
        if isinstance(source.read(f"{directory}/cgroup.type"), Unavailable):
            return {"cpu.stat": f"{directory}/cpu.stat"}
    return {}


def read_files(source: Source, paths: Mapping[str, str]) -> dict[str, bytes]:
    """Contents by name of the files that could be read."""
    out: dict[str, bytes] = {}
    for name, path in paths.items():
        data = source.read(path)
        if not isinstance(data, Unavailable):
            out[name] = data
    return out
