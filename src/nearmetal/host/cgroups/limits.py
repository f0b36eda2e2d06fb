"""Limits of control groups: how they are set, and what the kernel reads back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from .parents import UNIFIED
from .processes import unique, write_control

SHORTEST_US = 1000
"""The kernel accepts neither a quota nor a period below 1 ms (kernel/sched/core.c, tg_set_cfs_bandwidth)."""


DEFAULT_PERIOD_US = 100_000
"""The default of the kernel, and therefore of every container runtime."""


@dataclass(frozen=True, kw_only=True)
class GroupLimits:
    """Limits of a group. None or empty means no limit.

    cpus: CPUs on which the group may run.
    cpu_share: CPU time as a share of one CPU, such as 1.5.
    period_us: period of that limit, in microseconds.
    memory: in bytes. The group cannot swap, so the limit means the same in every backend.
    weight: as in cpu.shares of version 1.
    """

    cpus: tuple[int, ...] = ()
    cpu_share: float | None = None
    period_us: int = DEFAULT_PERIOD_US
    memory: int | None = None
    weight: int | None = None


def create(made: Mapping[str, Path], limits: GroupLimits) -> None:
    """Make the directories of a group and set its limits. An old empty group of the same name is replaced.

    Call remove() afterwards, even if create() fails.

    made: directory by controller, as returned by directories().

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
            write_control(path, text)
    except OSError as e:
        raise RunError(f"control group: {e.filename or next(iter(made.values()), '')}: {e.strerror}") from e


def settings(made: Mapping[str, Path], limits: GroupLimits) -> list[tuple[Path, str]]:
    """Return the files that create() writes and their contents.

    With cpuset of version 1, the memory nodes must be set as well. A kernel that does not account swap lacks
    the files that limit it.
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
            if (swap := group / "memory.swap.max").exists():
                out.append((swap, "0"))
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
        if (with_swap := made["memory"] / "memory.memsw.limit_in_bytes").exists():
            out.append((with_swap, str(limits.memory)))
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
