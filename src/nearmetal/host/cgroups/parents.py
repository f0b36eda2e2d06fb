"""The control groups below which a process may make its own, and the paths of groups."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...errors import RunError
from ..base import MissingValue
from ..counters.block_accounts import counts_blocks
from ..mounts import Mount, own_mounts
from .controllers import divide_group, enable
from .effective import NO_LIMITS, EffectiveLimits, limits_of, tightest
from .processes import remove_empty, write_control

CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
PIDS = "pids"
"""Controller of the number of processes. Groups of it are made only if the caller has such a limit."""
UNIFIED_NAMES = {"blkio": "io", "cpuacct": "cpu"}
"""Names of controllers that differ in version 2, where 'cpu' also counts CPU time."""
_WANTED = frozenset(UNIFIED_NAMES.get(name, name) for name in CONTROLLERS)
"""The controllers by their names in version 2."""

UNIFIED = "unified"


@dataclass(frozen=True, kw_only=True)
class Parents:
    """The directories in which groups can be made.

    version1: directory by controller, for version 1.
    unified: directory for version 2; None if version 1 is used.
    controllers: controllers that the groups can have, by their names in version 1.
    limits: limits of the caller that do not hold in `unified`, because groups below it have them.
    limited: whether `unified` was made by this process, with those limits.
    """

    version1: Mapping[str, Path]
    unified: Path | None
    controllers: frozenset[str]
    limits: EffectiveLimits = NO_LIMITS
    limited: bool = False


_OF_CRIU = "/.criu.cgyard."
"""Part of the path at which CRIU, while it restores a container with its groups, mounts all hierarchies."""


def _mounts(root: Path = Path("/")) -> list[Mount]:
    """Return the mounts of control groups, without those that exist only as long as a CRIU restores."""
    mounts = (mount for mount in own_mounts(root) if mount.kind in ("cgroup", "cgroup2"))
    return [mount for mount in mounts if _OF_CRIU not in mount.point]


def _hierarchies(root: Path) -> dict[str, Mount]:
    """Return the mount of control groups by controller ('unified' for version 2).

    root: root directory of the machine.
    """
    found: dict[str, Mount] = {}
    for mount in _mounts(root):
        if mount.kind == "cgroup":
            found |= {name: mount for name in (*CONTROLLERS, PIDS) if name in mount.options}
        else:
            found[UNIFIED] = mount
    return found


def _group_of(process: str, root: Path = Path("/")) -> dict[str, Path]:
    """Return the directory of a process's group by controller ('unified' for version 2). Groups that no mount
    shows are left out.

    process: name of its directory in /proc.
    """
    mounts, found = _hierarchies(root), {}
    for line in (root / "proc" / process / "cgroup").read_text(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else (UNIFIED,):
            if name in mounts:
                inside = os.path.relpath(path, mounts[name].root)
                if not inside.startswith(".."):
                    found[name] = root / mounts[name].point.lstrip("/") / inside
    return found


def own_everywhere(root: Path = Path("/"), process: str = "self") -> tuple[Path, ...]:
    """Return the directory of a process's group in every mounted hierarchy, including hierarchies that
    nearmetal does not use.

    process: PID as text; 'self' for this process.
    """
    return tuple(dict.fromkeys(own_directories(root, process).values()))


def own_directories(root: Path = Path("/"), process: str = "self") -> dict[Path, Path]:
    """Return own_everywhere() by the mount point of each hierarchy."""
    text = (root / "proc" / process / "cgroup").read_text(errors="surrogateescape")
    own = [line.split(":", 2)[1:] for line in text.splitlines()]
    return {
        (point := root / mount.point.lstrip("/")): point / os.path.relpath(path, mount.root)
        for mount in _mounts(root)
        for controllers, path in own
        if (
            mount.kind == "cgroup" and mount.options.issuperset(controllers.split(","))
            if controllers
            else mount.kind == "cgroup2"
        )
    }


def find_parents(root: Path = Path("/")) -> Parents | MissingValue:
    """Return the directories in which this process may make groups; MissingValue with the reason if there are
    none.

    root: root of another directory tree, for tests.
    """
    try:
        own = _group_of("self", root)
    except OSError as e:
        return MissingValue(f"{e.filename}: {e.strerror}")
    names = (*CONTROLLERS, PIDS)
    version1 = {name: own[name] for name in names if name in own and os.access(own[name], os.W_OK)}
    if "blkio" in version1 and not counts_blocks(version1["blkio"], root):
        del version1["blkio"]
    if version1:
        return Parents(version1=version1, unified=None, controllers=frozenset(version1))
    if any(name in own for name in CONTROLLERS):
        return MissingValue("the control groups are not writable for this user")
    if UNIFIED not in own:
        return MissingValue("no control groups are mounted")
    return _unified_parent(own[UNIFIED], root / _hierarchies(root)[UNIFIED].point.lstrip("/"))


@lru_cache(maxsize=1)
def _found_parents() -> Parents | MissingValue:
    return with_limits(find_parents())


_within: list[Parents | MissingValue] = []
"""The parents that the open inside_own_group() contexts of this process have yielded, innermost last."""


def machine_parents() -> Parents | MissingValue:
    """Return with_limits(find_parents()) of this machine, computed only once. While an inside_own_group()
    context is open, return the parents that it has yielded."""
    return _within[-1] if _within else _found_parents()


@contextlib.contextmanager
def inside_own_group(root: Path = Path("/")) -> Iterator[Parents | MissingValue]:
    """Let this process make groups only below the group in which it was started.

    Yields the parents that machine_parents() returns until exit; MissingValue if no groups can be made there.

    A batch system ends a job by the processes of the job's group, so no process may leave that group. With
    version 2, a group whose children have controllers must not contain processes. The processes of our own
    group, all of them of this job, therefore move to a group below it; they move back on exit.

    root: as in find_parents().
    """
    with contextlib.ExitStack() as stack:
        parents = find_parents(root)
        if not isinstance(parents, MissingValue) and parents.unified is not None:
            own = _group_of("self", root)[UNIFIED]
            if parents.unified != own:
                parents = _with_room(own, stack)
        _within.append(parents)
        stack.callback(_within.pop)
        yield parents


def _with_room(own: Path, stack: contextlib.ExitStack) -> Parents | MissingValue:
    """Move the processes of a group to a new group below it, so that further groups can be made below it.

    Returns the group as Parents; MissingValue if it cannot be divided. `stack` undoes the change on exit.
    """
    try:
        enabled = stack.enter_context(divide_group(own, _WANTED))
    except OSError as e:
        return MissingValue(f"the control group of this job cannot be divided: {e.filename}: {e.strerror}")
    except RunError as e:
        return MissingValue(f"the control group of this job cannot be divided: {e.what}")
    if not enabled:
        return MissingValue("the control group of this job may give its children no controllers")
    return Parents(version1={}, unified=own, controllers=_version1_names(enabled))


@lru_cache(maxsize=1)
def _mount_points() -> dict[str, Path]:
    """Return the mount points of this machine's hierarchies by controller, read only once."""
    return {name: Path(mount.point) for name, mount in _hierarchies(Path("/")).items()}


