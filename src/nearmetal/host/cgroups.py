"""Control groups of version 1 and 2: directories, limits and member processes. Knows no environment.

Every instance has a directory below the tool's own group; with version 2, below the nearest group that can
have children. Version 1 is used if cpu, cpuacct, cpuset and memory have hierarchies of their own, and version
2 if they are in the unified hierarchy.
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
from .base import MissingValue
from .counters.block_accounts import counts_blocks
from .processes.labelled import ancestors

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
UNIFIED_NAMES = {"blkio": "io", "cpuacct": "cpu"}
"""Names of controllers that differ in version 2, where 'cpu' also counts CPU time."""

UNIFIED = "unified"

SHORTEST_US = 1000
"""The kernel accepts neither a quota nor a period below 1 ms (kernel/sched/core.c, tg_set_cfs_bandwidth)."""

DEFAULT_PERIOD_US = 100_000
"""The default of the kernel, and therefore of every container runtime."""


@dataclass(frozen=True, kw_only=True)
class Parents:
    """The directories in which groups can be made.

    version1: directory by controller, for version 1.
    unified: directory for version 2, or None.
    controllers: the controllers that can be used.
    """

    version1: Mapping[str, Path]
    unified: Path | None
    controllers: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class GroupLimits:
    """Limits of a group. None or empty means no limit.

    cpus: CPUs that the group may use.
    cpu_share: CPU time as a share of one CPU.
    period_us: period of that limit, in microseconds.
    memory: in bytes.
    weight: as in cpu.shares of version 1.
    """

    cpus: tuple[int, ...] = ()
    cpu_share: float | None = None
    period_us: int = DEFAULT_PERIOD_US
    memory: int | None = None
    weight: int | None = None


def parse_own_groups(text: str) -> dict[str, str]:
    """Parse /proc/self/cgroup and return our path by controller ('unified' for version 2)."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else ([UNIFIED] if number == "0" else []):
            groups[name] = path
    return groups


