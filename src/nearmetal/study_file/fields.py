"""The types of the keys of a study file as pydantic annotations, made from the kinds in model.keys.

Only the sections import this module, since it imports pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ..model.keys import (
    COUNT,
    NAME,
    SECONDS,
    SOME_TEXT,
    TEXT,
    TRUTH,
    Kind,
    ValueMistake,
    matching,
    one_of,
    one_word,
    real,
    scalar,
    whole,
)
from ..model.program import misnamed
from ..model.study import (
    Better,
    Pages,
)
from .workloads.npb import Benchmark, Size
from .workloads.subjects import subject_names

ENV_KEY = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$"
LEAST_SCALE, MOST_SCALE = 1e-30, 1e30  # a factor beyond these limits is a typing mistake
_JSON_PATH = r"^[^.\s]+(\.[^.\s]+)*$"


@dataclass(frozen=True, eq=False)  # an annotation must be hashable, so compare by identity
class Taken:
    """An annotation with the kind that reads and describes the value."""

    kind: Kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.kind.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.kind.schema)


def _factor(value: object) -> float:
    text = scalar(value)
    try:
        number = float(text)
    except ValueError as e:
        raise ValueMistake(f'"{text[:40]}" is not a plain number, such as 1e6') from e
    if not LEAST_SCALE <= number <= MOST_SCALE:
        raise ValueMistake(f'"{text[:40]}" is not between {LEAST_SCALE:g} and {MOST_SCALE:g}')
    return number


def _small(value: object) -> float:
    number = real(value)
    if not 0 <= number <= 1:
        raise ValueMistake(f'"{scalar(value)[:40]}" is not between 0 and 1')
    return number


def _file_name(value: object) -> str:
    text = scalar(value)
    what = misnamed(text)
    if what:
        raise ValueMistake(f'"{text[:60]}": {what}')
    return text


REAL = Kind(real, {"type": "number"}, repr)
Text = Annotated[str, Taken(TEXT)]
SomeText = Annotated[str, Taken(SOME_TEXT)]
Name = Annotated[str, Taken(NAME)]
EnvKey = Annotated[
    str, Taken(matching(ENV_KEY, "the name of an environment variable: letters, digits and _"))
]
JsonPath = Annotated[
    str, Taken(matching(_JSON_PATH, "a dotted path such as results.0.seconds", numbers=True))
]
FileName = Annotated[str, Taken(Kind(_file_name, {"type": "string", "pattern": r"^[^/]"}, plain=False))]
Real = Annotated[float, Taken(REAL)]
Tolerance = Annotated[float, Taken(Kind(_small, {"type": "number", "minimum": 0, "maximum": 1}, repr))]
Truth = Annotated[bool, Taken(TRUTH)]
Number = Annotated[int, Taken(COUNT)]
ExitStatus = Annotated[int, Taken(whole(0, 255))]
Seconds = Annotated[float, Taken(SECONDS)]
Scale = Annotated[
    float,
    Taken(Kind(_factor, {"type": "number", "minimum": LEAST_SCALE, "maximum": MOST_SCALE}, repr)),
]


BetterWord = Annotated[Better, Taken(one_of(Better))]
SubjectWord = Annotated[str, Taken(one_word(subject_names()))]
PagesWord = Annotated[Pages, Taken(one_of(Pages))]
BenchmarkWord = Annotated[Benchmark, Taken(one_of(Benchmark))]
SizeWord = Annotated[Size, Taken(one_of(Size))]
