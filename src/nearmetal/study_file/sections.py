"""The sections of a study file as pydantic models: which keys there are, their types, words and examples.

The one place that knows the keys: validation, JSON Schema and `explain` are all made from it. Imports
pydantic, so it is itself imported only where a file is read. Values arrive as text (see tree.py), lists
and mappings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..model.study import Attachment, Better, CommandWorkload, Design, Environment, Mode, Pages
from ..units import Dimension, UnitError, exact, parse, parse_size, pattern
from .catalog import did_you_mean

#: What file and command line take when nothing is said (METHOD: "One comparison").
MARGIN, CONFIDENCE = 0.03, 0.95
NAME = r"^\w[\w-]{0,199}$"
ENV_KEY = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}|0x[0-9a-fA-F]{1,16}")
_JSON_PATH = r"^[^.\s]+(\.[^.\s]+)*$"


def wrong(what: str) -> PydanticCustomError:
    """A mistake in words of ours. The text is handed over as context, since it may hold braces."""
    return PydanticCustomError("study", "{what}", {"what": what})


def _scalar(value: object) -> str:
    if value is None:
        raise wrong("nothing stands here")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise wrong("one value is wanted here, not a list or keys")


def _text(value: object) -> str:
    return _scalar(value)


def _some_text(value: object) -> str:
    text = _scalar(value)
    if not text.strip():
        raise wrong("an empty text")
    return text


def _matching(expression: str, what: str) -> Callable[[object], str]:
    compiled = re.compile(expression)

    def check(value: object) -> str:
        text = _scalar(value)
        if not compiled.search(text) or text.endswith("\n"):
            raise wrong(f'"{text[:60]}" is not {what}')
        return text

    return check


def _truth(value: object) -> bool:
    text = _scalar(value)
    if text not in ("true", "false"):
        raise wrong(f'"{text[:40]}": write true or false')
    return text == "true"


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        text = _scalar(value).strip()
        if not _WHOLE.fullmatch(text):
            raise wrong(f'"{text[:40]}" is not a whole number')
        number = int(text, 16) if text.startswith("0x") else int(text)
        if not low <= number <= high:
            raise wrong(f"{number} is not between {low} and {high}")
        return number

    return check


def _quantity(dimension: Dimension, low: float, high: float, *, open_ends: bool) -> Callable[[object], float]:
    def check(value: object) -> float:
        text = _scalar(value)
        try:
            number = parse_size(text) if dimension is Dimension.SIZE else parse(text, dimension)
        except UnitError as e:
            raise wrong(str(e)) from e
        inside = low < number < high if open_ends else low <= number <= high
        if not inside:
            raise wrong(f'"{text[:40]}" is not between {exact(low, dimension)} and {exact(high, dimension)}')
        return number

    return check


def _one_of(kind: type[StrEnum]) -> Callable[[object], StrEnum]:
    def check(value: object) -> StrEnum:
        text = _scalar(value)
        words = [str(k) for k in kind]
        if text not in words:
            raise wrong(f'unknown value "{text[:40]}"{did_you_mean(text, words)}')
        return kind(text)

    return check


def _scalar_schema(dimension: Dimension) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern(dimension)})


def _int_schema(low: int, high: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


_ANY_TEXT = {"type": ["string", "number", "boolean"]}
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema(_ANY_TEXT)]
SomeText = Annotated[str, BeforeValidator(_some_text), WithJsonSchema({**_ANY_TEXT, "minLength": 1})]
Name = Annotated[
    str,
    BeforeValidator(_matching(NAME, "a name: letters, digits, - and _, not starting with -")),
    WithJsonSchema({"type": ["string", "integer"], "pattern": NAME}),
]
EnvKey = Annotated[
    str,
    BeforeValidator(_matching(ENV_KEY, "the name of an environment variable: letters, digits and _")),
    WithJsonSchema({"type": "string", "pattern": ENV_KEY}),
]
JsonPath = Annotated[
    str,
    BeforeValidator(_matching(_JSON_PATH, "a dotted path such as results.0.seconds")),
    WithJsonSchema({"type": ["string", "integer"], "pattern": _JSON_PATH}),
]
Truth = Annotated[bool, BeforeValidator(_truth), WithJsonSchema({"type": "boolean"})]
Seed = Annotated[int, BeforeValidator(_whole(0, 2**63 - 1)), _int_schema(0, 2**63 - 1)]
Number = Annotated[int, BeforeValidator(_whole(1, 100_000)), _int_schema(1, 100_000)]
NumberOrNone = Annotated[int, BeforeValidator(_whole(0, 100_000)), _int_schema(0, 100_000)]
Cpu = Annotated[int, BeforeValidator(_whole(0, 65_535)), _int_schema(0, 65_535)]
Seconds = Annotated[
    float,
    BeforeValidator(_quantity(Dimension.TIME, 0, 1e9, open_ends=True)),
    _scalar_schema(Dimension.TIME),
]
Bytes = Annotated[
    int, BeforeValidator(_quantity(Dimension.SIZE, 1, 2**60, open_ends=False)), _scalar_schema(Dimension.SIZE)
]
Margin = Annotated[
    float, BeforeValidator(_quantity(Dimension.SHARE, 0, 1, open_ends=True)), _scalar_schema(Dimension.SHARE)
]
Confidence = Annotated[
    float,
    BeforeValidator(_quantity(Dimension.SHARE, 0.5, 0.9999, open_ends=False)),
    _scalar_schema(Dimension.SHARE),
]
Extra = Annotated[
    float,
    BeforeValidator(_quantity(Dimension.SHARE, 0, 10, open_ends=False)),
    _scalar_schema(Dimension.SHARE),
]
Quota = Annotated[
    float,
    BeforeValidator(_quantity(Dimension.SHARE, 0, 65_536, open_ends=True)),
    _scalar_schema(Dimension.SHARE),
]


def _words(kind: type[StrEnum]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [str(k) for k in kind]})


AttachmentWord = Annotated[Attachment, BeforeValidator(_one_of(Attachment)), _words(Attachment)]
BetterWord = Annotated[Better, BeforeValidator(_one_of(Better)), _words(Better)]
ModeWord = Annotated[Mode, BeforeValidator(_one_of(Mode)), _words(Mode)]
PagesWord = Annotated[Pages, BeforeValidator(_one_of(Pages)), _words(Pages)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class LimitsSection(Section):
    cpu: Quota | None = Field(
        None, description="CPU time, as a share of one CPU: 150 % is one CPU and a half", examples=["80 %"]
    )
    memory: Bytes | None = Field(None, description="memory", examples=["2 GiB"])


class EnvironmentSection(Section):
    backend: Name = Field(description="what wraps the work", examples=["native", "namespaces"])
    image: SomeText = Field(
        Environment.image,
        description="root filesystem inside: host (this machine's own) or a built tree",
        examples=["host"],
    )
    attachment: AttachmentWord = Field(
        Environment.attachment,
        description="how an instance meets the network; several instances need veth-bridge",
        examples=["veth-bridge"],
    )
    limits: LimitsSection = Field(
        default_factory=lambda: LimitsSection(cpu=None, memory=None),
        description="limits of each instance; none if omitted",
        examples=[{"cpu": "80 %", "memory": "2 GiB"}],
    )
    placements: list[Name] | None = Field(
        None,
        min_length=1,
        description="placements it takes part in; every one that its attachment can serve if omitted",
        examples=[["1x2", "2x1"]],
    )
    workloads: list[Name] = Field(
        default_factory=list,
        description="workloads it runs, where not all; the first baseline runs all",
        examples=[["cg", "latency"]],
    )
    extra_work: Extra = Field(
        Environment.extra_work,
        description="work planted in every slice, as a share; backend handicap only",
        examples=["3 %"],
        json_schema_extra={"default": exact(Environment.extra_work, Dimension.SHARE)},
    )


class PlacementSection(Section):
    instances: Number = Field(description="instances on the node", examples=[1, 2])
    tasks: Number = Field(description="MPI ranks in each instance", examples=[2, 1])
    cpus: list[Cpu] = Field(
        default_factory=list,
        description="the CPU of each rank, by rank; chosen alike for all environments if omitted",
        examples=[[0, 1]],
    )


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
        description="unit of the number as printed; s, B, B/s, op/s and FLOP/s are scaled when shown",
        examples=["s"],
    )
    better: BetterWord = Field(description="which way it improves", examples=["lower"])


class CommandSection(Section):
    """A program of your own."""

    command: list[Text] = Field(
        min_length=1,
        description="the program and its arguments, one item each; no shell reads them",
        examples=[["lmp", "-in", "in.lj"]],
    )
    mpi: Truth = Field(
        CommandWorkload.mpi, description="started by mpirun, one rank per task", examples=[True]
    )
    env: dict[EnvKey, Text] = Field(
        default_factory=dict, description="environment variables", examples=[{"OMP_NUM_THREADS": "1"}]
    )
    metrics: dict[Name, MetricSection] = Field(
        default_factory=dict,
        description="numbers read from its output, besides the time and memory it takes",
        examples=[{"loop": {"regex": r"Loop time of ([\d.]+)", "unit": "s", "better": "lower"}}],
    )
    time_limit: Seconds = Field(
        CommandWorkload.time_limit,
        description="a run longer than this is ended and counts as failed",
        examples=["10 min"],
        json_schema_extra={"default": exact(CommandWorkload.time_limit, Dimension.TIME)},
    )


class Subject(StrEnum):
    START = "start"


class StartSection(Section):
    """An event of the instances themselves."""

    subject: Annotated[Subject, BeforeValidator(_one_of(Subject)), _words(Subject)] = Field(
        description="start: from the request to the first instruction in the last instance",
        examples=["start"],
    )


class DesignSection(Section):
    baseline: Name | None = Field(
        None, description="the environment that the others are compared with", examples=["native"]
    )
    baselines: list[Name] | None = Field(
        None,
        min_length=1,
        description="several of them instead; the further ones meet arms of their own transport",
        examples=[["native", "native-tcp"]],
    )
    margin: Margin = Field(
        MARGIN,
        description="time-equivalent overhead that matters; fixed before data",
        examples=["3 %"],
        json_schema_extra={"default": exact(MARGIN, Dimension.SHARE)},
    )
    confidence: Confidence = Field(
        CONFIDENCE,
        description="of every interval",
        examples=["95 %"],
        json_schema_extra={"default": exact(CONFIDENCE, Dimension.SHARE)},
    )
    mode: ModeWord = Field(
        Design.mode,
        description="slices: short slices between standing instances; plain: one trial after the other",
        examples=["slices"],
    )
    expected_blocks: Number | None = Field(
        Design.expected_blocks,
        description="expected number, which fixes when data are looked at; what max_time holds if omitted",
        examples=[40],
    )
    min_blocks: Number = Field(
        Design.min_blocks,
        description="no verdict before so many blocks; 6 at least",
        examples=[12],
        json_schema_extra={"minimum": 6},
    )
    max_blocks: Number = Field(Design.max_blocks, description="stop after so many blocks", examples=[200])
    max_time: Seconds | None = Field(
        Design.max_time,
        description="stop after so much time; without end if omitted",
        examples=["90 s", "1h30m"],
    )
    target_width: Margin | None = Field(
        Design.target_width,
        description="go on until every half-width is below this; until every cell has a verdict if omitted",
        examples=["0.5 %"],
    )
    seed: Seed | None = Field(
        None, description="fixes the order of everything; drawn and recorded if omitted", examples=[32570]
    )
    warm_up: NumberOrNone = Field(
        Design.warm_up, description="runs thrown away at the start of each instance", examples=[1]
    )
    runs: Number = Field(Design.runs, description="runs per instance, in mode plain", examples=[1])
    slices: Number = Field(
        Design.slices, description="slices per kernel and instance, in mode slices", examples=[8]
    )
    primary: list[SomeText] = Field(
        default_factory=list,
        description="workload.metric names of a confirmatory study; exploratory if omitted",
        examples=[["cg.rate"]],
    )


class TopSection(Section):
    """The whole file. The entries of its sections are read one by one, so that one mistake hides no other."""

    name: Name = Field(
        description="name of the study; results stand in results/<name>-<time>", examples=["first"]
    )
    question: Text = Field(
        "", description="what is asked, in words; stands above the report", examples=["What does it cost?"]
    )
    environments: dict[Name, Any] = Field(
        min_length=1, description="what is compared", examples=[{"native": {"backend": "native"}}]
    )
    placements: dict[Name, Any] = Field(
        min_length=1,
        description="instances and tasks in them",
        examples=[{"1x2": {"instances": 1, "tasks": 2}}],
    )
    workloads: dict[Name, Any] = Field(
        min_length=1,
        description="what is run: a kernel, a command of your own, or the start itself",
        examples=[{"ep": {"kernel": "ep", "class": "S"}}],
    )
    design: dict[str, Any] = Field(
        description="how often, in which order, when to stop", examples=[{"baseline": "native"}]
    )
