"""Workloads: kernels, a user's own programs, and events of the instances themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, isqrt
from typing import ClassVar, Self

from ..lifecycle import Method
from ..units import Dimension
from .design import Design, Mode
from .keys import (
    COUNT,
    NAME,
    SECONDS,
    SIZE,
    SOME_TEXT,
    TEXT,
    TRUTH,
    Each,
    Named,
    Pairs,
    key,
    keys_of,
    matching,
    one_of,
    quantity,
    whole,
)
from .metric import MetricSpec
from .program import FILE_NAME, SCRIPT, VerifySpec, interpreter_of


class Pages(StrEnum):
    """Page size that a kernel requests: madvise(MADV_HUGEPAGE), or 4 KiB by MADV_NOHUGEPAGE."""

    HUGE = "huge"
    SMALL = "4k"


class Ranks(StrEnum):
    """The numbers of ranks that a benchmark's definition allows. Each value is its description for users."""

    ANY = "any number of"
    POWERS = "1, 2, 4, 8, ..."
    SQUARES = "1, 4, 9, 16, ..."

    def allow(self, ranks: int) -> bool:
        if self is Ranks.POWERS:
            return ranks & (ranks - 1) == 0
        return self is Ranks.ANY or isqrt(ranks) ** 2 == ranks


#: Starts, stops or commands in a block, if the study does not state a number.
USUAL_EVENTS = 8
#: Replaced by the number of ranks in the arguments of a user's own program.
RANKS = "{ranks}"
#: Replaced by the path of its storage in the arguments of a user's own program.
STORAGE = "{storage}"
#: The environment variable with the same path.
STORAGE_VARIABLE = "NEARMETAL_STORAGE"
#: Replaced by the user and group ID that a program runs as, where it runs.
IDS = "{uid:gid}"


_VARIABLE = matching(
    r"^[A-Za-z_][A-Za-z0-9_]{0,199}$", "the name of an environment variable: letters, digits and _"
)
ENVIRONMENT = key(Pairs(_VARIABLE, TEXT), "environment variables", {"OMP_NUM_THREADS": "1"})
TIME_LIMIT = key(SECONDS, "a run longer than this is ended and counts as failed", "10 min", always=True)


KERNELS, PROGRAMS = "kernels", "programs"
"""Names of the subjects that measure kernels and programs. A study file does not name them; the
kind of workload determines them."""


class _Workload:
    """Defaults that hold for most workloads. Subclasses override them where they differ.

    sliced: timed in slices.
    program: run from start to end, and timed as a whole.
    event: measures events of the instances themselves.
    """

    sliced: ClassVar[bool] = False
    program: ClassVar[bool] = False
    event: ClassVar[bool] = False

    @property
    def subject(self) -> str:
        """The name of the subject that measures it: an entry point of the group nearmetal.subjects."""
        return PROGRAMS

    @property
    def ran(self) -> str:
        """The name of the kernel, application or event; '' for a user's own program."""
        return ""

    @property
    def quantiles(self) -> frozenset[str]:
        """The metrics for which quantiles are shown."""
        return frozenset()

    def processes(self, ranks: int) -> int:
        """Return the number of processes that the workload starts on this many ranks."""
        return ranks

    def limited_to(self, seconds: float) -> Self:
        """Return the workload with this time limit for each run; unchanged if it has no time limit."""
        del seconds
        return self


@dataclass(frozen=True, kw_only=True)
class KernelWorkload(_Workload):
    """One of the built-in kernels.

    params: the kernel's own keys (class, elements, bytes, ...).
    metrics: the metrics to keep; empty for all.
    """

    sliced: ClassVar[bool] = True

    name: str
    kernel: str = field(metadata=key(NAME, "which kernel", "stream", "cg"))
    params: Mapping[str, str | int | float]
    pages: Pages = field(
        default=Pages.HUGE,
        metadata=key(one_of(Pages), "page size asked for by madvise: huge, or 4k", "4k", always=True),
    )
    metrics: tuple[str, ...] = field(
        default=(), metadata=key(Each(NAME, least=1), "metrics to keep; all if omitted", ["triad"])
    )

    @property
    def mpi(self) -> bool:
        """Whether mpirun starts it."""
        return True

    @property
    def own_directory(self) -> bool:
        """Whether it runs in a directory of its own."""
        return False

    @property
    def subject(self) -> str:
        """The name of the subject that measures it."""
        return KERNELS

    @property
    def ran(self) -> str:
        """The name of the kernel that it runs."""
        return self.kernel


