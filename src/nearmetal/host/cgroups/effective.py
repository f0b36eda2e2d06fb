"""Limits of control groups that the kernel enforces on what runs below them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

_UNLIMITED = 1 << 62
"""Version 1 writes no limit of memory as the largest number of whole pages, which is above this."""


@dataclass(frozen=True, kw_only=True)
class EffectiveLimits:
    """Limits of CPU time, memory and processes. None means no limit.

    cpus: CPU time as a number of CPUs, such as 1.5.
    memory: in bytes.
    processes: number of processes and threads.
    period_us: period of the limit of CPU time, in microseconds.
    """

    cpus: float | None = None
    memory: int | None = None
    processes: int | None = None
    period_us: int = field(default=100_000, compare=False)

    @property
    def exist(self) -> bool:
        return self != NO_LIMITS

    @property
    def words(self) -> str:
        """'0.5 CPUs, 1500 MiB of memory'; '' without a limit."""
        parts = [
            f"{self.cpus:.3g} CPUs" if self.cpus is not None else "",
            f"{self.memory >> 20} MiB of memory" if self.memory is not None else "",
            f"{self.processes} processes" if self.processes is not None else "",
        ]
        return ", ".join(part for part in parts if part)

    def beyond(self, other: EffectiveLimits) -> EffectiveLimits:
        """Return those of these limits that are tighter than `other`."""
        return EffectiveLimits(
            cpus=_beyond(self.cpus, other.cpus),
            memory=_beyond(self.memory, other.memory),
            processes=_beyond(self.processes, other.processes),
        )


NO_LIMITS = EffectiveLimits()
_N = TypeVar("_N", int, float)
_SLACK = 1 + 1e-3
"""Factor within which limits are the same: the kernel rounds them to pages and microseconds."""


def _beyond(own: _N | None, other: _N | None) -> _N | None:
    return None if own is None or (other is not None and other <= own * _SLACK) else own


def tightest(limits: Iterable[EffectiveLimits]) -> EffectiveLimits:
    """Return the limits of something that all of these apply to."""
    found = list(limits)
    cpus, period_us = min(
        ((x.cpus, x.period_us) for x in found if x.cpus is not None), default=(None, 100_000)
    )
    return EffectiveLimits(
        cpus=cpus,
        period_us=period_us,
        memory=min((x.memory for x in found if x.memory is not None), default=None),
        processes=min((x.processes for x in found if x.processes is not None), default=None),
    )


def limits_of(group: Path) -> EffectiveLimits:
    """Return the limits that are set on one control group, of either version. A file that is missing or
    cannot be read sets no limit."""
    time = _words(group / "cpu.max")
    time = time or [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
    memory = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
    found = EffectiveLimits(memory=_number(memory), processes=_number(_words(group / "pids.max")))
    if len(time) == 2 and all(word.isdigit() for word in time) and (period := int(time[1])):
        found = replace(found, cpus=int(time[0]) / period, period_us=period)
    return found


def _words(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return file.read_text().split()
    return []


def _number(words: list[str]) -> int | None:
    """Return the number of a file; None for 'max'."""
    if len(words) != 1 or not words[0].isdigit() or int(words[0]) >= _UNLIMITED:
        return None
    return int(words[0])
