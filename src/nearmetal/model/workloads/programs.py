"""Workloads: kernels, a user's own programs, and events of the instances themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from ..environments.environment import STORAGE, STORAGE_VARIABLE
from ..keys import (
    NAME,
    SECONDS,
    SOME_TEXT,
    TEXT,
    TRUTH,
    ListOf,
    Named,
    Pairs,
    key,
    key_made,
    key_or,
    matching,
    whole,
)
from .base import WorkloadBase
from .metric import MetricSpec
from .script import FILE_NAME, SCRIPT, VerifySpec, interpreter_of

RESOURCES = {"wall": "s", "user": "s", "system": "s", "max_rss": "B", "read": "B", "written": "B"}
"""What is measured of every run of a program, with its base unit: the time of the whole run, times of the
CPUs, memory, and bytes of system calls."""
INSTANCE_WALL = "instance_wall"
"""Metric of programs with a process for each task: the time of each instance."""
#: Replaced by the number of ranks in the arguments of a user's own program.
RANKS = "{ranks}"
#: Replaced by the user and group ID that a program runs as, where it runs.
IDS = "{uid:gid}"


_VARIABLE = matching(
    r"^[A-Za-z_][A-Za-z0-9_]{0,199}$", "the name of an environment variable: letters, digits and _"
)
ENVIRONMENT = key(Pairs(_VARIABLE, TEXT), "environment variables", {"OMP_NUM_THREADS": "1"})
TIME_LIMIT = key(SECONDS, "a run longer than this is ended and counts as failed", "10 min", always=True)


@dataclass(frozen=True, kw_only=True)
class CommandWorkload(WorkloadBase):
    """A user's own program.

    argv: the program and its arguments; empty if there is a script instead.
    files: by path on the machine, the name of a copy in the program's working directory.
    verify: checks of the output; None if every run with one of `exit_codes` counts.
    time_limit: in seconds.
    usual_time: seconds of one run on bare metal, for plans only.
    """

    program: ClassVar[bool] = True
    of_user: ClassVar[bool] = True

    name: str
    argv: tuple[str, ...] = key_or(
        (),
        ListOf(TEXT, least=1),
        f"the program and its arguments, one item each; no shell reads them; {RANKS} in them is"
        f" the placement's number of ranks, {STORAGE} the path of its instance's storage, {IDS} who runs"
        " it there",
        ["lmp", "-in", "in.lj"],
        name="command",
    )
    script: str | None = key_or(
        None,
        TEXT,
        "instead of a command: a text that the interpreter on its first line runs",
        "#!/bin/sh\ngzip -k input.txt\n",
    )
    files: Mapping[str, str] = key_made(
        dict,
        Pairs(SOME_TEXT, FILE_NAME),
        "files and directories of the machine, copied before each run into the directory that it"
        " then runs in, and their names there",
        {"./data/large.txt": "input.txt"},
    )
    mpi: bool = key_or(False, TRUTH, "started by mpirun, one rank per task", True, always=True)
    per_task: bool = key_or(
        False,
        TRUTH,
        "a process for each task without MPI, all begun at one moment: wall is until the last has"
        " ended, instance_wall the median over instances",
        True,
    )
    env: Mapping[str, str] = field(default_factory=dict, metadata=ENVIRONMENT)
    metrics: tuple[MetricSpec, ...] = key_or(
        (),
        Named(MetricSpec),
        "numbers read from its output, besides the time and memory it takes",
        {"loop": {"regex": r"Loop time of (\S+)", "unit": "s", "better": "lower"}},
    )
    verify: VerifySpec | None = key_or(
        None,
        VerifySpec,
        "what its output must hold; a run without it counts as failed",
        {"regex": "^converged after"},
    )
    exit_codes: tuple[int, ...] = key_or(
        (0,), ListOf(whole(0, 255), least=1), "exit codes of a run that ended well", [0, 3]
    )
    time_limit: float = field(default=3600.0, metadata=TIME_LIMIT)
    usual_time: float = key_or(
        1.0, SECONDS, "about how long one run takes on bare metal; only plans use it", "10 min"
    )

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
        return bool(self.script is not None or self.files or self.outputs)

    def processes(self, ranks: int) -> int:
        return ranks if self.mpi or self.per_task else 1

    def limited_to(self, seconds: float) -> Self:
        return replace(self, time_limit=seconds)


@dataclass(frozen=True, kw_only=True)
class ApplicationWorkload(WorkloadBase):
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
    def own_directory(self) -> bool:
        return True

    @property
    def ran(self) -> str:
        return self.application

    def limited_to(self, seconds: float) -> Self:
        return replace(self, time_limit=seconds)
