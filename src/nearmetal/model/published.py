"""Figures printed in a paper. They are shown next to our measurements, and never mixed with them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """The quantity that a printed figure gives.

    TIME: seconds of one phase of a process.
    TIME_SHARE: one phase as a fraction of the lifetime of the process.
    OVERHEAD: additional time compared with the baseline, as a fraction.
    GAIN: time saved compared with the baseline, as a fraction.
    COUNT: number of events.
    WAIT: waiting time in seconds.
    WALL: seconds of a whole run.
    INSTANCES: counters of instances in timed runs.
    BOOT: seconds of a boot, by statistic (phase 'boot.minimum', ...).
    """

    TIME = "time"
    TIME_SHARE = "share of the time"
    OVERHEAD = "overhead"
    GAIN = "gain"
    COUNT = "count"
    WAIT = "wait"
    WALL = "wall time"
    INSTANCES = "instances"
    BOOT = "boot time"


class Likeness(StrEnum):
    """How well a printed figure can be compared with ours. SAME: same definition, under the stated
    conditions. LIKE: similar, but not the same definition."""

    SAME = "same quantity"
    LIKE = "like it"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A published paper.

    setting: description of its machines, kernels and runs.
    """

    key: str
    title: str
    authors: str
    year: int
    where: str
    setting: str


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One printed figure in base units (seconds; fractions such as 0.13). low = high for a single number.

    part: part of the study that measures the same quantity.
    source: table or section.
    size: class of the NAS benchmark.
    arm, baseline: the paper's name of the environment ('container', 'shared memory', ...); '' if there is
        none.
    phase: phase of a process, '' for the whole process; for INSTANCES, the name of the counter ('node.user',
        see analysis.instances).
    differs: how its conditions differ from those of our measurement.
    """

    part: str
    what: str
    quantity: Quantity
    low: float
    high: float
    unit: str
    source: str
    likeness: Likeness
    differs: str
    workloads: tuple[str, ...] = ()
    size: str = ""
    arm: str = ""
    baseline: str = ""
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A paper with its figures, in the order of the paper."""

    paper: Paper
    figures: tuple[PublishedFigure, ...]

    def of_part(self, part: str) -> tuple[PublishedFigure, ...]:
        """Return the figures that belong to one part of a study."""
        return tuple(f for f in self.figures if f.part == part)
