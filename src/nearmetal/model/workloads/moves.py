"""Workloads that write instances to files and restore them, or move them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from typing import Self

from ...lifecycle import Method
from ...units import Dimension, parse_rate, parse_size, parse_time
from ..keys import SIZE, ListOf, key_or, one_of, quantity, whole
from .event import EventSubject


class Load(StrEnum):
    """The work of the program in an instance that is moved: almost none, or writes to memory. The program
    verifies its memory afterwards in both cases."""

    IDLE = "idle"
    DIRTY = "dirty"


class Extent(StrEnum):
    """The processes that a checkpoint or a migration covers.

    INSTANCE: an instance with a program of its own.
    RANK: one rank of a job. Each rank has an instance of its own, and they exchange messages by TCP.
    JOB: an instance with all ranks of an MPI job.
    """

    INSTANCE = "instance"
    RANK = "rank"
    JOB = "job"


USUAL_RANKS = {Extent.RANK: 3, Extent.JOB: 2}
"""Ranks of a job, if the study does not state a number."""

# Defaults of keys, as their documentation shows them.
_MEMORY, _WORKING_SET, _DIRTY_RATE, _DOWNTIME, _TIME_LIMIT = "64 MiB", "16 MiB", "16 MiB/s", "300 ms", "1 min"
DOWNTIME_LIMIT = parse_time(_DOWNTIME)
_RANKS = ", ".join(f"{ranks} for of: {extent}" for extent, ranks in USUAL_RANKS.items())

IDLE_RATE = 1.0
"""Rate at which a program with the load IDLE dirties pages, in bytes of pages per second: almost none."""


@dataclass(frozen=True, kw_only=True)
class LifecycleSubject(EventSubject):
    """Checkpoints and restarts of instances, or moves.

    methods: methods to compare. Empty once the environments of a study have them.

    None stands for a default.

    memory, working_set: in bytes.
    dirty_rate: in bytes per second; a rate of 0 has no limit.
    time_limit: in seconds, for moves of guests and for copies of images.
    """

    methods: tuple[Method, ...] = key_or(
        (),
        ListOf(one_of(Method), least=1),
        "checkpoint, migrate: methods to compare with each other: every environment that runs the workload"
        " becomes one for each method that it can, such as qemu-precopy; the first takes its place as"
        " baseline; method in matrix means the same",
        ["offline", "precopy", "postcopy"],
        optional=True,
    )
    method: Method | None = key_or(
        None,
        one_of(Method),
        "how an instance is written to files (checkpoint: criu if omitted) or moved (migrate: if omitted,"
        " precopy, criu where there is no precopy, offline for a job over guests); auto chooses for"
        " downtime_limit",
        "postcopy",
    )
    of: Extent | None = key_or(
        None,
        one_of(Extent),
        "checkpoint, migrate: instance, if omitted: an instance with one program; rank (migrate): an"
        " instance with one rank of a job, whose ranks are in an instance each and exchange messages by"
        " TCP all the time; job: an instance with mpirun and all of its ranks; guests have one rank each",
        "rank",
    )
    ranks: int | None = key_or(None, whole(2, 64), f"of the job: {_RANKS} if omitted", 4)
    memory: int | None = key_or(
        None,
        SIZE,
        f"checkpoint, migrate: what is moved: memory of a process, {_MEMORY} if omitted; of a guest,"
        " instead of guest: memory",
        "256 MiB",
    )
    load: Load | None = key_or(
        None,
        one_of(Load),
        "checkpoint, migrate: what a program in the instance does meanwhile: dirty, writes to memory, if"
        " omitted; idle",
        "idle",
    )
    working_set: int | None = key_or(
        None,
        SIZE,
        f"checkpoint, migrate: what load dirty writes to; {_WORKING_SET} if omitted",
        "100 MiB",
    )
    dirty_rate: float | None = key_or(
        None,
        quantity(Dimension.RATE, 0, 2**60),
        "checkpoint, migrate: 4 KiB for each page that load dirty writes to; 0 B/s: as fast as it can;"
        f" {_DIRTY_RATE} if omitted",
        "64 MiB/s",
        unlimited=(0.0, "full speed"),
    )
    time_limit: float | None = key_or(
        None,
        quantity(Dimension.TIME, 1, 86400),
        "checkpoint, migrate: most time of a move of a guest, and of a copy of images;"
        f" {_TIME_LIMIT} if omitted",
        "10 min",
    )

    @property
    def chosen(self) -> Method:
        """The method of a workload that an environment measures; it is set before anything starts."""
        assert self.method is not None
        return self.method

    @property
    def mpi(self) -> bool:
        return self.extent is Extent.JOB

    @property
    def process_memory(self) -> int:
        """Bytes of memory of a process that is moved."""
        return parse_size(_MEMORY) if self.memory is None else self.memory

    @property
    def dirtied(self) -> tuple[int, int]:
        """Size in bytes of the memory that the program writes to repeatedly, and the rate in bytes of pages
        per second; a rate of 0 means as fast as possible."""
        size = parse_size(_WORKING_SET) if self.working_set is None else self.working_set
        rate = parse_rate(_DIRTY_RATE) if self.dirty_rate is None else self.dirty_rate
        return size, ceil(IDLE_RATE if self.load is Load.IDLE else rate)

    @property
    def longest(self) -> float:
        """Seconds after which a move of a guest, or a copy of images, is given up."""
        return parse_time(_TIME_LIMIT) if self.time_limit is None else self.time_limit

    @property
    def extent(self) -> Extent:
        """The processes that the event covers; Extent.INSTANCE by default."""
        return self.of or Extent.INSTANCE

    @property
    def job_ranks(self) -> int:
        """Number of ranks of the job; 1 if there is no job. One rank is moved, or all are."""
        return USUAL_RANKS.get(self.extent, 1) if self.ranks is None else self.ranks

    @property
    def misfit(self) -> tuple[str, str] | None:
        """The first key whose value contradicts that of another key, and the contradiction as text; None if
        there is none."""
        if self.methods and self.method is not None:
            return "methods", "method and methods: one of them is enough"
        if len(set(self.methods)) < len(self.methods):
            return "methods", "a method given twice"
        if self.working_set is not None and self.memory is not None and self.working_set > self.memory:
            return "working_set", "is larger than memory"
        if self.ranks is not None and self.extent is Extent.INSTANCE:
            return "ranks", "belongs to of: rank, or of: job"
        if self.method is Method.DMTCP and self.extent is not Extent.JOB:
            return "method", "dmtcp writes whole MPI jobs only; of: job"
        if self.load is Load.IDLE:
            own = (name for name in ("working_set", "dirty_rate") if vars(self)[name] is not None)
            return next(((name, "belongs to load: dirty") for name in own), None)
        return None

    def by(self, method: Method | None) -> Self:
        """Return the workload with the method of an environment; unchanged if it has a method of its own."""
        return self if self.method is not None else replace(self, method=method)


@dataclass(frozen=True, kw_only=True)
class MoveSubject(LifecycleSubject):
    """Moves of instances.

    bandwidth: in bytes per second.
    downtime_limit: in seconds, for methods that copy in rounds and for AUTO.
    """

    bandwidth: float | None = key_or(
        None,
        quantity(Dimension.RATE, 1e3, 2**60),
        "migrate: the most that a move of a guest may use; no limit if omitted",
        "128 MiB/s",
    )
    downtime_limit: float | None = key_or(
        None,
        quantity(Dimension.TIME, 1e-3, 2000),
        f"migrate: most downtime, for auto and, of a guest, for precopy and multifd; {_DOWNTIME} if omitted",
        "100 ms",
    )

    @property
    def most_downtime(self) -> float:
        return DOWNTIME_LIMIT if self.downtime_limit is None else self.downtime_limit
