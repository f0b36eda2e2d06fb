"""What a kernel is to the tool: its keys, its metrics, and how much work a slice holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...model.study import Better
from ...model.workload import Ranks as Ranks
from ..parameter import Choices, Parameter

CLASSES = ("S", "W", "A", "B", "C")


class WorkKind(StrEnum):
    """What a kernel exercises. The noise floor is given by kind."""

    MEMORY = "memory"
    COMPUTE = "compute"
    MPI = "MPI"
    SOCKETS = "sockets"
    FILES = "files"


@dataclass(frozen=True, kw_only=True)
class KernelSetting:
    """What the work of a kernel may depend on besides its own keys.

    ranks: number of MPI ranks.
    llc_bytes: size of the whole last-level cache.
    alone: whether a slice holds only the one part that the workload asks for.
    """

    ranks: int
    llc_bytes: int
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class SliceWork:
    """How much work one slice holds, in units that the kernel defines (`slice` in kernels/micro/kernel.h).

    least: units that cannot be divided; every slice holds a whole multiple of them.
    most: units that a slice holds at most, where the rehearsal measures how many fill it; None without such
        a limit.
    asked: units that the study asks for; None if the rehearsal measures how many fill a slice.
    parts: parts of a slice whose time grows with the units; empty if all parts do.
    """

    least: int = 1
    most: int | None = None
    asked: int | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of a kernel.

    part: the part of nm-micro's slice line it comes from.
    value: base units from (seconds, work) of that part, both positive.
    unusable: what a slice did where one of them is not.
    """

    name: str
    unit: str
    better: Better
    part: str
    value: Callable[[float, float], float]
    unusable: str = "took no time or did no work"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of nm-micro.

    keys: the keys of its KERNEL-SPEC.
    work: how much work a slice holds.
    metrics: in the order in which they are shown.
    least_ranks: the smallest number of ranks that makes sense.
    ranks: the numbers of ranks that its definition allows.
    alone: a slice can run the part of one metric alone (key `only`).
    storage: it writes files to the storage of its environment.
    """

    name: str
    kind: WorkKind
    doc: str
    parameters: tuple[Parameter, ...]
    keys: Callable[[Choices, KernelSetting], Mapping[str, str | int]]
    work: Callable[[Choices, KernelSetting], SliceWork]
    metrics: Callable[[Choices], tuple[Metric, ...]]
    least_ranks: int = 1
    ranks: Ranks = Ranks.ANY
    alone: bool = False
    storage: bool = False


def per_second(seconds: float, work: float) -> float:
    return work / seconds


def seconds_each(seconds: float, work: float) -> float:
    return seconds / work


RATE = Metric(name="rate", unit="op/s", better=Better.HIGHER, part="rate", value=per_second)
