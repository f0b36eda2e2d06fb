"""The contract of an application: a program from a package, or by the user's own path, with its input, its
parser and its verification in one file, found by the entry-point group 'nearmetal.workloads'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...model.record import JsonValue
from ...model.study import Better
from ..parameter import Choices, Parameter


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an application is to run, alike for every arm of as many instances and tasks.

    directory: its working directory, on the machine's own disk and at the same path in every instance, empty
    but for staged files; storage: of the first instance, for an application that
    Needs it, else None (in argv `{storage}` stands for that of each rank); memory: bytes each instance may
    use: for each of its tasks the least that any arm gives a task; cpu_flags: of the machine's processors, as
    in /proc/cpuinfo, empty where it names none; rdma: names of its RDMA devices.
    """

    nodes: int
    instances: int
    tasks: int
    directory: Path
    storage: Path | None
    memory: int
    cpu_flags: frozenset[str] = frozenset()
    rdma: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        return self.nodes * self.instances * self.tasks


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One launch of an application.

    argv: tokens, no shell.
    own: whether its first word names one of our own programs, which are built with the kernels.
    mpi: whether mpirun starts it, one rank for each task; else it is one process in the first instance on all
        its CPUs.
    env: variables beside those of the tool.
    files: texts by name that are put into the directory first.
    copies: files and directories of the machine, names by path, that are put there first.
    fresh: whether the directory is emptied before.
    outputs: names of files in it that are read afterwards; a missing one is left out.
    """

    argv: tuple[str, ...]
    own: bool = False
    mpi: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a launch left.

    stdout, stderr: decoded with replacement, at most workloads.program_output.SEARCHED characters.
    files: of Invocation.outputs, by name, alike.
    """

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One value that an application gave.

    unit: a base unit.
    value: in it; None with a reason where the output does not give it (the trial's row fails, the others
        stand).
    """

    name: str
    unit: str
    better: Better
    value: float | None
    reason: str = ""


def metrics_of(
    named: Iterable[tuple[str, str, Better]],
    values: Mapping[str, float | None],
    missing: Callable[[str], str],
) -> tuple[Metric, ...]:
    """named: (name, unit, better) of each; values: by name; missing: why a metric of that name has none."""
    return tuple(
        Metric(
            name=name,
            unit=unit,
            better=better,
            value=values[name],
            reason="" if values[name] is not None else missing(name),
        )
        for name, unit, better in named
    )


def parts_of(kinds: Iterable[tuple[str, str]], values: Mapping[str, float | None]) -> dict[str, float]:
    """Seconds by kind, summed over the names that have one. kinds: (name, kind or '')."""
    parts: dict[str, float] = {}
    for name, kind in kinds:
        if kind and (value := values[name]) is not None:
            parts[kind] = parts.get(kind, 0.0) + value
    return parts


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What parse() reads. verification: as the program or we checked its result, None where nothing can be
    checked; parts: seconds of the wall time by kind ('compute', 'comm', 'io', ...), empty where not told;
    facts: what stands in the record besides (BLAS, grid, N, version)."""

    metrics: tuple[Metric, ...]
    ok: bool | None = None
    expected: str = ""
    found: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What must be there, on the host or in an image's tree.

    programs: names looked for on PATH, or absolute paths.
    packages: Debian's, whose installation mends a missing one.
    probe: a command that ends with 0 where `probed` is there, of which no file tells, looked for on the host
        alone.
    remedy: what mends it where no package of Debian does.
    storage: its environments must have storage (`storage:` in the study file; overlay where a command line
        names none).
    """

    programs: tuple[str, ...]
    packages: tuple[str, ...] = ()
    probe: tuple[str, ...] = ()
    probed: str = ""
    remedy: str = ""
    storage: bool = False


class Application(Protocol):
    """What an application is to the tool. All of it is pure: nothing here touches the machine.

    name: as in the study file (`application: lammps`).
    parameters: its keys; wall, user, system and max_rss are measured of every launch besides.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]

    def needs(self, choices: Choices) -> Needs: ...

    def problem(self, choices: Choices, place: Place) -> str | None:
        """Why it does not run on this placement with these keys, or None: told before anything starts."""

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        """Run once for each arm and block before what is measured, in the same directory (a database is
        made); empty for most."""

    def command(self, choices: Choices, place: Place) -> Invocation: ...

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        """(name, unit, better) of each metric that parse() gives, in order, whatever the output."""

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        """Never raises for anything a program may print: half, nothing, NaN, binary."""
