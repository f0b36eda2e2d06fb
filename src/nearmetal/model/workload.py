"""Workloads: kernels, a user's own programs, and events of the instances themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Self

from ..lifecycle import Method
from .design import Design, Mode
from .keys import (
    COUNT,
    NAME,
    SECONDS,
    SOME_TEXT,
    TEXT,
    TRUTH,
    Each,
    Kind,
    Named,
    Pairs,
    beside,
    factor,
    key,
    matching,
    one_of,
    whole,
)
from .program import ANYWHERE, FILE_NAME, SCRIPT, Bounds, Reference, interpreter_of


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Pages(StrEnum):
    """Page size that a kernel requests: madvise(MADV_HUGEPAGE), or 4 KiB by MADV_NOHUGEPAGE."""

    HUGE = "huge"
    SMALL = "4k"


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


LEAST_SCALE, MOST_SCALE = 1e-30, 1e30
"""A factor beyond these limits is a typing mistake."""
_SCALE = Kind(
    lambda value: factor(value, LEAST_SCALE, MOST_SCALE),
    {"type": "number", "minimum": LEAST_SCALE, "maximum": MOST_SCALE},
    repr,
)
_JSON_PATH = matching(r"^[^.\s]+(\.[^.\s]+)*$", "a dotted path such as results.0.seconds", numbers=True)
_VARIABLE = matching(
    r"^[A-Za-z_][A-Za-z0-9_]{0,199}$", "the name of an environment variable: letters, digits and _"
)
ENVIRONMENT = key(Pairs(_VARIABLE, TEXT), "environment variables", {"OMP_NUM_THREADS": "1"})
TIME_LIMIT = key(SECONDS, "a run longer than this is ended and counts as failed", "10 min", always=True)


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric of a user's own program: where its value is in the output, its unit, and its direction.

    Exactly one of regex and json_path is set.
    regex: expression with one group.
    json_path: keys separated by dots.
    file: name of the output file; None for the standard output.
    scale: factor that converts the number to the unit.
    bounds: the run is wrong if the value, in the unit, is outside these bounds.
    """

    name: str
    regex: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT,
            "regular expression (Python's) with one group: the number; the first match counts",
            r"Loop time of ([\d.]+)",
        ),
    )
    json_path: str | None = field(
        default=None,
        metadata=key(_JSON_PATH, "dotted path of the number in JSON output", "jobs.0.read.bw"),
    )
    file: str | None = field(
        default=None,
        metadata=key(
            FILE_NAME,
            "a file that it writes, with the number; its standard output if omitted",
            "log.lammps",
        ),
    )
    unit: str = field(
        metadata=key(SOME_TEXT, "unit of the number; s, B, B/s, op/s and FLOP/s are scaled when shown", "s")
    )
    scale: float = field(
        default=1.0,
        metadata=key(
            _SCALE,
            "what the printed number is multiplied by to be in that unit: 1e6 for Mop/s in op/s",
            1_000_000,
            usual=1,
        ),
    )
    better: Better = field(metadata=key(one_of(Better), "which way it improves", "lower"))
    bounds: Bounds = field(default=ANYWHERE, metadata=beside(Bounds))


@dataclass(frozen=True, kw_only=True)
class VerifySpec:
    """What the output of a user's own program must contain for its run to count. regex, reference or both are
    set.

    file: name of the output file that is checked; None for the standard output.
    regex: searched in it; ^ and $ match at line ends.
    expected: what its one group must match.
    bounds: bounds of the number in its group; without expected and bounds, a match is enough.
    reference: what the output must equal.
    """

    file: str | None = field(
        default=None,
        metadata=key(
            FILE_NAME,
            "a file that it writes, which is looked at; its standard output if omitted",
            "result.txt",
        ),
    )
    regex: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT,
            "regular expression (Python's) that the output must match; ^ and $ mean lines",
            "^converged after",
        ),
    )
    expected: str | None = field(
        default=None,
        metadata=key(
            TEXT, "what its one group must hold; that it matches is enough if omitted", "SUCCESSFUL"
        ),
    )
    bounds: Bounds = field(default=ANYWHERE, metadata=beside(Bounds))
    reference: Reference | None = field(default=None, metadata=beside(Reference))


