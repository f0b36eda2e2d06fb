"""Control groups, version 1 and 2: a directory per instance below the tool's own group (version 2: below
the nearest group that can have children), limits, members. Knows no environment.

Version 1 is used where cpu, cpuacct, cpuset and memory have hierarchies of their own, version 2 where they
are in the unified one.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..errors import RunError
from .base import Unavailable
from .counters.block_accounts import counts_blocks
from .processes.labelled import ancestors

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
UNIFIED_NAMES = {"blkio": "io", "cpuacct": "cpu"}
"""What version 2 calls a controller where it has another name; 'cpu' keeps the accounts as well."""

UNIFIED = "unified"

SHORTEST_US = 1000
"""The kernel accepts neither a quota nor a period below 1 ms (kernel/sched/core.c, tg_set_cfs_bandwidth)."""

DEFAULT_PERIOD_US = 100_000
"""What the kernel, and with it every container runtime, sets."""


@dataclass(frozen=True, kw_only=True)
class Parents:
    """Where groups can be made.

    version1: the directory to make them in by controller.
    unified: that of version 2, or None.
    controllers: those that can be used.
    """

    version1: Mapping[str, Path]
    unified: Path | None
    controllers: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class GroupLimits:
    """What a group is held to; None or empty: not.

    cpu_share: share of one CPU's time.
    period_us: of that limit.
    memory: bytes.
    weight: cpu.shares of version 1.
    """

    cpus: tuple[int, ...] = ()
    cpu_share: float | None = None
    period_us: int = DEFAULT_PERIOD_US
    memory: int | None = None
    weight: int | None = None


def parse_own_groups(text: str) -> dict[str, str]:
    """/proc/self/cgroup -> our path by controller ('unified' for version 2)."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else ([UNIFIED] if number == "0" else []):
            groups[name] = path
    return groups


def parse_mounts(mountinfo: str) -> dict[str, tuple[str, str]]:
    """/proc/self/mountinfo -> (group at the mount's root, mount point) by controller ('unified')."""
    mounts: dict[str, tuple[str, str]] = {}
    for names, *place in _all_mounts(mountinfo):
        mounts.update({name: (place[0], place[1]) for name in names if name in (*CONTROLLERS, UNIFIED)})
    return mounts


def _all_mounts(mountinfo: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """(what it shows, group at its root, mount point) of every mount of control groups."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if tail[0] in ("cgroup", "cgroup2"):
            names = (UNIFIED,) if tail[0] == "cgroup2" else tuple(tail[2].split(","))
            yield names, unescape(fields[3]), unescape(fields[4])


def unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash as \\ooo."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def own_directories(groups: Mapping[str, str], mounts: Mapping[str, tuple[str, str]]) -> dict[str, Path]:
    """The directory of our own group by controller; only those that the mounts show."""
    out = {}
    for name, path in groups.items():
        if name in mounts:
            top, point = mounts[name]
            inside = os.path.relpath(path, top)
            if not inside.startswith(".."):
                out[name] = Path(point) / inside
    return out


def own_everywhere(root: Path = Path("/")) -> tuple[Path, ...]:
    """The directory of our own group in every hierarchy that is mounted, those without a controller of ours
    too."""
    found = []
    paths = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(" "), right.split(" ", 2)
        for controllers, path in paths.items():
            of_this = (
                set(controllers.split(",")) <= set(options.split(",")) if controllers else kind == "cgroup2"
            )
            if of_this and kind in ("cgroup", "cgroup2"):
                inside = os.path.relpath(path, unescape(fields[3]))
                found.append(root / unescape(fields[4]).lstrip("/") / inside)
    return tuple(dict.fromkeys(found))


def find_parents(root: Path = Path("/")) -> Parents | Unavailable:
    """Where this process may make groups; root: of another tree, for tests."""
    try:
        groups = parse_own_groups((root / "proc/self/cgroup").read_text())
        mounts = parse_mounts((root / "proc/self/mountinfo").read_text())
    except OSError as e:
        return Unavailable(f"{e.filename}: {e.strerror}")
    own = {name: root / path.relative_to("/") for name, path in own_directories(groups, mounts).items()}
    version1 = {name: own[name] for name in CONTROLLERS if name in own and os.access(own[name], os.W_OK)}
    if "blkio" in version1 and not counts_blocks(version1["blkio"], root):
        del version1["blkio"]
    if version1:
        return Parents(version1=version1, unified=None, controllers=frozenset(version1))
    if any(name in own for name in CONTROLLERS):
        return Unavailable("the control groups are not writable for this user")
    if UNIFIED not in own:
        return Unavailable("no control groups are mounted")
    return _unified_parent(own[UNIFIED], root / mounts[UNIFIED][1].lstrip("/"))


@lru_cache(maxsize=1)
def machine_parents() -> Parents | Unavailable:
    """find_parents of this machine, looked up once."""
    return find_parents()


@lru_cache(maxsize=1)
def _mount_points() -> dict[str, Path]:
    """Of this machine's hierarchies, looked up once."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    return {name: Path(point) for name, (_, point) in mounts.items()}


def _unified_parent(own: Path, mount: Path) -> Parents | Unavailable:
    """The nearest group from our own upwards that may have children with controllers: it must be writable,
    its cgroup.procs too (we move processes across it), and be without processes unless it is the root of all
    (Documentation/admin-guide/cgroup-v2.rst, 'No Internal Process Constraint')."""
    for directory in (own, *own.parents):
        with contextlib.suppress(OSError):
            is_top = not (directory / "cgroup.type").exists()
            writable = os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)
            if writable and (is_top or not (directory / "cgroup.procs").read_text().strip()):
                enabled = _enable(directory)
                if enabled:
                    return Parents(version1={}, unified=directory, controllers=enabled)
        if directory == mount:
            break
    return Unavailable(
        "no control group here may be given children with controllers (delegate one, or be root)"
    )