def parse_mounts(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Parse /proc/self/mountinfo and return (group at the mount's root, mount point) by controller ('unified'
    for version 2)."""
    mounts: dict[str, tuple[str, str]] = {}
    for names, *place in _all_mounts(mountinfo):
        mounts.update({name: (place[0], place[1]) for name in names if name in (*CONTROLLERS, UNIFIED)})
    return mounts


def _all_mounts(mountinfo: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (controllers, group at the mount's root, mount point) for every mount of control groups."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if tail[0] in ("cgroup", "cgroup2"):
            names = (UNIFIED,) if tail[0] == "cgroup2" else tuple(tail[2].split(","))
            yield names, unescape(fields[3]), unescape(fields[4])


def unescape(text: str) -> str:
    """Undo the escapes of mountinfo, which writes space, tab, newline and backslash as \\ooo."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def own_directories(groups: Mapping[str, str], mounts: Mapping[str, tuple[str, str]]) -> dict[str, Path]:
    """Return the directory of our own group by controller. Groups that no mount shows are left out."""
    out = {}
    for name, path in groups.items():
        if name in mounts:
            top, point = mounts[name]
            inside = os.path.relpath(path, top)
            if not inside.startswith(".."):
                out[name] = Path(point) / inside
    return out


def own_everywhere(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the directory of our own group in every mounted hierarchy, including those whose controllers we
    do not use."""
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


def find_parents(root: Path = Path("/")) -> Parents | MissingValue:
    """Find the directories in which this process may make groups.

    root: root of another directory tree, for tests.
    """
    try:
        groups = parse_own_groups((root / "proc/self/cgroup").read_text())
        mounts = parse_mounts((root / "proc/self/mountinfo").read_text())
    except OSError as e:
        return MissingValue(f"{e.filename}: {e.strerror}")
    own = {name: root / path.relative_to("/") for name, path in own_directories(groups, mounts).items()}
    version1 = {name: own[name] for name in CONTROLLERS if name in own and os.access(own[name], os.W_OK)}
    if "blkio" in version1 and not counts_blocks(version1["blkio"], root):
        del version1["blkio"]
    if version1:
        return Parents(version1=version1, unified=None, controllers=frozenset(version1))
    if any(name in own for name in CONTROLLERS):
        return MissingValue("the control groups are not writable for this user")
    if UNIFIED not in own:
        return MissingValue("no control groups are mounted")
    return _unified_parent(own[UNIFIED], root / mounts[UNIFIED][1].lstrip("/"))


_found_parents = lru_cache(maxsize=1)(find_parents)
_within: list[Parents | MissingValue] = []
"""What the innermost inside_own_group() of this process allows."""


def machine_parents() -> Parents | MissingValue:
    """Return find_parents() of this machine, computed only once. Inside inside_own_group(), return what that
    allows."""
    return _within[-1] if _within else _found_parents()


@contextlib.contextmanager
def inside_own_group(root: Path = Path("/")) -> Iterator[Parents | MissingValue]:
    """Let this process make groups only below the group in which it was started, and yield the parents.

    A batch system ends a job by the processes of the job's group, so no process may leave that group. With
    version 2, a group whose children have controllers must not contain processes. The processes of our own
    group, all of them of this job, therefore move to a group below it; they move back on exit.

    root: as in find_parents().
    """
    with contextlib.ExitStack() as stack:
        parents = find_parents(root)
        if not isinstance(parents, MissingValue) and parents.unified is not None:
            groups = parse_own_groups((root / "proc/self/cgroup").read_text())
            mounts = parse_mounts((root / "proc/self/mountinfo").read_text())
            own = root / own_directories(groups, mounts)[UNIFIED].relative_to("/")
            if parents.unified != own:
                parents = _with_room(own, stack)
        _within.append(parents)
        stack.callback(_within.pop)
        yield parents


def _with_room(own: Path, stack: contextlib.ExitStack) -> Parents | MissingValue:
    """Move the processes of a group to a new group below it, and return the group as a parent."""
    leaf = own / f"nearmetal-worker-{os.getpid()}"
    try:
        leaf.mkdir()
        stack.callback(_without_room, own, leaf)
        _move_all(own, leaf)
        enabled = _enable(own)
    except OSError as e:
        return MissingValue(f"the control group of this job cannot be divided: {e.filename}: {e.strerror}")
    if not enabled:
        return MissingValue("the control group of this job may give its children no controllers")
    return Parents(version1={}, unified=own, controllers=enabled)


def _without_room(own: Path, leaf: Path) -> None:
    control = own / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        for name in control.read_text().split():
            _write(control, f"-{name}")
        _move_all(leaf, own)
        leaf.rmdir()


def _move_all(source: Path, target: Path) -> None:
    """Move all processes of a group. A process that starts meanwhile is found by the next reading."""
    while pids := (source / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                _write(target / "cgroup.procs", pid)


@lru_cache(maxsize=1)
def _mount_points() -> dict[str, Path]:
    """Return the mount points of this machine's hierarchies by controller, read only once."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    return {name: Path(point) for name, (_, point) in mounts.items()}


def _unified_parent(own: Path, mount: Path) -> Parents | MissingValue:
    """Find the nearest group, from our own upwards, that may have children with controllers.

    The group must be writable, and so must its cgroup.procs, because we move processes across it. It must
    also contain no processes, unless it is the root group (Documentation/admin-guide/cgroup-v2.rst, 'No
    Internal Process Constraint').
    """
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
    return MissingValue(
        "no control group here may be given children with controllers (delegate one, or be root)"
    )


def _enable(directory: Path) -> frozenset[str]:
    """Enable the controllers for children and return the enabled ones, by their names in version 1."""
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
    """Return the directories that create() would make, by controller, or {'unified': ...}. No I/O."""
    if parents.unified is not None:
        return {UNIFIED: parents.unified / label} if controllers & parents.controllers else {}
    usable = controllers & parents.controllers
    return {name: parents.version1[name] / label for name in CONTROLLERS if name in usable}


def at_the_top(parents: Parents) -> Parents:
    """Return the same parents, but for version 1 at the top of their hierarchies."""
    points = _mount_points()
    return replace(parents, version1={name: points[name] for name in parents.version1})


def path_for_runtime(made: Mapping[str, Path], label: str) -> str:
    """Return the path by which an OCI runtime finds the groups of create().

    With version 1 the path is relative to the runtime's own groups, which are ours. With version 2 it is
    absolute, because our own group may be unable to have children.
    """
    if UNIFIED not in made:
        return label
    return f"/{made[UNIFIED].relative_to(_mount_points()[UNIFIED])}"


def path_from_top(made: Mapping[str, Path], label: str) -> str:
    """Return the path for an OCI runtime, as path_for_runtime() does, for groups at the top of their
    hierarchies."""
    return f"/{path_for_runtime(made, label).lstrip('/')}"


def of_process(pid: int) -> dict[str, Path]:
    """Return the groups of a process by controller, or {'unified': ...}."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    found = own_directories(parse_own_groups(Path(f"/proc/{pid}/cgroup").read_text()), mounts)
    return {name: path for name, path in found.items() if name != UNIFIED or len(found) == 1}


def unified_beside_version1() -> Path | None:
    """Return the mount point of version 2 if version 1 is mounted too ('hybrid'), else None."""
    points = _mount_points()
    return points.get(UNIFIED) if len(points) > 1 else None


def create(made: Mapping[str, Path], limits: GroupLimits) -> None:
    """Make the directories and set the limits. An old empty group of the same name is replaced.

    Call remove() afterwards, even if create() fails.

    Raises RunError if the kernel refuses.
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
    """Move a process with all its threads into the groups of create(). Raises RunError if the kernel
    refuses."""
    try:
        for directory in unique(made):
            _write(directory / "cgroup.procs", str(pid))
    except OSError as e:
        raise RunError(f"process {pid} does not come into its control groups: {e.strerror}") from e


def settings(made: Mapping[str, Path], limits: GroupLimits) -> list[tuple[Path, str]]:
    """Return the files that create() writes and their contents.

    With cpuset of version 1, the memory nodes must be set as well.
    """
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
    """Return (quota, period) in microseconds for a share of one CPU. The period is lengthened if the quota
    would be below 1 ms."""
    period = max(period_us, SHORTEST_US, math.ceil(SHORTEST_US / share))
    return max(round(share * period), SHORTEST_US), period


def unified_weight(shares: int) -> int:
    """Convert cpu.shares (default 1024) to cpu.weight (1 to 10000, default 100).

    The ratio to a group with the default weight stays the same.
    """
    return min(max(round(shares * 100 / 1024), 1), 10_000)


def read_back(made: Mapping[str, Path]) -> dict[str, float | None]:
    """Read the limits of a group back from the kernel.

    The keys are cpu_quota (share of one CPU), cpu_shares (with version 2 computed from the weight) and memory
    (bytes). None means not limited; a key is missing if its value cannot be read.
    """
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
    """Return each directory once, because controllers may share one."""
    return tuple(dict.fromkeys(made.values()))


def with_children(groups: Iterable[Path]) -> list[Path]:
    """Return the groups that exist and all groups below them, deepest first. A container program may have
    made groups below ours."""
    found: list[Path] = []
    for directory in groups:
        with contextlib.suppress(OSError):
            if directory.stat().st_nlink > 2:
                found += with_children(p for p in directory.iterdir() if p.is_dir())
            found.append(directory)
    return found


def members(groups: Iterable[Path]) -> set[int]:
    """Return the processes in any of these groups; a group that no longer exists has none."""
    pids: set[int] = set()
    for directory in groups:
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (directory / "cgroup.procs").read_text().split())
    return pids


def kill_members(groups: Sequence[Path], *, timeout: float = 30.0) -> None:
    """Kill every process in these groups and below them, until none is left. The caller and its ancestors are
    never killed.

    Raises RunError if processes are left after timeout seconds.
    """
    deadline = time.monotonic() + timeout
    # Most groups are empty by now. The ancestors are looked up only if there are processes in the groups.
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
    """Return the groups of this name at the top of every hierarchy, including hierarchies that we do not
    use."""
    points = [point for *_, point in _all_mounts(Path("/proc/self/mountinfo").read_text())]
    return tuple(group for point in points if (group := Path(point) / label).is_dir())


def remove_empty(groups: Iterable[Path]) -> list[Path]:
    """Remove the groups without members and children. Return the groups that could not be removed."""
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
    """Kill the members of the groups, and remove the groups and those below them. Groups that do not exist
    are ignored.

    Raises RunError if a group cannot be removed within timeout seconds.
    """
    # Most groups are empty by now and can be removed without reading their members.
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
