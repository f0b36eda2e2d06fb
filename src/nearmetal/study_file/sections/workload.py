"""The sections of workloads: a kernel, a command, NAS benchmarks, an event of the instances."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from ...model.study import (
    IDLE,
    RANKS,
    STORAGE,
    ApplicationWorkload,
    CommandWorkload,
    EventSubject,
    MetricSpec,
    Pages,
)
from ...units import Dimension, exact
from ..fields import (
    BenchmarkWord,
    BetterWord,
    EnvKey,
    EventWord,
    JsonPath,
    Name,
    Number,
    PagesWord,
    Scale,
    Seconds,
    SizeWord,
    SomeText,
    Text,
    Truth,
)
from .base import Section

TimeLimit = Annotated[
    Seconds,
    Field(
        description="a run longer than this is ended and counts as failed",
        examples=["10 min"],
        json_schema_extra={"default": exact(CommandWorkload.time_limit, Dimension.TIME)},
    ),
]

_SWEEP = "one workload for every {}, named after its values: cg-S, cg-W"


class KernelSection(Section):
    """One of nearmetal's own kernels; its parameters stand beside these keys."""

    model_config = ConfigDict(extra="allow")

    kernel: Name = Field(description="which kernel", examples=["stream", "cg"])
    pages: PagesWord = Field(
        Pages.HUGE, description="page size asked for by madvise: huge, or 4k", examples=["4k"]
    )
    metrics: list[Name] | None = Field(
        None, min_length=1, description="metrics to keep; all if omitted", examples=[["triad"]]
    )
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"class": ["S", "W"]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None,
        description=_SWEEP.format("row of values, lists of equal length"),
        examples=[{"class": ["S", "W"], "iterations": [15, 5]}],
    )


class ApplicationSection(Section):
    """A program of a package, or by your path; its parameters stand beside these keys."""

    model_config = ConfigDict(extra="allow")

    application: Name = Field(description="which application", examples=["hpcc", "lammps"])
    time_limit: TimeLimit = ApplicationWorkload.time_limit
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"block": ["4 KiB", "1 MiB"]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None,
        description=_SWEEP.format("row of values, lists of equal length"),
        examples=[{"n": [1000, 2000]}],
    )


class MetricSection(Section):
    regex: SomeText | None = Field(
        None,
        description="regular expression (Python's) with one group: the number; the first match counts",
        examples=[r"Loop time of ([\d.]+)"],
    )
    json_path: JsonPath | None = Field(
        None, description="dotted path of the number in JSON output", examples=["jobs.0.read.bw"]
    )
    unit: SomeText = Field(
        description="unit of the number; s, B, B/s, op/s and FLOP/s are scaled when shown",
        examples=["s"],
    )
    scale: Scale = Field(
        MetricSpec.scale,
        description="what the printed number is multiplied by to be in that unit: 1e6 for Mop/s in op/s",
        examples=[1_000_000],
        json_schema_extra={"default": 1},
    )
    better: BetterWord = Field(description="which way it improves", examples=["lower"])


class VerifySection(Section):
    regex: SomeText = Field(
        description="regular expression (Python's) that the output must match; ^ and $ mean lines",
        examples=["^converged after"],
    )
    expected: Text | None = Field(
        None,
        description="what its one group must hold; that it matches is enough if omitted",
        examples=["SUCCESSFUL"],
    )


Environ = Annotated[
    dict[EnvKey, Text],
    Field(description="environment variables", examples=[{"OMP_NUM_THREADS": "1"}]),
]


class CommandSection(Section):
    """A program of your own."""

    command: list[Text] = Field(
        min_length=1,
        description=f"the program and its arguments, one item each; no shell reads them; {RANKS} in them is"
        f" the placement's number of ranks, {STORAGE} the path of its instance's storage",
        examples=[["lmp", "-in", "in.lj"]],
    )
    mpi: Truth = Field(
        CommandWorkload.mpi, description="started by mpirun, one rank per task", examples=[True]
    )
    per_task: Truth = Field(
        CommandWorkload.per_task,
        description="a process for each task without MPI, all begun at one moment: wall is until the last has"
        " ended, instance_wall the median over instances",
        examples=[True],
    )
    env: Environ = Field(default_factory=dict)
    metrics: dict[Name, MetricSection] = Field(
        default_factory=dict,
        description="numbers read from its output, besides the time and memory it takes",
        examples=[{"loop": {"regex": r"Loop time of ([\d.]+)", "unit": "s", "better": "lower"}}],
    )
    verify: VerifySection | None = Field(
        None,
        description="what its output must hold; a run without it counts as failed",
        examples=[{"regex": "^converged after"}],
    )
    time_limit: TimeLimit = CommandWorkload.time_limit


class NpbSection(Section):
    """Which of the binaries."""

    bin: SomeText = Field(
        description="directory of the binaries, seen from where nearmetal is started: cg.A.x, or one for each"
        " number of ranks, as in NPB 3.3 and before: cg.A.2",
        examples=["./NPB3.4-MPI/bin"],
    )
    benchmark: BenchmarkWord = Field(description="which benchmark", examples=["cg"])
    size: SizeWord = Field(alias="class", description="class of the problem", examples=["A"])
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"benchmark": ["cg", "lu"]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None,
        description=_SWEEP.format("row of values, lists of equal length"),
        examples=[{"benchmark": ["cg", "lu"], "class": ["B", "A"]}],
    )


class NpbWorkloadSection(Section):
    """The NAS Parallel Benchmarks as the user built them."""

    npb: NpbSection = Field(
        description="one of the NAS Parallel Benchmarks (MPI) as you built it: rate and seconds as printed;"
        " a run that does not verify itself counts as failed",
        examples=[{"bin": "./NPB3.4-MPI/bin", "benchmark": "cg", "class": "A"}],
    )
    env: Environ = Field(default_factory=dict)
    time_limit: TimeLimit = CommandWorkload.time_limit


class EventSection(Section):
    """An event of the instances themselves."""

    subject: EventWord = Field(
        description="start: from the request to the first instruction in the last instance; stop: from the"
        " request to the end of the first process of the last one; exec: from the request to the first"
        " instruction of a command in a standing instance; density: how long idle instances take to start"
        " all at once, and the memory of each",
        examples=["start"],
    )
    count: Number | None = Field(
        EventSubject.count,
        description="how often in each block, as many times as slices (in mode plain: runs) if omitted;"
        f" density: how many idle instances, {IDLE} if omitted",
        examples=[20],
    )
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"count": [1, 10, 100]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("row of values, lists of equal length"), examples=[{"count": [1, 10]}]
    )