def _enable(directory: Path) -> frozenset[str]:
    """Switch the controllers on for children; those that are on afterwards, by their names in version 1."""
    present = set((directory / "cgroup.controllers").read_text().split())
    control = directory / "cgroup.subtree_control"
    enabled = set(control.read_text().split())
    for name in present.intersection(_unified_name(c) for c in CONTROLLERS) - enabled:
        with contextlib.suppress(OSError):
            _write(control, f"+{name}")
            enabled.add(name)
    return frozenset(c for c in CONTROLLERS if _unified_name(c) in enabled)


def _unified_name(controller: str) -> str:
    return UNIFIED_NAMES.get(controller, controller)


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def directories(parents: Parents, label: str, controllers: Set[str]) -> dict[str, Path]:
    """The directories that create() would make, by controller, or {'unified': ...}; pure."""
    if parents.unified is not None:
        return {UNIFIED: parents.unified / label} if controllers & parents.controllers else {}
    usable = controllers & parents.controllers
    return {name: parents.version1[name] / label for name in CONTROLLERS if name in usable}


def at_the_top(parents: Parents) -> Parents:
    """The same controllers, those of version 1 at the top of their hierarchies."""
    points = _mount_points()
    return replace(parents, version1={name: points[name] for name in parents.version1})


def path_for_runtime(made: Mapping[str, Path], label: str) -> str:
    """The path by which an OCI runtime finds the groups of create(). A relative one counts from its own
    groups, which are ours; in version 2, where ours may have no children, from the top."""
    if UNIFIED not in made:
        return label
    return f"/{made[UNIFIED].relative_to(_mount_points()[UNIFIED])}"


def path_from_top(made: Mapping[str, Path], label: str) -> str:
    """path_for_runtime() of groups at the top of their hierarchies."""
    return f"/{path_for_runtime(made, label).lstrip('/')}"


