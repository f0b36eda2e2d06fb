"""Sweeps: workloads of one study that differ only in numbers, such as a message size or a dirty rate."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..units import BASE, Dimension
from .change import replace
from .keys import ValueType, keys_of
from .study import Study
from .workloads import Workload
from .workloads.event import EventSubject, own_keys
from .workloads.kernel import KernelWorkload
from .workloads.programs import ApplicationWorkload

LEAST_NUMBERS = 2
"""Fewest numbers of ranks that make a curve."""
LEAST_POINTS = 3
"""Fewest metrics with a number in their names that make a curve."""
# Not percentiles: p50, p99.
_NUMBERED = re.compile(r"(?P<stem>(?!p[0-9]|.*[-_]p[0-9]).*[^0-9])(?P<at>[0-9]{1,15})")


def numbered(metric: str) -> tuple[str, int] | None:
    """Return the stem and the number of the name of a metric, ('nb', 64) of 'nb64'; None if there is no
    number, or if it is a percentile."""
    match = _NUMBERED.fullmatch(metric)
    return None if match is None else (match["stem"], int(match["at"]))


_SIZES = ("bytes", "block", "size")
"""Parameters of kernels and applications that are sizes."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What the values of a swept key mean.

    unit: their base unit; '' for plain numbers.
    unlimited: the value that means no limit, and words for it; None if there is no such value.
    """

    unit: str = ""
    unlimited: tuple[float, str] | None = None

    def at(self, value: float) -> float:
        """Return the place of a value on the axis; infinite for no limit."""
        return math.inf if self.unlimited is not None and value == self.unlimited[0] else float(value)


_Numbers = Mapping[str, tuple[float, Axis]]
"""Numbers of a workload, and what they mean, by key."""


def _axes_of(event: EventSubject) -> dict[str, Axis]:
    """Return the axes that its own quantities may have, by name of the field."""
    own = own_keys(type(event))
    return {
        f.name: Axis(unit=BASE[key.kind.dimension], unlimited=key.unlimited)
        for f, key in keys_of(type(event))
        if f.name in own and isinstance(key.kind, ValueType) and key.kind.dimension is not None
    }


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Workloads that differ only in some numbers.

    name: the parts between hyphens that the names of all workloads share; without shared parts, the name of
        the kernel, application or event. If another sweep has this name, the name of the first workload.
    keys: names of the numbers in which the workloads differ.
    axes: what the values of each key mean.
    at: by name of a workload, its values of `keys`, in this order; see Axis.at().
    """

    name: str
    workloads: tuple[Workload, ...]
    keys: tuple[str, ...]
    axes: Mapping[str, Axis]
    at: Mapping[str, tuple[float, ...]]

    @property
    def least(self) -> int:
        """Smallest number of different values that make a curve: 2 for an event, 3 for a kernel or an
        application."""
        return 2 if self.workloads[0].event else 3

    def lines(self, key: str) -> tuple[tuple[str, ...], ...]:
        """Return groups of workloads, by name, that differ only in the value of this key: one group for each
        curve.

        Groups with fewer than `least` different values are left out.
        """
        number = self.keys.index(key)
        groups: dict[tuple[float, ...], list[str]] = {}
        for name, values in self.at.items():
            groups.setdefault((*values[:number], *values[number + 1 :]), []).append(name)
        return tuple(
            tuple(names)
            for names in groups.values()
            if len({self.at[name][number] for name in names}) >= self.least
        )

    @property
    def curved(self) -> bool:
        """Whether there is a curve over one of the keys."""
        return any(self.lines(key) for key in self.keys)


def sweeps(study: Study) -> tuple[Sweep, ...]:
    """Return the sweeps of a study, in the order of its workloads.

    Workloads whose parameters differ in a value that is not above zero belong to different sweeps, because
    the value has no place on a logarithmic axis.
    """
    families: dict[tuple[str, frozenset[str]], list[tuple[Workload, _Numbers]]] = {}
    for w in study.workloads:
        rest, numbers = _numbers(w)
        if numbers:
            families.setdefault((rest, frozenset(numbers)), []).append((w, numbers))
    found: list[Sweep] = []
    for family in families.values():
        workloads = tuple(w for w, _ in family)
        keys = tuple(key for key in family[0][1] if len({numbers[key] for _, numbers in family}) > 1)
        name = _shared_name(workloads)
        if any(s.name == name for s in found):
            name = workloads[0].name
        at = {w.name: tuple(numbers[k][0] for k in keys) for w, numbers in family}
        axes = {k: family[0][1][k][1] for k in keys}
        sweep = Sweep(name=name, workloads=workloads, keys=keys, axes=axes, at=at)
        # Reports describe how moves went at each point, even without a curve.
        if keys and (sweep.curved or workloads[0].event):
            found.append(sweep)
    return tuple(found)


def _numbers(w: Workload) -> tuple[str, _Numbers]:
    """Return a text that identifies a workload except for its name and its numbers, and the numbers by key.
    The numbers are empty for workloads that cannot be part of a sweep."""
    match w:
        case EventSubject():
            axes = _axes_of(w)
            own = {
                key: (axis.at(v), axis) for key, axis in axes.items() if (v := getattr(w, key)) is not None
            }
            return repr(replace(w, name="", **dict.fromkeys(axes))), own
        case KernelWorkload() | ApplicationWorkload():
            sizes = dict.fromkeys(_SIZES, Axis(unit=BASE[Dimension.SIZE]))
            numeric = {k: v for k, v in w.params.items() if type(v) in (int, float) and float(v) > 0}
            others = {k: v for k, v in sorted(w.params.items()) if k not in numeric}
            own = {k: (float(v), sizes.get(k, Axis())) for k, v in numeric.items()}
            return repr(replace(w, name="", params=others)), own
        case _:
            return "", {}


def _shared_name(workloads: Sequence[Workload]) -> str:
    parts = zip(*(w.name.split("-") for w in workloads), strict=False)
    return "-".join(own[0] for own in parts if len(set(own)) == 1) or workloads[0].ran
