"""Counter files: which there are, where they lie on this machine, and their contents as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from .base import Host, Unavailable

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
    "cpu": ("cpu.stat",),
    "cpuacct": ("cpuacct.usage", "cpuacct.stat"),
    "memory": ("memory.usage_in_bytes", "memory.stat", "memory.failcnt"),
    # A container program may make groups below ours; kernels without the first have the second.
    "blkio": ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"),
    "unified": (
        *("cpu.stat", "memory.current", "memory.swap.current", "memory.stat", "memory.events", "io.stat"),
        *("cpu.pressure", "memory.pressure", "io.pressure"),
    ),
}


def cgroup_paths(cgroups: Mapping[str, Path]) -> dict[str, str]:
    """Counter files of an instance: path by file name. cgroups: directory by v1 controller ('cpuacct' may be
    joined: 'cpu,cpuacct'), or {'unified': directory}."""
    found: dict[str, str] = {}
    for controllers, directory in cgroups.items():
        for controller in controllers.split(","):
            for name in CGROUP_FILES.get(controller, ()):
                found[name] = f"{directory}/{name}"
    return found


def node_paths(host: Host) -> Mapping[str, str]:
    """Counter files of the node, found once per host, with the root cgroup's CPU clock where the mount
    shows the real root: only there does v1 have a release_agent, and v2 no cgroup.type. What a cgroup
    namespace shows as root is not the node."""
    paths = _NODE_PATHS.get(host)
    if paths is None:
        paths = _NODE_PATHS[host] = {**NODE_FILES, **_root_clock(host)}
    return paths


_NODE_PATHS: WeakKeyDictionary[Host, Mapping[str, str]] = WeakKeyDictionary()


def _root_clock(host: Host) -> dict[str, str]:
    for directory in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"):
        if not isinstance(host.read(f"{directory}/release_agent"), Unavailable):
            return {"cpuacct.usage": f"{directory}/cpuacct.usage"}
    for directory in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        stat = host.read(f"{directory}/cpu.stat")
        if isinstance(stat, Unavailable) or b"usage_usec" not in stat:
            continue
        if isinstance(host.read(f"{directory}/cgroup.type"), Unavailable):
            return {"cpu.stat": f"{directory}/cpu.stat"}
    return {}


def read_files(host: Host, paths: Mapping[str, str]) -> dict[str, bytes]:
    """Contents by name of the files that could be read."""
    out: dict[str, bytes] = {}
    for name, path in paths.items():
        data = host.read(path)
        if not isinstance(data, Unavailable):
            out[name] = data
    return out
