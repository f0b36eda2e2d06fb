"""What a paper printed, to stand beside what we measure and never to be mixed with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What a printed figure measures. TIME: seconds of one phase of a process; TIME_SHARE: the same as a
    share of its life; OVERHEAD: more time than the baseline takes, as a share; GAIN: less time, as a share;
    COUNT: events; WAIT: seconds; WALL: seconds of a whole run; INSTANCES: what those count in timed runs;
    BOOT: seconds of a boot, by statistic (phase 'boot.minimum', ...)."""

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
    """SAME: defined as ours is, under the conditions that both state; LIKE: only near it."""

    SAME = "same quantity"
    LIKE = "like it"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """setting: machines, kernels and runs, in words."""

    key: str
    title: str
    authors: str
    year: int
    where: str
    setting: str


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One printed figure in base units (s; shares as 0.13), low = high for a single number.

    part: of the study that asks the same.
    source: table or section.
    size: class of the NAS benchmark.
    arm, baseline: by place ('container', 'shared memory', ...), '' where there is none.
    phase: of a process, '' for the whole, and of INSTANCES which of the figures ('node.user',
        analysis.instances).
    differs: what is not as in our measurement.
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
        """Those that one part of a study stands beside."""
        return tuple(f for f in self.figures if f.part == part)
