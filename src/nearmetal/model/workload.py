"""Workloads: kernels, a user's own programs, and events of the instances themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .design import USUAL_SLICES, Design, Mode


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Pages(StrEnum):
    """Page size asked for by a kernel: madvise(MADV_HUGEPAGE), or 4 KiB by MADV_NOHUGEPAGE."""

    HUGE = "huge"
    SMALL = "4k"


#: Idle instances of a density where the study does not say.
IDLE = 10
#: Stands for the number of ranks in the arguments of a user's own program.
RANKS = "{ranks}"
#: Stands for the path of its storage in the arguments of a user's own program.
STORAGE = "{storage}"


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric of a user's own program: where its value stands in the output, its unit, its direction.
    Exactly one of regex (one group) and json_path (dotted) is set; scale: what the number is multiplied by to
    be in that unit."""

    name: str
    unit: str
    better: Better
    regex: str | None = None
    json_path: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class VerifySpec:
    """What the output of a user's own program must hold for its run to count. regex: searched with ^ and $
    meaning lines; expected: what its one group must have matched, None: that it matches is enough."""

    regex: str
    expected: str | None = None


@dataclass(frozen=True, kw_only=True)
class KernelWorkload:
    """One of our own kernels. params: the kernel's own keys (class, elements, bytes, ...); metrics: the ones
    to keep, empty for all."""

    name: str
    kernel: str
    params: Mapping[str, str | int | float]
    pages: Pages = Pages.HUGE
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CommandWorkload:
    """A user's own program. argv tokens, no shell; mpi: started by mpirun with one rank per task; per_task: a
    process for each task, without MPI, all begun at one moment; verify:
    None, every run that ends well counts; time_limit: seconds."""

    name: str
    argv: tuple[str, ...]
    mpi: bool = False
    per_task: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[MetricSpec, ...] = ()
    verify: VerifySpec | None = None
    time_limit: float = 3600.0

    def argv_on(self, ranks: int) -> tuple[str, ...]:
        """The tokens of a launch on so many ranks: RANKS in them is that number, and nothing else changes."""
        return tuple(token.replace(RANKS, str(ranks)) for token in self.argv)


@dataclass(frozen=True, kw_only=True)
class ApplicationWorkload:
    """A program of a package, or by the user's path, that nearmetal knows how to feed and to read.
    application: name of an entry point; params: its own keys, in base units; time_limit: seconds."""

    name: str
    application: str
    params: Mapping[str, str | int | float] = field(default_factory=dict)
    time_limit: float = 3600.0


class Event(StrEnum):
    """What happens to instances, as a subject."""

    START = "start"
    STOP = "stop"
    EXEC = "exec"
    DENSITY = "density"


EVENT_METRICS: Mapping[Event, tuple[str, ...]] = {
    Event.START: ("start",),
    Event.STOP: ("stop", "removed"),
    Event.EXEC: ("exec",),
    Event.DENSITY: ("start_all", "memory", "density", "node_memory"),
}
"""stop, removed: until the last first process has ended, until nothing of any instance is left; start_all:
until all idle instances stand; memory, density: of each by its control group, and how many take one GiB;
node_memory: of each by what the machine has left."""


@dataclass(frozen=True, kw_only=True)
class EventSubject:
    """An event of the instances themselves as a subject. START: from the request to the first instruction in
    the last instance; STOP: from the request to the end of the first process of the last one; EXEC: from the
    request to the first instruction of a command in a standing instance; DENSITY: `count` idle instances at
    once: how long until they stand and what memory they take. count: of START, STOP and EXEC how often in
    each block, None = as many times as a kernel has slices; of DENSITY how many instances, None = IDLE."""

    name: str = "start"
    event: Event = Event.START
    count: int | None = None

    def count_in(self, design: Design) -> int:
        """The count where the study does not say."""
        if self.count is not None:
            return self.count
        if self.event is Event.DENSITY:
            return IDLE
        return (design.slices or USUAL_SLICES) if design.mode is Mode.SLICES else design.runs


Workload = KernelWorkload | ApplicationWorkload | CommandWorkload | EventSubject