@dataclass(frozen=True, kw_only=True)
class CommandWorkload(_Workload):
    """A user's own program.

    argv: command line, without a shell; empty if there is a script instead.
    script: text of a script, with its interpreter on its first line.
    mpi: whether mpirun starts it, with one rank per task.
    per_task: whether one process is started for each task, without MPI. All start at the same moment.
    files: files copied into its directory before each run, by path on the machine -> name there.
    verify: checks of its output; None if every successful run counts.
    exit_codes: exit statuses of a successful run.
    time_limit: time limit of each run, in seconds.
    """

    program: ClassVar[bool] = True

    name: str
    argv: tuple[str, ...] = field(
        default=(),
        metadata=key(
            Each(TEXT, least=1),
            f"the program and its arguments, one item each; no shell reads them; {RANKS} in them is"
            f" the placement's number of ranks, {STORAGE} the path of its instance's storage, {IDS} who runs"
            " it there",
            ["lmp", "-in", "in.lj"],
            name="command",
        ),
    )
    script: str | None = field(
        default=None,
        metadata=key(
            TEXT,
            "instead of a command: a text that the interpreter on its first line runs",
            "#!/bin/sh\ngzip -k input.txt\n",
        ),
    )
    files: Mapping[str, str] = field(
        default_factory=dict,
        metadata=key(
            Pairs(SOME_TEXT, FILE_NAME),
            "files and directories of the machine, copied before each run into the directory that it"
            " then runs in, and their names there",
            {"./data/large.txt": "input.txt"},
        ),
    )
    mpi: bool = field(
        default=False,
        metadata=key(TRUTH, "started by mpirun, one rank per task", True, always=True),
    )
    per_task: bool = field(
        default=False,
        metadata=key(
            TRUTH,
            "a process for each task without MPI, all begun at one moment: wall is until the last has"
            " ended, instance_wall the median over instances",
            True,
        ),
    )
    env: Mapping[str, str] = field(default_factory=dict, metadata=ENVIRONMENT)
    metrics: tuple[MetricSpec, ...] = field(
        default=(),
        metadata=key(
            Named(MetricSpec),
            "numbers read from its output, besides the time and memory it takes",
            {"loop": {"regex": r"Loop time of ([\d.]+)", "unit": "s", "better": "lower"}},
        ),
    )
    verify: VerifySpec | None = field(
        default=None,
        metadata=key(
            VerifySpec,
            "what its output must hold; a run without it counts as failed",
            {"regex": "^converged after"},
        ),
    )
    exit_codes: tuple[int, ...] = field(
        default=(0,),
        metadata=key(Each(whole(0, 255), least=1), "exit codes of a run that ended well", [0, 3]),
    )
    time_limit: float = field(default=3600.0, metadata=TIME_LIMIT)

    def argv_on(self, ranks: int) -> tuple[str, ...]:
        """Return the command line of a launch on this many ranks. Each RANKS in it is replaced by the
        number."""
        if self.script is not None:
            return (*(interpreter_of(self.script) or ()), f"./{SCRIPT}")
        return tuple(token.replace(RANKS, str(ranks)) for token in self.argv)

    @property
    def storage_name(self) -> str:
        """The name by which the program's arguments or script refer to the storage: STORAGE or
        STORAGE_VARIABLE.

        Empty if they do not refer to it.
        """
        words = self.argv if self.script is None else (self.script,)
        marks = (STORAGE, STORAGE_VARIABLE) if self.script is None else (STORAGE_VARIABLE,)
        return next((mark for mark in marks if any(mark in word for word in words)), "")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files that the program writes and nearmetal reads."""
        named = [m.file for m in self.metrics] + ([self.verify.file] if self.verify is not None else [])
        return tuple(dict.fromkeys(n for n in named if n is not None))

    @property
    def own_directory(self) -> bool:
        """Whether each run has a new, empty working directory instead of the directory where nearmetal was
        started."""
        return bool(self.script is not None or self.files or self.outputs)

    def processes(self, ranks: int) -> int:
        """Return the number of processes that the program starts on this many ranks."""
        return ranks if self.mpi or self.per_task else 1

    def limited_to(self, seconds: float) -> Self:
        """Return the workload with this time limit for each run."""
        return replace(self, time_limit=seconds)


@dataclass(frozen=True, kw_only=True)
class ApplicationWorkload(_Workload):
    """A program from a package, or at a path of the user. nearmetal can write its input and read its output.

    application: name of an entry point.
    params: the application's own keys, in base units.
    time_limit: time limit of each run, in seconds.
    """

    program: ClassVar[bool] = True

    name: str
    application: str = field(metadata=key(NAME, "which application", "hpcc", "lammps"))
    params: Mapping[str, str | int | float] = field(default_factory=dict)
    time_limit: float = field(default=3600.0, metadata=TIME_LIMIT)

    @property
    def mpi(self) -> bool:
        """Whether mpirun may start it."""
        return True

    @property
    def own_directory(self) -> bool:
        """Whether it runs in a directory of its own."""
        return True

    @property
    def ran(self) -> str:
        """The name of the application that it runs."""
        return self.application

    def limited_to(self, seconds: float) -> Self:
        """Return the workload with this time limit for each run."""
        return replace(self, time_limit=seconds)


class Load(StrEnum):
    """What a program does in an instance while the instance is moved: hardly anything, or writes to memory.
    The program verifies its memory afterwards in both cases."""

    IDLE = "idle"
    DIRTY = "dirty"


WORKING_SET, DIRTY_RATE = 16 << 20, float(16 << 20)
"""Defaults of the load DIRTY: bytes, and bytes of pages per second."""
DOWNTIME_LIMIT = 0.3
"""Default, in seconds."""
IDLE_RATE = 1.0
"""Bytes of pages per second that a program with the load IDLE writes: hardly a page."""
LIFECYCLE_KEYS = frozenset({"method", "memory", "load", "working_set", "dirty_rate"})
"""Keys of a subject that writes instances to files and restores them."""
MOVING_KEYS = LIFECYCLE_KEYS | {"bandwidth", "downtime_limit"}
"""Keys of a subject that moves instances."""


@dataclass(frozen=True, kw_only=True)
class SubjectFacts:
    """Declarations of a subject that measures events of instances; see subjects.contract.

    name: name in study files. It is also the subject's group in the noise floor.
    metrics: names of its metrics.
    quantiles: the metrics for which quantiles are shown.
    usual: default number of events or instances in a block. None: the number of slices of a kernel or, in
        plain trials, the number of runs of a program.
    keys: names of the keys that its workloads may have in addition to `count`.
    """

    name: str
    metrics: tuple[str, ...]
    quantiles: frozenset[str] = frozenset()
    usual: int | None = None
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class EventSubject(_Workload):
    """Events of the instances themselves, measured by a subject.

    facts: facts of the subject.
    count: how many events or instances; None for the usual number.

    The other fields belong to subjects that name them in SubjectFacts.keys. None stands for a default.

    method: how instances are written to files or moved.
    memory: bytes of a process that is moved; of a guest, instead of its own setting.
    load: what a program in the instance does meanwhile.
    working_set, dirty_rate: of the load DIRTY, in bytes and bytes per second; a rate of 0 has no limit.
    bandwidth: most bytes per second of a move.
    downtime_limit: most seconds of downtime, for methods that copy in rounds and for AUTO.
    """

    event: ClassVar[bool] = True

    name: str
    facts: SubjectFacts
    count: int | None = field(
        default=None,
        metadata=key(
            COUNT,
            "how often in each round, as many times as slices (in mode plain: runs) if omitted;"
            " density: how many idle instances, 10 if omitted",
            20,
        ),
    )
    method: Method | None = field(
        default=None,
        metadata=key(
            one_of(Method),
            "how an instance is written to files (checkpoint: criu if omitted) or moved (migrate: precopy,"
            " or criu where there is no precopy, if omitted); auto chooses for downtime_limit",
            "postcopy",
        ),
    )
    memory: int | None = field(
        default=None,
        metadata=key(
            SIZE,
            "checkpoint, migrate: what is moved: memory of a process, 64 MiB if omitted; of a guest,"
            " instead of guest: memory",
            "256 MiB",
        ),
    )
    load: Load | None = field(
        default=None,
        metadata=key(
            one_of(Load),
            "checkpoint, migrate: what a program in the instance does meanwhile: dirty, writes to memory, if"
            " omitted; idle",
            "idle",
        ),
    )
    working_set: int | None = field(
        default=None,
        metadata=key(SIZE, "checkpoint, migrate: what load dirty writes to; 16 MiB if omitted", "100 MiB"),
    )
    dirty_rate: float | None = field(
        default=None,
        metadata=key(
            quantity(Dimension.RATE, 0, 2**60),
            "checkpoint, migrate: 4 KiB for each page that load dirty writes to; 0 B/s: as fast as it can;"
            " 16 MiB/s if omitted",
            "64 MiB/s",
        ),
    )
    bandwidth: float | None = field(
        default=None,
        metadata=key(
            quantity(Dimension.RATE, 1e3, 2**60),
            "migrate: the most that a move of a guest may use; no limit if omitted",
            "128 MiB/s",
        ),
    )
    downtime_limit: float | None = field(
        default=None,
        metadata=key(
            quantity(Dimension.TIME, 1e-3, 2000),
            "migrate: most downtime of a guest, for precopy, multifd and auto; 300 ms if omitted",
            "100 ms",
        ),
    )

    @property
    def mpi(self) -> bool:
        """Whether mpirun starts it."""
        return False

    @property
    def own_directory(self) -> bool:
        """Whether it runs in a directory of its own."""
        return False

    @property
    def subject(self) -> str:
        """The name of the subject that measures it."""
        return self.facts.name

    @property
    def ran(self) -> str:
        """The name of the event."""
        return self.facts.name

    @property
    def quantiles(self) -> frozenset[str]:
        """The metrics for which quantiles are shown."""
        return self.facts.quantiles

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the keys that have a value, without `count`."""
        return tuple(
            f.name for f, _ in keys_of(type(self)) if f.name != "count" and vars(self)[f.name] is not None
        )

    @property
    def dirtied(self) -> tuple[int, int]:
        """Bytes that the program writes to again and again, and bytes of pages per second; 0 stands for as
        fast as it can."""
        size = WORKING_SET if self.working_set is None else self.working_set
        rate = DIRTY_RATE if self.dirty_rate is None else self.dirty_rate
        return size, ceil(IDLE_RATE if self.load is Load.IDLE else rate)

    @property
    def most_downtime(self) -> float:
        """Most seconds of downtime."""
        return DOWNTIME_LIMIT if self.downtime_limit is None else self.downtime_limit

    @property
    def misfit(self) -> tuple[str, str] | None:
        """The first key whose value contradicts another, and how; None if there is none."""
        if self.working_set is not None and self.memory is not None and self.working_set > self.memory:
            return "working_set", "is larger than memory"
        if self.load is Load.IDLE:
            own = [name for name in ("working_set", "dirty_rate") if name in self.given]
            return next(((name, "belongs to load: dirty") for name in own), None)
        return None

    def by(self, method: Method | None) -> Self:
        """Return the workload with the method of an environment, unless it has its own or can have none."""
        own = self.method is not None or "method" not in self.facts.keys
        return self if own else replace(self, method=method)

    def processes(self, ranks: int) -> int:
        """Return 0, since it starts no processes of its own."""
        del ranks
        return 0

    def count_in(self, design: Design) -> int:
        """Return how many events or instances there are in a block."""
        if self.count is not None:
            return self.count
        if self.facts.usual is not None:
            return self.facts.usual
        return (design.slices or USUAL_EVENTS) if design.mode is Mode.SLICES else design.runs


Workload = KernelWorkload | ApplicationWorkload | CommandWorkload | EventSubject


def quantiles_of(workloads: Iterable[Workload]) -> dict[str, frozenset[str]]:
    """Return the metrics for which quantiles are shown, by workload that has any."""
    return {w.name: w.quantiles for w in workloads if w.quantiles}
