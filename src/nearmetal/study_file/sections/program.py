"""The section of a user's own program: how it is started, which files it gets, and what is read from it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ...model.study import IDS, RANKS, STORAGE, CommandWorkload, MetricSpec
from ...units import Dimension, exact
from ..fields import (
    BetterWord,
    EnvKey,
    ExitStatus,
    FileName,
    JsonPath,
    Name,
    Real,
    Scale,
    Seconds,
    SomeText,
    Text,
    Tolerance,
    Truth,
)
from .base import Section

Environ = Annotated[
    dict[EnvKey, Text],
    Field(description="environment variables", examples=[{"OMP_NUM_THREADS": "1"}]),
]
TimeLimit = Annotated[
    Seconds,
    Field(
        description="a run longer than this is ended and counts as failed",
        examples=["10 min"],
        json_schema_extra={"default": exact(CommandWorkload.time_limit, Dimension.TIME)},
    ),
]


class MetricSection(Section):
    regex: SomeText | None = Field(
        None,
        description="regular expression (Python's) with one group: the number; the first match counts",
        examples=[r"Loop time of ([\d.]+)"],
    )
    json_path: JsonPath | None = Field(
        None, description="dotted path of the number in JSON output", examples=["jobs.0.read.bw"]
    )
    file: FileName | None = Field(
        None,
        description="a file that it writes, with the number; its standard output if omitted",
        examples=["log.lammps"],
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
    min: Real | None = Field(
        None, description="a run with less, in that unit, is wrong and counts as failed", examples=[0.1]
    )
    max: Real | None = Field(
        None, description="a run with more, in that unit, is wrong and counts as failed", examples=[60]
    )


class VerifySection(Section):
    file: FileName | None = Field(
        None,
        description="a file that it writes, which is looked at; its standard output if omitted",
        examples=["result.txt"],
    )
    regex: SomeText | None = Field(
        None,
        description="regular expression (Python's) that the output must match; ^ and $ mean lines",
        examples=["^converged after"],
    )
    expected: Text | None = Field(
        None,
        description="what its one group must hold; that it matches is enough if omitted",
        examples=["SUCCESSFUL"],
    )
    min: Real | None = Field(
        None, description="the least that the number in its one group may be", examples=[-4.7]
    )
    max: Real | None = Field(
        None, description="the most that the number in its one group may be", examples=[1e-6]
    )
    reference: SomeText | None = Field(
        None,
        description="a file of the machine that the output must equal, byte by byte",
        examples=["./expected.txt"],
    )
    tolerance: Tolerance | None = Field(
        None,
        description="numbers may differ from the reference by this share, and white space may",
        examples=[1e-6],
    )
    absolute: Real | None = Field(
        None, description="numbers may differ from the reference by so much", examples=[1e-12]
    )


class CommandSection(Section):
    """A program of your own."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["command"]}, {"required": ["script"]}]}
    )

    command: list[Text] | None = Field(
        None,
        min_length=1,
        description=f"the program and its arguments, one item each; no shell reads them; {RANKS} in them is"
        f" the placement's number of ranks, {STORAGE} the path of its instance's storage, {IDS} who runs it"
        " there",
        examples=[["lmp", "-in", "in.lj"]],
    )
    script: Text | None = Field(
        None,
        description="instead of a command: a text that the interpreter on its first line runs",
        examples=["#!/bin/sh\ngzip -k input.txt\n"],
    )
    files: dict[SomeText, FileName] = Field(
        default_factory=dict,
        description="files and directories of the machine, copied before each run into the directory that it"
        " then runs in, and their names there",
        examples=[{"./data/large.txt": "input.txt"}],
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
    exit_codes: list[ExitStatus] = Field(
        list(CommandWorkload.exit_codes),
        min_length=1,
        description="exit codes of a run that ended well",
        examples=[[0, 3]],
    )
    time_limit: TimeLimit = CommandWorkload.time_limit
