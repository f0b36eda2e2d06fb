"""Checks a study for mistakes before anything is started."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...environments.guests.guest import FRESH
from ...errors import UsageError
from ...host import Host
from ...model.environments.image import HOST
from ...model.study import Arm, CommandWorkload, Study
from ...workloads.applications.registry import application, choices
from ..machine import Machine

_SHARE = "to measure that, write oversubscribe: true for the placement in a study file"


def require_cpus(arms: Iterable[Arm], machine: Machine) -> None:
    """Check that the machine has the CPUs and cores that each placement requests.

    Raises UsageError if it has fewer.
    """
    for arm in arms:
        if arm.placement.node.remote:
            continue  # checked when its nodes are opened
        wanted = set(arm.placement.cpus)
        shared = arm.placement.oversubscribe
        if not wanted <= set(machine.cpus) or (arm.placement.ranks > len(machine.cpus) and not shared):
            needs, has = (f" {sorted(c)}" if wanted else "" for c in (wanted, machine.cpus))
            raise UsageError(
                f"placement {arm.placement.name} needs {arm.placement.ranks} CPUs{needs}; "
                f"this machine has {len(machine.cpus)}{has}",
                remedy="use fewer ranks: MPI ranks that share a CPU wait for each other by spinning; "
                f"{_SHARE}",
            )
        if arm.placement.all_instances > machine.cores and not shared:
            raise UsageError(
                f"placement {arm.placement.name} has {arm.placement.all_instances} instances; "
                f"this machine has {machine.cores} cores",
                remedy=f"use at most one instance for each core; {_SHARE}",
            )


def require_commands(arms: Iterable[Arm], study: Study, host: Host, directory: Path) -> None:
    """Check the user's own programs that run with the machine's root file system.

    directory: the working directory of nearmetal, to which paths are relative.

    Raises UsageError if a program does not exist or cannot be executed, or if the instances cannot have the
    working directory.
    """
    for arm in arms:
        for w in study.commands:
            if w.own_directory or not arm.environment.takes(w.name):
                continue
            guest = arm.environment.guest
            if arm.environment.image == HOST and (guest is None or guest.disk is None):
                _require_command(w, arm, host, directory)
            if directory in FRESH and "/" in w.argv[0] and not w.argv[0].startswith("/"):
                raise UsageError(
                    f"workload {w.name}: instances have a {directory} of their own, where {w.argv[0]} is not",
                    remedy=f"work in a directory below {directory}",
                )


def _require_command(workload: CommandWorkload, arm: Arm, host: Host, directory: Path) -> None:
    name = workload.argv_on(arm.placement.ranks)[0]
    if "/" not in name:
        if host.which(name) is None:
            raise UsageError(
                f"workload {workload.name}: {name} is not installed here",
                remedy="install it, or name it by its path",
            )
        return
    path = directory / name
    if not path.exists():
        raise UsageError(f"workload {workload.name}: there is no {name}", where=str(directory))
    if path.is_dir() or not os.access(path, os.X_OK):
        raise UsageError(
            f"workload {workload.name}: {name} cannot be executed",
            remedy=f"chmod +x {name}, if it is a program; else name what runs it: [python3, {name}]",
        )


def seen_directories(study: Study, arm: Arm, directory: Path, *, virtual: bool = False) -> tuple[Path, ...]:
    """Return directories of the machine that the user's own programs need and the instances of an arm would
    not see, or could not write to.

    These are the working directory, and the directories of programs at places where an instance has
    directories of its own.
    directory: the working directory of nearmetal.
    virtual: whether the instances are virtual machines. They see the machine's directories as they are, but
        what they write remains in them.
    """
    commands = [w for w in study.commands if arm.environment.takes(w.name)]
    programs = [w.argv_on(arm.placement.ranks)[0] for w in commands]
    for w in study.applications:
        if arm.environment.takes(w.name):
            programs += application(w.application).needs(choices(w)).programs
    other_root = arm.environment.image != HOST
    paths = [Path(os.path.normpath(directory / p)) for p in programs if "/" in p]
    found = [_around(p) for p in paths if _is_fresh(p) and p.is_file() and not _is_top(p.parent)]
    seen = virtual and not other_root and not _is_fresh(directory)
    here = any(not w.own_directory for w in commands) and not seen
    if here and not _is_top(directory):
        found.append(directory)
    return tuple(dict.fromkeys(found))


def _is_fresh(path: Path) -> bool:
    """Return whether every instance has its own directory at this place."""
    return any(path.is_relative_to(top) for top in FRESH)


def _is_top(directory: Path) -> bool:
    """Return whether an instance must have its own version of this directory."""
    return directory in FRESH or directory == Path("/")


def _around(program: Path) -> Path:
    """Return the directory of a program. For a program in bin, this is the parent of bin, since an
    interpreter needs its other directories."""
    above = program.parent.parent
    return above if program.parent.name == "bin" and not _is_top(above) else program.parent
