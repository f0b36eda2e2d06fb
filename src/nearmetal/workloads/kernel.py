"""What a kernel is to the tool: its keys, its metrics, and what the counts of a slice follow from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..model.ranks import Ranks as Ranks
from ..model.study import Better, Transport
from .parameter import Choices, Parameter

CLASSES = ("S", "W", "A", "B", "C")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the counts of a slice may depend on, and nothing else: arms of one transport get the same slices.
    llc_bytes: size of the last-level cache, all of it."""

    transport: Transport
    ranks: int
    llc_bytes: int


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of a kernel. part: the part of nm-micro's slice line it comes from; value: base units from
    (seconds, work) of that part, both positive; unusable: what a slice did where one of them is not."""

    name: str
    unit: str
    better: Better
    part: str
    value: Callable[[float, float], float]
    unusable: str = "took no time or did no work"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel. keys: the KERNEL-SPEC keys of a slice, every count decided; metrics: in the order shown;
    least_ranks: fewer make no sense; ranks: what the definition allows; alone: a slice can run the part of
    one metric alone (key only); storage: it writes files, to the storage of its environment."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    keys: Callable[[Choices, Setting], Mapping[str, str | int]]
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
