"""Limits of the caller: those of the control groups in which nearmetal was started, which all instances must
have too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ..base import MissingValue
from .effective import NO_LIMITS, EffectiveLimits, limits_of, tightest
from .parents import machine_parents, own_directories


def effective_limits(process: str = "self", root: Path = Path("/")) -> EffectiveLimits:
    """Return the limits of a process, by its control groups and all groups above them.

    process: PID as text; 'self' for this process.
    root: root directory of the machine, for tests.
    """
    return tightest(_limiting(_around(own_directories(root, process))).values())


@lru_cache(maxsize=1)
def caller_limits() -> EffectiveLimits:
    """Return effective_limits() of this process, read only once."""
    return effective_limits()


def escaped_limits(
    pid: int,
    groups: Mapping[str, Path],
    *,
    alone: bool,
    root: Path = Path("/"),
) -> EffectiveLimits:
    """Return those limits of the caller that do not hold for an instance.

    A limit holds for an instance below the group that has it. It also holds by an equal limit elsewhere, if
    the instance is the only one; several instances would have it each.

    pid, groups: first process and control groups of the instance.
    alone: whether the instance is the only one of its arm.
    root: as in effective_limits().
    """
    if root == Path("/") and not caller_limits().exist:  # known, and asked in every trial
        return NO_LIMITS
    required = _required(root)
    directories = own_directories(root, str(pid))
    if pid == os.getpid():  # bare metal without a first process: only programs are in its groups
        for group in groups.values():
            directories |= {point: group for point in directories if group.is_relative_to(point)}
    around = _around(directories)
    outside = tightest(limits for group, limits in required.items() if group not in around)
    return outside.beyond(tightest(_limiting(around).values())) if alone else outside


def _required(root: Path) -> dict[Path, EffectiveLimits]:
    """Return the groups whose limits apply to the caller. A group with equal limits that stands for some of
    them replaces those."""
    found = _limiting(_around(own_directories(root)))
    parents = machine_parents()
    if isinstance(parents, MissingValue) or parents.unified is None or not parents.limited:
        return found
    top, group = parents.unified.parent, parents.unified
    kept = {d: limits for d, limits in found.items() if d == top or not d.is_relative_to(top)}
    return {**kept, group: limits_of(group)}


def _around(directories: Mapping[Path, Path]) -> list[Path]:
    """Return groups and all groups above them.

    directories: by mount point of the hierarchy.
    """
    return [
        group
        for point, own in directories.items()
        for group in (own, *own.parents)
        if group.is_relative_to(point)
    ]


def _limiting(groups: list[Path]) -> dict[Path, EffectiveLimits]:
    found = {group: limits_of(group) for group in groups}
    return {group: limits for group, limits in found.items() if limits.exist}
