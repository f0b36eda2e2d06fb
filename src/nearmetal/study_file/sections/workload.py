"""The sections of all workloads except users' own programs: kernels, applications, NAS benchmarks, and events
of the instances."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, Pages
from ..fields import BenchmarkWord, Name, Number, PagesWord, SizeWord, SomeText, SubjectWord
from .base import Section
from .program import Environ, TimeLimit

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

    subject: SubjectWord = Field(
        description="start: from the request to the first instruction in the last instance; stop: from the"
        " request to the end of the first process of the last one; exec: from the request to the first"
        " instruction of a command in a running instance; density: how long idle instances take to start"
        " all at once, and the memory of each",
        examples=["start"],
    )
    count: Number | None = Field(
        EventSubject.count,
        description="how often in each round, as many times as slices (in mode plain: runs) if omitted;"
        " density: how many idle instances, 10 if omitted",
        examples=[20],
    )
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"count": [1, 10, 100]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("row of values, lists of equal length"), examples=[{"count": [1, 10]}]
    )
