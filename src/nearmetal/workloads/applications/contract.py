"""The interface of applications: a program from a package, or at the user's path, with its input, its parser
and its verification in one file.

Applications are found through the entry-point group 'nearmetal.workloads'.
"""

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
    """The conditions under which an application runs. They are the same for all arms with the same numbers of
    instances and tasks.

    directory: its working directory, on the machine's own disk and at the same path in every instance; empty
        except for staged files.
    storage: storage of the first instance if the application needs it, else None. In argv, `{storage}` is
        replaced by the storage of each rank.
    memory: bytes that each instance may use. Per task, it is the smallest amount that any arm gives to a
        task.
    cpu_flags: flags of the machine's processors, as in /proc/cpuinfo; empty if there are none.
    rdma: names of the machine's RDMA devices.
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

    argv: command line, without a shell.
    own: whether its first word names one of nearmetal's own programs, which are built with the kernels.
    mpi: whether mpirun starts it, one rank for each task; otherwise it is one process in the first instance
        on all its CPUs.
    env: additional environment variables.
    files: contents of files to write into the directory before the launch, by name.
    copies: files and directories of the machine to copy into the directory before the launch; names by path.
    fresh: whether the directory is emptied before the launch.
    outputs: names of files in the directory that are read after the launch; missing ones are ignored.
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
    """The output of a launch.

    stdout, stderr: text, decoded with replacement characters; at most workloads.program_output.SEARCHED
        characters.
    files: contents of the files in Invocation.outputs, by name, decoded in the same way.
    """

    stdout: str
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One value that an application reported.

    unit: a base unit.
    value: in this unit; None with a reason if the output does not contain it. The trial's row then fails;
        other rows are not affected.
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
    """Return the metrics with their values.

    named: (name, unit, better) of each metric.
    values: values by name, in base units; None or missing if a metric has no value.
    missing: returns the reason why a metric, given by name, has no value.
    """
    return tuple(
        Metric(
            name=name,
            unit=unit,
            better=better,
            value=values.get(name),
            reason="" if values.get(name) is not None else missing(name),
        )
        for name, unit, better in named
    )


def parts_of(kinds: Iterable[tuple[str, str]], values: Mapping[str, float | None]) -> dict[str, float]:
    """Return seconds by kind, summed over the names that have a value.

    kinds: (name, kind or '').
    """
    parts: dict[str, float] = {}
    for name, kind in kinds:
        if kind and (value := values[name]) is not None:
            parts[kind] = parts.get(kind, 0.0) + value
    return parts


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The result of parse().

    ok: whether the result is right, as checked by the program or by nearmetal; None if nothing can be
        checked.
    expected, found: the expected and the actual result, as text.
    parts: seconds of the wall time by kind ('compute', 'comm', 'io', ...); empty if not reported.
    facts: further facts for the record (BLAS, grid, N, version).
    """

    metrics: tuple[Metric, ...]
    ok: bool | None = None
    expected: str = ""
    found: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Programs that must be installed, on the host or in an image's tree.

    programs: names searched on PATH, or absolute paths.
    packages: Debian packages that contain them.
    probe: a command that succeeds if `probed` is installed, if this cannot be determined from a file. It is
        run on the host only.
    remedy: what to do if no Debian package contains them.
    storage: whether its environments must have storage (`storage:` in the study file; overlay by default on a
        command line).
    """

    programs: tuple[str, ...]
    packages: tuple[str, ...] = ()
    probe: tuple[str, ...] = ()
    probed: str = ""
    remedy: str = ""
    storage: bool = False


class Application(Protocol):
    """An application. Its methods do no I/O: none uses the machine.

    name: name in the study file (`application: lammps`).
    parameters: its keys. In addition to its metrics, wall, user, system and max_rss are measured for every
        launch.
    of_files: whether its time is that of reading and writing files.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    of_files: bool = False

    def needs(self, choices: Choices) -> Needs: ...

    def problem(self, choices: Choices, place: Place) -> str | None:
        """Return why the application cannot run on this placement with these keys; None if it can.

        Called before anything is started.
        """

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        """Return the estimated seconds of one run on bare metal, for the plan of a study.

        ranks: number of ranks, each on a CPU of its own.
        """
        return 1.0

    def vectorised(self, choices: Choices, ranks: int = 1) -> float:
        """Return those of the estimated seconds that a tuned library spends in vector instructions, which an
        emulator slows down far more than other work."""
        return 0.0

    def messages(self, choices: Choices, ranks: int = 1) -> float:
        """Return those of the estimated seconds in which ranks exchange messages through shared memory."""
        return 0.0

    def waiting(self, choices: Choices) -> float:
        """Return those of the estimated seconds in which it only waits, so that an emulator adds nothing."""
        return 0.0

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        """Return launches that prepare the measurement, for example by making a database. They run once for
        each arm and block, in the same directory. Most applications need none."""
        return ()

    def command(self, choices: Choices, place: Place) -> Invocation: ...

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        """Return (name, unit, better) of each metric that parse() may give, in order."""

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        """Parse the output. Must not raise, whatever the program printed: incomplete output, nothing, NaN, or
        binary data."""