def _unified_parent(own: Path, mount: Path) -> Parents | MissingValue:
    """Find the nearest group, from our own upwards, that may have children with controllers.

    The group must be writable, and so must its cgroup.procs, because we move processes across it. It must
    also contain no processes, unless it is the root group (Documentation/admin-guide/cgroup-v2.rst, 'No
    Internal Process Constraint').
    """
    skipped = NO_LIMITS
    for directory in (own, *own.parents):
        with contextlib.suppress(OSError):
            is_top = not (directory / "cgroup.type").exists()
            writable = os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)
            if writable and (is_top or not (directory / "cgroup.procs").read_text().strip()):
                try:
                    enabled = enable(directory, _WANTED)
                except RunError as e:
                    return MissingValue(e.what)
                if enabled:
                    return Parents(
                        version1={},
                        unified=directory,
                        controllers=_version1_names(enabled),
                        limits=skipped,
                    )
        skipped = tightest((skipped, limits_of(directory)))
        if directory == mount:
            break
    return MissingValue(
        "no control group here may be given children with controllers (delegate one, or be root)"
    )


def with_limits(parents: Parents | MissingValue) -> Parents | MissingValue:
    """Return parents in which the limits of the caller hold.

    If the groups of version 2 would be outside of a group that limits the caller, a group with equal limits
    is made for all of them. It is removed when this process exits. Returns MissingValue if the kernel
    refuses: processes then stay in the group of the caller.
    """
    if isinstance(parents, MissingValue) or parents.unified is None or not parents.limits.exist:
        return parents
    limits, group = parents.limits, parents.unified / f"nearmetal-check-{os.getpid()}-limits"
    time = f"{round((limits.cpus or 0) * limits.period_us)} {limits.period_us}"
    settings = {
        "cpu.max": None if limits.cpus is None else time,
        "memory.max": limits.memory,
        "pids.max": limits.processes,
    }
    try:
        wanted = {_unified_name(c) for c in parents.controllers} | {PIDS}
        enabled = enable(parents.unified, wanted)
        atexit.register(remove_empty, (group,))
        with contextlib.suppress(FileExistsError):
            group.mkdir()
        for file, value in settings.items():
            if value is not None:
                write_control(group / file, str(value))
        write_control(group / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(enabled)))
    except (OSError, RunError) as e:
        return MissingValue(f"no control group can have the limits of this job ({limits.words}): {e}")
    return replace(parents, unified=group, limited=True)


