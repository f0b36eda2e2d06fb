"""Figures printed in a paper. They are shown beside our measurements, and never mixed with them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What a printed figure measures.

    TIME: seconds of one phase of a process.
    TIME_SHARE: one phase as a fraction of the life of the process.
    OVERHEAD: additional time compared with the baseline, as a fraction.
    GAIN: time saved compared with the baseline, as a fraction.
    COUNT: number of events.
    WAIT: seconds.
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
    """How well a printed figure compares with ours. SAME: same definition, under the conditions that both
    state. LIKE: only similar."""

    SAME = "same quantity"
    LIKE = "like it"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper.

    setting: machines, kernels and runs, in words.
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

    part: part of the study that measures the same.
    source: table or section.
    size: class of the NAS benchmark.
    arm, baseline: by place ('container', 'shared memory', ...); '' if there is none.
    phase: phase of a process, '' for the whole; for INSTANCES, the name of the counter ('node.user',
        analysis.instances).
    differs: in what it differs from our measurement.
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
