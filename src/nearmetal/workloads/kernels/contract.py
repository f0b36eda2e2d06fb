"""The definition of a kernel: its keys, its metrics, and the work of a slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...model.study import Better
from ...model.workloads.kernel import Ranks as Ranks
from ..parameter import Choices, Parameter

CLASSES = ("S", "W", "A", "B", "C")


class WorkKind(StrEnum):
    """The part of the machine that a kernel exercises. The noise floor is reported for each kind."""

    MEMORY = "memory"
    COMPUTE = "compute"
    MPI = "MPI"
    SOCKETS = "sockets"
    FILES = "files"


@dataclass(frozen=True, kw_only=True)
class KernelSetting:
    """Conditions, other than its own keys, that may determine the work of a kernel.

    llc_bytes: total size of the last-level caches.
    turns: smallest number of instances that take turns with their slices in any round.
    alone: whether a slice runs only the one part that the workload selects.
    """

    ranks: int
    llc_bytes: int
    turns: int = 1
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class SliceWork:
    """The work of one slice, in units that the kernel defines (`slice` in kernels/micro/kernel.h).

    least: smallest number of units; every slice has a multiple of it.
    most: largest number of units if the rehearsal determines the number; None for no limit.
    units: number of units that the study sets; None if the rehearsal determines it.
    parts: parts of a slice whose time grows with the units; empty if all parts do.
    """

    least: int = 1
    most: int | None = None
    units: int | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KernelMetric:
    """One metric of a kernel.

    part: the part of nm-micro's slice line that the metric is computed from.
    unit_work: factor from the work that nm-micro reports for this part to the work of the metric. For
        example, the size of a message in bytes if nm-micro counts messages and the metric is in B/s.
    unusable: end of the message about slices whose time or work is not positive ("3 of 8 time shares ...").
    """

    name: str
    unit: str
    better: Better
    part: str
    unit_work: float = 1.0
    unusable: str = "took no time or did no work"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of nm-micro.

    title: its name in sentences and tables; if empty, `name` is used.
    keys: returns the keys and values of its KERNEL-SPEC, the argument of nm-micro.
    work: returns the work of a slice.
    metrics: returns its metrics, in the order in which they are shown.
    least_ranks: the smallest useful number of ranks.
    ranks: the numbers of ranks that its definition allows.
    alone: whether a slice can run only the part of one metric (key `only`).
    storage: whether it writes files to the storage of its environment.
    verification: estimated seconds of one full, verified run on two CPUs of the early 2020s; of a kernel with
        classes, for each of CLASSES.
    """

    name: str
    kind: WorkKind
    doc: str
    parameters: tuple[Parameter, ...]
    keys: Callable[[Choices, KernelSetting], Mapping[str, str | int]]
    work: Callable[[Choices, KernelSetting], SliceWork]
    metrics: Callable[[Choices], tuple[KernelMetric, ...]]
    least_ranks: int = 1
    ranks: Ranks = Ranks.ANY
    alone: bool = False
    storage: bool = False
    title: str = ""
    verification: tuple[float, ...] = (0.015,)

    def verification_seconds(self, size: object) -> float:
        """Return the estimate for a class; for the smallest one, if the size is no class."""
        one = len(self.verification) == 1 or size not in CLASSES
        return self.verification[0 if one else CLASSES.index(str(size))]


RATE = KernelMetric(name="rate", unit="op/s", better=Better.HIGHER, part="rate")