def _version1_names(enabled: Set[str]) -> frozenset[str]:
    return frozenset(c for c in CONTROLLERS if _unified_name(c) in enabled)


def _unified_name(controller: str) -> str:
    return UNIFIED_NAMES.get(controller, controller)


def directories(parents: Parents, label: str, controllers: Set[str]) -> dict[str, Path]:
    """Return the directories that create() would make, by controller, or {'unified': ...}. No I/O.

    label: name of the group.
    controllers: wanted controllers, by their names in version 1. Those that cannot be used are left out.
    """
    if parents.unified is not None:
        return {UNIFIED: parents.unified / label} if controllers & parents.controllers else {}
    usable = controllers & parents.controllers
    return {name: parents.version1[name] / label for name in (*CONTROLLERS, PIDS) if name in usable}


def at_the_top(parents: Parents) -> Parents:
    """Return the parents with each directory of version 1 replaced by the mount point of its hierarchy."""
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
    """Return the absolute form of path_for_runtime(), for groups directly below the root of their
    hierarchies."""
    return f"/{path_for_runtime(made, label).lstrip('/')}"


def of_process(pid: int) -> dict[str, Path]:
    """Return the groups of a process by controller, or {'unified': ...}."""
    found = _group_of(str(pid))
    return {name: path for name, path in found.items() if name != UNIFIED or len(found) == 1}


def freezer(pid: int, label: str) -> Path | None:
    """Return the control file that freezes the group of a process; None if the path of that group does not
    contain the label, or if the process has ended.

    With version 1, create() makes no group in the freezer hierarchy. A container program may have made one.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        groups = [group for group in own_everywhere(process=str(pid)) if label in str(group)]
        # CRIU uses version 1 if both versions are mounted.
        names = ["freezer.state"] + (["cgroup.freeze"] if unified_beside_version1() is None else [])
        files = (group / name for name in names for group in groups)
        return next((file for file in files if file.exists()), None)
    return None


def thaw(pid: int, label: str) -> None:
    """Thaw the groups that contain a process and have a label in their paths. With version 1, a killed
    process ends only after it is thawed."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for group in (g for g in own_everywhere(process=str(pid)) if label in str(g)):
            for file, thawed in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if (group / file).exists():
                    write_control(group / file, thawed)


def unified_beside_version1() -> Path | None:
    """Return the mount point of version 2 if version 1 is mounted too ('hybrid'), else None."""
    points = _mount_points()
    return points.get(UNIFIED) if len(points) > 1 else None


def of_every_hierarchy(label: str) -> tuple[Path, ...]:
    """Return the groups of this name directly below the root of every mounted hierarchy, including those that
    nearmetal does not use."""
    groups = (Path(mount.point, label) for mount in _mounts())
    return tuple(group for group in groups if group.is_dir())