class _Workload:
    """What holds for most workloads. The classes of workloads state where they differ.

    sliced: timed in slices.
    program: run from start to end, and timed as a whole.
    event: measures events of the instances themselves.
    """

    sliced: ClassVar[bool] = False
    program: ClassVar[bool] = False
    event: ClassVar[bool] = False

    @property
    def ran(self) -> str:
        """The name of the kernel or application that it runs; '' if it runs neither."""
        return ""

    @property
    def quantiles(self) -> frozenset[str]:
        """The metrics for which quantiles are shown."""
        return frozenset()

    def processes(self, ranks: int) -> int:
        """Return how many processes it starts on this many ranks."""
        return ranks

    def limited_to(self, seconds: float) -> Self:
        """Return it with this time limit for each run; unchanged if it has no time limit."""
        del seconds
        return self


@dataclass(frozen=True, kw_only=True)
class KernelWorkload(_Workload):
    """One of the built-in kernels.

    params: the kernel's own keys (class, elements, bytes, ...).
    metrics: the ones to keep; empty for all.
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
    def ran(self) -> str:
        """The name of the kernel that it runs."""
        return self.kernel


@dataclass(frozen=True, kw_only=True)
class CommandWorkload(_Workload):
    """A user's own program.

    argv: command line, without a shell; empty if there is a script instead.
    script: text of a script, with its interpreter on its first line.
    mpi: started by mpirun with one rank per task.
    per_task: one process for each task, without MPI; all start at the same moment.
    files: copied into its directory before each run, by path on the machine -> name there.
    verify: None if every successful run counts.
    exit_codes: exit statuses of a successful run.
    time_limit: seconds.
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
        """Return the command line of a launch on this many ranks. RANKS in it is replaced by that number;
        nothing else changes."""
        if self.script is not None:
            return (*(interpreter_of(self.script) or ()), f"./{SCRIPT}")
        return tuple(token.replace(RANKS, str(ranks)) for token in self.argv)

    @property
    def told_of_storage(self) -> str:
        """The name (STORAGE or STORAGE_VARIABLE) by which the program's arguments or script refer to storage;
        '' if they do not."""
        words = self.argv if self.script is None else (self.script,)
        marks = (STORAGE, STORAGE_VARIABLE) if self.script is None else (STORAGE_VARIABLE,)
        return next((mark for mark in marks if any(mark in word for word in words)), "")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Files that it writes and nearmetal reads."""
        named = [m.file for m in self.metrics] + ([self.verify.file] if self.verify is not None else [])
        return tuple(dict.fromkeys(n for n in named if n is not None))

    @property
    def own_directory(self) -> bool:
        """Whether it runs in a directory of its own, fresh each time, instead of where nearmetal was
        started."""
        return bool(self.script is not None or self.files or self.outputs)

    def processes(self, ranks: int) -> int:
        """Return how many processes it starts on this many ranks."""
        return ranks if self.mpi or self.per_task else 1

    def limited_to(self, seconds: float) -> Self:
        """Return it with this time limit for each run."""
        return replace(self, time_limit=seconds)


@dataclass(frozen=True, kw_only=True)
class ApplicationWorkload(_Workload):
    """A program of a package, or at the user's path, for which nearmetal can write the input and read the
    output.

    application: name of an entry point.
    params: its own keys, in base units.
    time_limit: seconds.
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
        """Return it with this time limit for each run."""
        return replace(self, time_limit=seconds)


@dataclass(frozen=True, kw_only=True)
class SubjectFacts:
    """What a subject that measures events of instances declares about itself; see subjects.contract.

    name: name in study files. It is also its group in the noise floor.
    metrics: names of what it measures.
    quantiles: the metrics for which quantiles are shown.
    usual: events or instances in a block if the study does not say. None: as many as a kernel has slices, or
        in plain trials as many as a program has runs.
    moves: whether it moves instances, by the method of the workload.
    """

    name: str
    metrics: tuple[str, ...]
    quantiles: frozenset[str] = frozenset()
    usual: int | None = None
    moves: bool = False


@dataclass(frozen=True, kw_only=True)
class EventSubject(_Workload):
    """Events of the instances themselves, measured by a subject.

    facts: facts of the subject.
    count: how many events or instances; None for the usual number.
    method: how instances are moved; only of a subject that moves them. None for precopy.
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
            one_of(Method), "subject migrate: how an instance is moved; precopy if omitted", "postcopy"
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
    def quantiles(self) -> frozenset[str]:
        """The metrics for which quantiles are shown."""
        return self.facts.quantiles

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