def of_process(pid: int) -> dict[str, Path]:
    """The groups that a process is in, by controller, or {'unified': ...}."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    found = own_directories(parse_own_groups(Path(f"/proc/{pid}/cgroup").read_text()), mounts)
    return {name: path for name, path in found.items() if name != UNIFIED or len(found) == 1}


def unified_beside_version1() -> Path | None:
    """Where version 2 is mounted beside version 1 ('hybrid'); None where only one of them is."""
    points = _mount_points()
    return points.get(UNIFIED) if len(points) > 1 else None


def create(made: Mapping[str, Path], limits: GroupLimits) -> None:
    """Make the directories and set the limits; an old empty group of the same name is replaced.

    Raises RunError when the kernel refuses. Call remove() whatever happens.
    """
    try:
        for directory in unique(made):
            try:
                directory.mkdir()
            except FileExistsError:
                directory.rmdir()
                directory.mkdir()
        for path, text in settings(made, limits):
            _write(path, text)
    except OSError as e:
        raise RunError(f"control group: {e.filename or next(iter(made.values()), '')}: {e.strerror}") from e


def take(made: Mapping[str, Path], pid: int) -> None:
    """Bring a process, with all its threads, into groups of create(). Raises RunError when the kernel
    refuses."""
    try:
        for directory in unique(made):
            _write(directory / "cgroup.procs", str(pid))
    except OSError as e:
        raise RunError(f"process {pid} does not come into its control groups: {e.strerror}") from e


def settings(made: Mapping[str, Path], limits: GroupLimits) -> list[tuple[Path, str]]:
    """What create() writes where. cpuset of version 1 needs its memory nodes said as well."""
    cpus = ",".join(map(str, limits.cpus))
    quota, period = quota_us(limits.cpu_share, limits.period_us) if limits.cpu_share else (0, 0)
    out: list[tuple[Path, str]] = []
    if UNIFIED in made:
        group = made[UNIFIED]
        if cpus:
            out.append((group / "cpuset.cpus", cpus))
        if quota:
            out.append((group / "cpu.max", f"{quota} {period}"))
        if limits.weight:
            out.append((group / "cpu.weight", str(unified_weight(limits.weight))))
        if limits.memory:
            out.append((group / "memory.max", str(limits.memory)))
        return out
    if "cpuset" in made and cpus:
        nodes = (made["cpuset"].parent / "cpuset.mems").read_text().strip()
        out += [(made["cpuset"] / "cpuset.mems", nodes), (made["cpuset"] / "cpuset.cpus", cpus)]
    if "cpu" in made and quota:
        out += [
            (made["cpu"] / "cpu.cfs_period_us", str(period)),
            (made["cpu"] / "cpu.cfs_quota_us", str(quota)),
        ]
    if "cpu" in made and limits.weight:
        out.append((made["cpu"] / "cpu.shares", str(limits.weight)))
    if "memory" in made and limits.memory:
        out.append((made["memory"] / "memory.limit_in_bytes", str(limits.memory)))
    return out


def quota_us(share: float, period_us: int) -> tuple[int, int]:
    """(quota, period) of a share of one CPU, the period lengthened where the quota would be below 1 ms."""
    period = max(period_us, SHORTEST_US, math.ceil(SHORTEST_US / share))
    return max(round(share * period), SHORTEST_US), period


def unified_weight(shares: int) -> int:
    """cpu.weight (1 to 10000, usually 100) of cpu.shares (usually 1024): the same ratio to a group that
    nobody has given a weight."""
    return min(max(round(shares * 100 / 1024), 1), 10_000)


def read_back(made: Mapping[str, Path]) -> dict[str, float | None]:
    """What the kernel holds a group to: cpu_quota (share of one CPU), cpu_shares (of version 2 from its
    weight), memory (bytes); None = not limited, a key that is missing cannot be read."""
    out: dict[str, float | None] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        if UNIFIED in made:
            quota, period = (made[UNIFIED] / "cpu.max").read_text().split()
        else:
            quota = (made["cpu"] / "cpu.cfs_quota_us").read_text().strip()
            period = (made["cpu"] / "cpu.cfs_period_us").read_text().strip()
        out["cpu_quota"] = None if quota in ("max", "-1") else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, KeyError):
        if UNIFIED in made:
            out["cpu_shares"] = int((made[UNIFIED] / "cpu.weight").read_text()) * 1024 / 100
        else:
            out["cpu_shares"] = float((made["cpu"] / "cpu.shares").read_text())
    with contextlib.suppress(OSError, ValueError, KeyError):
        file = made[UNIFIED] / "memory.max" if UNIFIED in made else made["memory"] / "memory.limit_in_bytes"
        text = file.read_text().strip()
        # Version 1 writes no limit as the largest number of whole pages.
        out["memory"] = None if text == "max" or int(text) >= 1 << 62 else float(text)
    return out


def unique(made: Mapping[str, Path]) -> tuple[Path, ...]:
    """Each directory once: controllers may share one."""
    return tuple(dict.fromkeys(made.values()))


def with_children(groups: Iterable[Path]) -> list[Path]:
    """The groups that are there and those below them, which a container program may have made, deepest
    first."""
    found: list[Path] = []
    for directory in groups:
        with contextlib.suppress(OSError):
            if directory.stat().st_nlink > 2:
                found += with_children(p for p in directory.iterdir() if p.is_dir())
            found.append(directory)
    return found


def members(groups: Iterable[Path]) -> set[int]:
    """Processes in any of these groups; a group that is gone has none."""
    pids: set[int] = set()
    for directory in groups:
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (directory / "cgroup.procs").read_text().split())
    return pids


def kill_members(groups: Sequence[Path], *, timeout: float = 30.0) -> None:
    """SIGKILL to every process in these groups and below them until none is left; never to the caller or its
    ancestors.

    Raises RunError when some are left after timeout seconds.
    """
    deadline = time.monotonic() + timeout
    # Most groups are empty by now: our ancestors are looked up only where there is somebody to spare.
    while (present := members(with_children(groups))) and (left := present - ancestors(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RunError(
                f"processes {sorted(left)} of {groups[0].name} do not end", remedy="nearmetal clean"
            )
        time.sleep(0.001)


def of_every_hierarchy(label: str) -> tuple[Path, ...]:
    """The groups of this name at the top of every hierarchy, also of those that we make none in."""
    points = [point for *_, point in _all_mounts(Path("/proc/self/mountinfo").read_text())]
    return tuple(group for point in points if (group := Path(point) / label).is_dir())


def remove_empty(groups: Iterable[Path]) -> list[Path]:
    """Remove those without members and children: the others."""
    kept = []
    for group in groups:
        try:
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            kept.append(group)
    return kept


def remove(groups: Sequence[Path], *, timeout: float = 30.0) -> None:
    """Kill the members and remove the groups with those below them; those that are not there are no matter.

    Raises RunError when the kernel holds one for longer than timeout seconds.
    """
    # Most are empty by now, and gone without a look inside.
    kept = remove_empty(groups)
    kill_members(kept, timeout=timeout)
    deadline = time.monotonic() + timeout
    for directory in with_children(kept):
        while True:
            try:
                directory.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError as e:
                if time.monotonic() > deadline:
                    raise RunError(f"{directory}: {e.strerror}", remedy="nearmetal clean") from e
                time.sleep(0.001)
