"""Events of the instances themselves, as workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import ClassVar, Self

from ...lifecycle import Method
from ...units import Dimension
from ..design import Design, Mode
from ..keys import COUNT, SIZE, ListOf, ValueType, key, key_or, keys_of, one_of, quantity, scalar, whole
from .base import WorkloadBase

#: Starts, stops or commands in a block, if the study does not state a number.
USUAL_EVENTS = 8


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


WORKING_SET, DIRTY_RATE = 16 << 20, float(16 << 20)
"""Defaults of the load DIRTY: bytes, and bytes of pages per second."""


DOWNTIME_LIMIT = 0.3
"""Default of the key `downtime_limit`, in seconds."""


TIME_LIMIT = 60.0
"""Default of the key `time_limit`, in seconds."""


IDLE_RATE = 1.0
"""Rate at which a program with the load IDLE dirties pages, in bytes of pages per second: almost none."""


LIFECYCLE_KEYS = frozenset(
    {"method", "of", "ranks", "memory", "load", "working_set", "dirty_rate", "time_limit"}
)
"""Keys of a subject that writes instances to files and restores them."""


MOVING_KEYS = LIFECYCLE_KEYS | {"bandwidth", "downtime_limit"}
"""Keys of a subject that moves instances."""


@dataclass(frozen=True, kw_only=True)
class SubjectFacts:
    """Declarations of a subject that measures events of instances; see subjects.contract.

    name: name in study files.
    doc: what the event is, in one line of the documentation of the key `subject`; empty for none.
    event: the event with its article, as in 'Which is fastest at a move?'; the name if empty.
    metrics: names of its metrics.
    quantiles: the metrics for which quantiles are shown, with a chart of the distribution.
    plurals: plural noun of the events whose times a metric gives, as in 'Share of starts'; 'events' for a
        metric that is missing.
    usual: default number of events or instances in a block. None: the number of slices of a kernel or, in
        plain trials, the number of runs of a program.
    floor_group: group in the noise floor; the name if empty.
    keys: names of the keys that its workloads may have in addition to `count`.
    """

    name: str
    doc: str = ""
    event: str = ""
    metrics: tuple[str, ...]
    quantiles: frozenset[str] = frozenset()
    plurals: Mapping[str, str] = field(default_factory=dict)
    usual: int | None = None
    floor_group: str = ""
    keys: frozenset[str] = frozenset()


_SUBJECT = ValueType(scalar, {}, lambda facts: str(facts.name))
"""The name of a subject. The module study_file finds the installed subjects: it reads the name, and documents
them."""


@dataclass(frozen=True, kw_only=True)
class EventSubject(WorkloadBase):
    """Events of the instances themselves, measured by a subject.

    facts: declarations of its subject.
    methods: methods to compare. Empty once the environments of a study have them.
    count: how many events or instances; None for the usual number.

    The other fields belong to subjects that name them in SubjectFacts.keys. None stands for a default.

    memory, working_set: in bytes.
    dirty_rate, bandwidth: in bytes per second; a dirty rate of 0 has no limit.
    downtime_limit: in seconds, for methods that copy in rounds and for AUTO.
    time_limit: in seconds, for moves of guests and for copies of images.
    """

    event: ClassVar[bool] = True

    name: str
    facts: SubjectFacts = field(metadata=key(_SUBJECT, "", "start", name="subject"))
    methods: tuple[Method, ...] = key_or(
        (),
        ListOf(one_of(Method)),
        "checkpoint, migrate: methods to compare with each other: every environment that runs the workload"
        " becomes one for each method that it can, such as qemu-precopy; the first takes its place as"
        " baseline; method in matrix means the same",
        ["offline", "precopy", "postcopy"],
        optional=True,
    )
    count: int | None = key_or(
        None,
        COUNT,
        "how often in each round, as many times as slices (in mode plain: runs) if omitted;"
        " density: how many idle instances, 10 if omitted",
        20,
    )
    method: Method | None = key_or(
        None,
        one_of(Method),
        "how an instance is written to files (checkpoint: criu if omitted) or moved (migrate: precopy,"
        " or criu where there is no precopy, if omitted); auto chooses for downtime_limit",
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
    ranks: int | None = key_or(None, whole(2, 64), "of the job: 3 for of: rank, 2 for of: job if omitted", 4)
    memory: int | None = key_or(
        None,
        SIZE,
        "checkpoint, migrate: what is moved: memory of a process, 64 MiB if omitted; of a guest,"
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
        None, SIZE, "checkpoint, migrate: what load dirty writes to; 16 MiB if omitted", "100 MiB"
    )
    dirty_rate: float | None = key_or(
        None,
        quantity(Dimension.RATE, 0, 2**60),
        "checkpoint, migrate: 4 KiB for each page that load dirty writes to; 0 B/s: as fast as it can;"
        " 16 MiB/s if omitted",
        "64 MiB/s",
    )
    bandwidth: float | None = key_or(
        None,
        quantity(Dimension.RATE, 1e3, 2**60),
        "migrate: the most that a move of a guest may use; no limit if omitted",
        "128 MiB/s",
    )
    downtime_limit: float | None = key_or(
        None,
        quantity(Dimension.TIME, 1e-3, 2000),
        "migrate: most downtime, for auto and, of a guest, for precopy and multifd; 300 ms if omitted",
        "100 ms",
    )
    time_limit: float | None = key_or(
        None,
        quantity(Dimension.TIME, 1, 86400),
        "checkpoint, migrate: most time of a move of a guest, and of a copy of images; 1 min if omitted",
        "10 min",
    )

    @property
    def mpi(self) -> bool:
        return self.extent is Extent.JOB

    @property
    def subject(self) -> str:
        return self.facts.name

    @property
    def floor_group(self) -> str:
        return self.facts.floor_group or self.facts.name

    @property
    def ran(self) -> str:
        return self.facts.name

    @property
    def quantiles(self) -> frozenset[str]:
        return self.facts.quantiles

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the keys that the study sets, except those that every subject has."""
        own = (f.name for f, _ in keys_of(type(self)) if f.name not in ("facts", "methods", "count"))
        return tuple(name for name in own if vars(self)[name] is not None)

    @property
    def dirtied(self) -> tuple[int, int]:
        """Size in bytes of the memory that the program writes to repeatedly, and the rate in bytes of pages
        per second; a rate of 0 means as fast as possible."""
        size = WORKING_SET if self.working_set is None else self.working_set
        rate = DIRTY_RATE if self.dirty_rate is None else self.dirty_rate
        return size, ceil(IDLE_RATE if self.load is Load.IDLE else rate)

    @property
    def most_downtime(self) -> float:
        return DOWNTIME_LIMIT if self.downtime_limit is None else self.downtime_limit

    @property
    def longest(self) -> float:
        """Seconds after which a move of a guest, or a copy of images, is given up."""
        return TIME_LIMIT if self.time_limit is None else self.time_limit

    @property
    def extent(self) -> Extent:
        """The processes that the event covers; Extent.INSTANCE by default."""
        return self.of or Extent.INSTANCE

    @property
    def job_ranks(self) -> int:
        """Number of ranks of the job, of which one rank or all are moved; 1 if there is no job."""
        return USUAL_RANKS.get(self.extent, 1) if self.ranks is None else self.ranks

    @property
    def misfit(self) -> tuple[str, str] | None:
        """The first key whose value contradicts that of another key, and the contradiction as text; None if
        there is none."""
        if self.working_set is not None and self.memory is not None and self.working_set > self.memory:
            return "working_set", "is larger than memory"
        if self.ranks is not None and self.extent is Extent.INSTANCE:
            return "ranks", "belongs to of: rank, or of: job"
        if self.method is Method.DMTCP and self.extent is not Extent.JOB:
            return "method", "dmtcp writes whole MPI jobs only; of: job"
        if self.load is Load.IDLE:
            own = [name for name in ("working_set", "dirty_rate") if name in self.given]
            return next(((name, "belongs to load: dirty") for name in own), None)
        return None

    def by(self, method: Method | None) -> Self:
        """Return the workload with the method of an environment; unchanged if it has a method of its own or
        its subject has no methods."""
        own = self.method is not None or "method" not in self.facts.keys
        return self if own else replace(self, method=method)

    def processes(self, ranks: int) -> int:
        """Return 0, since it starts no processes of its own."""
        return 0

    def count_in(self, design: Design) -> int:
        """Return how many events or instances there are in a block."""
        if self.count is not None:
            return self.count
        if self.facts.usual is not None:
            return self.facts.usual
        return (design.slices or USUAL_EVENTS) if design.mode is Mode.SLICES else design.runs
