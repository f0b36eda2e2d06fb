"""The noise floor as text, by kind of work. No I/O; independent of the format."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from statistics import median_low

from ...model.result import Cell, NoiseFloor, deciding_cells
from ...model.study import Study
from ...model.workloads.base import PROGRAMS
from ...workloads.kernels.contract import WorkKind
from ...workloads.kernels.registry import kind
from .cells import bounded, metric_label

FAR_APART = 2.0
"""A metric is shown separately if its interval is this many times as wide as the median of its kind."""
_KERNELS = tuple(dict.fromkeys((WorkKind.COMPUTE, *WorkKind)))
"""The kinds of work of kernels in the order of the noise floor."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The noise floor of one kind of work: half-widths of intervals of the baseline compared with itself.

    A half-width is a share. It is infinite before there are enough blocks.
    group: the kind of work.
    half_width: the largest half-width of the cells that decide (deciding_cells()), or of all cells if none
        decides; in both cases without those of `apart`.
    apart: cells whose half-width is more than FAR_APART times the median; cells that decide come first, and
        then the widest.
    decides: whether any of the cells decides.
    cells: all comparisons of the baseline with itself.
    """

    group: str
    half_width: float
    apart: tuple[Cell, ...]
    decides: bool
    cells: tuple[Cell, ...]

    @property
    def figure(self) -> str:
        return _plus_minus(self.half_width)

    @property
    def wider(self) -> str:
        """Return how many cells are in `apart`, and the first of them: '4 of 23 wider:
        hpcc.RandomRing-latency ±447.0 %'; '' if there is none."""
        if not self.apart:
            return ""
        return f"{len(self.apart)} of {len(self.cells)} wider: {width_text(self.apart[0])}"

    @property
    def text(self) -> str:
        return f"{self.group} {self.figure}" + (f" ({self.wider})" if self.wider else "")


def kind_of_work(study: Study, workload: str) -> str:
    """Return the kind of work of a workload.

    It is the kind of its kernel (WorkKind), the group that the subject of its event declares
    (SubjectFacts.floor_group), or PROGRAMS for a user's own program and for a workload that the study lacks.
    """
    for w in study.workloads:
        if w.name == workload:
            return w.floor_group or kind(w.ran)
    return PROGRAMS


def floors(study: Study, noise: NoiseFloor) -> tuple[Floor, ...]:
    """Return the noise floor of each kind of work: kernels, events of instances, and programs last."""
    by_group: dict[str, list[Cell]] = {}
    for c in noise.cells:
        by_group.setdefault(kind_of_work(study, c.workload), []).append(c)
    events = [kind_of_work(study, w.name) for w in study.workloads if w.event]
    order = dict.fromkeys((*_KERNELS, *events, PROGRAMS, *by_group))
    deciding = {c.key for c in deciding_cells(study, noise.cells)}
    return tuple(_floor(group, by_group[group], deciding) for group in order if group in by_group)


def _floor(group: str, cells: Sequence[Cell], deciding: Set[str]) -> Floor:
    own = [c for c in cells if c.key in deciding]
    shown = own or cells
    # With the lower median, the wider one of two metrics may be shown separately.
    most = FAR_APART * median_low(map(half_width, shown))
    apart = [c for c in cells if half_width(c) > most]
    return Floor(
        group=group,
        half_width=max(w for c in shown if (w := half_width(c)) <= most),
        apart=tuple(sorted(apart, key=lambda c: (c.key not in deciding, -half_width(c)))),
        decides=bool(own),
        cells=tuple(cells),
    )


def width_text(cell: Cell) -> str:
    """Return the metric of an A/A cell and its half-width: 'pingpong.latency ±280.0 %'."""
    return f"{metric_label(cell)} {_plus_minus(half_width(cell))}"


def half_width(cell: Cell) -> float:
    """Return the half-width of the interval of the overhead, as a share; infinite if it has an open end."""
    return (cell.high - cell.low) / 2 if bounded(cell) else math.inf


def _plus_minus(half_width: float) -> str:
    return f"±{half_width * 100:.1f} %" if math.isfinite(half_width) else "not known yet"
