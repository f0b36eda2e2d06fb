"""The noise floor in words, by kind of work. Pure; knows no format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from ...model.result import Cell, NoiseFloor
from ...model.study import EventSubject, KernelWorkload, Study
from ...workloads.kernels.registry import kind
from .cells import bounded, metric_label

FAR_APART = 2.0
"""A metric is shown separately if its interval is this many times as wide as the median of its kind."""
_GROUP_ORDER = (
    "compute",
    "memory",
    "MPI",
    "sockets",
    "files",
    "start",
    "stop",
    "exec",
    "density",
    "migrate",
    "programs",
)


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The noise floor of one kind of work: the half-widths of the baseline's comparison with itself, as
    shares.

    A half-width is infinite before there are enough blocks.
    half_width: the largest half-width, without those of `apart`.
    apart: metrics with much larger half-widths than the others, widest first.
    cells: all comparisons of the baseline with itself.
    """

    group: str
    half_width: float
    apart: tuple[Cell, ...]
    cells: tuple[Cell, ...]

    @property
    def figure(self) -> str:
        return _plus_minus(self.half_width)

    @property
    def wider(self) -> str:
        """Return '4 of 23 wider: hpcc.RandomRing-latency ±447.0 %' (the widest); '' if there is none."""
        if not self.apart:
            return ""
        worst = f"{metric_label(self.apart[0])} {_plus_minus(_half_width(self.apart[0]))}"
        return f"{len(self.apart)} of {len(self.cells)} wider: {worst}"

    @property
    def text(self) -> str:
        return f"{self.group} {self.figure}" + (f" ({self.wider})" if self.wider else "")


def kind_of_work(study: Study, workload: str) -> str:
    """'compute', 'memory', 'MPI', 'sockets', an event ('start', ...), or 'programs' for a user's own."""
    for w in study.workloads:
        if w.name == workload:
            if isinstance(w, EventSubject):
                return w.facts.name
            return kind(w.kernel) if isinstance(w, KernelWorkload) else "programs"
    return "programs"


def floors(study: Study, noise: NoiseFloor) -> tuple[Floor, ...]:
    """Return the noise floor of each kind of work in a fixed order; unknown kinds are last."""
    by_group: dict[str, list[Cell]] = {}
    for c in noise.cells:
        by_group.setdefault(kind_of_work(study, c.workload), []).append(c)
    order = dict.fromkeys((*_GROUP_ORDER, *by_group))
    return tuple(_floor(group, by_group[group]) for group in order if group in by_group)


def _floor(group: str, cells: Sequence[Cell]) -> Floor:
    # Of two the wider may be the one apart.
    most = FAR_APART * median_low(map(_half_width, cells))
    return Floor(
        group=group,
        half_width=max(w for c in cells if (w := _half_width(c)) <= most),
        apart=tuple(sorted((c for c in cells if _half_width(c) > most), key=_half_width, reverse=True)),
        cells=tuple(cells),
    )


def _half_width(cell: Cell) -> float:
    return (cell.high - cell.low) / 2 if bounded(cell) else math.inf


def _plus_minus(half_width: float) -> str:
    return f"±{half_width * 100:.1f} %" if math.isfinite(half_width) else "not known yet"
