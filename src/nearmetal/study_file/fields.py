"""The values of a study file: from the text that stands there to the type of its key, or what is wrong.

Imports pydantic: imported by the sections alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ..model.image import Variant
from ..model.program import misnamed
from ..model.study import (
    Attachment,
    Better,
    Mode,
    Mpi,
    Pages,
    Pinning,
    Reach,
    Shared,
    SingleCopy,
    Starts,
    StorageKind,
    TransportWish,
)
from ..units import Dimension, UnitError, exact, parse, parse_size, pattern
from .catalog import NAME, did_you_mean
from .npb import Benchmark, Size
from .subjects import subject_names

ENV_KEY = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$"
LEAST_SCALE, MOST_SCALE = 1e-30, 1e30  # a factor beyond these is a slip of the hand
INTERFACE = r"^(?!\.{1,2}$)[!-.0-9;-~]{1,15}$"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}|0x[0-9a-fA-F]{1,16}")
SUITE = r"^[a-z][a-z0-9.-]{0,99}$"
PACKAGE = r"^[a-z0-9][a-z0-9+.-]{0,199}(:[a-z0-9-]+)?([=/][A-Za-z0-9.+:~-]+)?$"
MIRROR = r"^[a-z][a-z+]{1,19}:/[^\s,\"'\\]+$"
SOURCE = r"^deb( \[[^\]\n]*\])? [a-z][a-z+]{1,19}:/\S+( \S+)+$"
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


@dataclass(frozen=True, eq=False)  # a schema has no hash, which an annotation must have
class _Told:
    """Of a key: what makes a value of what stands there (`check`, raising wrong()), and its JSON Schema."""

    check: Callable[[object], object]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.schema)


def matching(expression: str, what: str, *, numbers: bool = False, shown: bool = True) -> _Told:
    """numbers: a name that looks like one is taken in a file too; shown: the pattern in the schema."""
    compiled = re.compile(expression)

    def check(value: object) -> str:
        text = _scalar(value)
        if not compiled.search(text) or text.endswith("\n"):
            raise wrong(f'"{text[:60]}" is not {what}')
        return text

    kind: dict[str, Any] = {"type": ["string", "integer"] if numbers else "string"}
    return _Told(check, kind | ({"pattern": expression} if shown else {}))


def _truth(value: object) -> bool:
    text = _scalar(value)
    if text not in ("true", "false"):
        raise wrong(f'"{text[:40]}": write true or false')
    return text == "true"


def whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        text = _scalar(value).strip()
        if not _WHOLE.fullmatch(text):
            raise wrong(f'"{text[:40]}" is not a whole number')
        number = int(text, 16) if text.startswith("0x") else int(text)
        if not low <= number <= high:
            raise wrong(f"{number} is not between {low} and {high}")
        return number

    return check


def _quantity(dimension: Dimension, low: float, high: float, *, open_ends: bool) -> _Told:
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

    return _Told(check, {"type": "string", "pattern": pattern(dimension)})


def _factor(value: object) -> float:
    text = _scalar(value)
    try:
        number = float(text)
    except ValueError as e:
        raise wrong(f'"{text[:40]}" is not a plain number, such as 1e6') from e
    if not LEAST_SCALE <= number <= MOST_SCALE:
        raise wrong(f'"{text[:40]}" is not between {LEAST_SCALE:g} and {MOST_SCALE:g}')
    return number


def _real(value: object) -> float:
    text = _scalar(value)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise wrong(f'"{text[:40]}" is not a plain number, such as 0.5 or -1e-6')
    return number


def _small(value: object) -> float:
    number = _real(value)
    if not 0 <= number <= 1:
        raise wrong(f'"{_scalar(value)[:40]}" is not between 0 and 1')
    return number


def _file_name(value: object) -> str:
    text = _scalar(value)
    what = misnamed(text)
    if what:
        raise wrong(f'"{text[:60]}": {what}')
    return text


_RTO_MIN = _quantity(Dimension.TIME, 1e-3, 120, open_ends=False)


def _rto_min(value: object) -> float:
    seconds = cast("float", _RTO_MIN.check(value))
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-9:
        raise wrong(f'"{_scalar(value)[:40]}": the kernel counts it in whole milliseconds')
    return seconds


def _switch(value: object) -> bool:
    text = _scalar(value)
    if text not in ("on", "off"):
        raise wrong(f'"{text[:40]}": write on or off')
    return text == "on"


def _subnet(value: object) -> str:
    text = _scalar(value)
    try:
        network = IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as e:
        raise wrong(f'"{text[:40]}" is not an IPv4 network such as 192.168.7.0/24') from e
    if not 8 <= network.prefixlen <= 29 or "/" not in text:
        raise wrong(f'"{text[:40]}": write a network of /8 to /29, such as 192.168.7.0/24')
    return str(network)


def one_of(kind: type[StrEnum]) -> Callable[[object], StrEnum]:
    check = one_of_names([str(k) for k in kind])
    return lambda value: kind(check(value))


def one_of_names(known: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = _scalar(value)
        if text not in known:
            raise wrong(f'unknown value "{text[:40]}"{did_you_mean(text, known)}')
        return text

    return check


def _int_schema(low: int, high: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


_ANY_TEXT = {"type": ["string", "number", "boolean"]}
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema(_ANY_TEXT)]
SomeText = Annotated[str, BeforeValidator(_some_text), WithJsonSchema({**_ANY_TEXT, "minLength": 1})]
Name = Annotated[str, matching(NAME, "a name: letters, digits, - and _, not starting with -", numbers=True)]
EnvKey = Annotated[str, matching(ENV_KEY, "the name of an environment variable: letters, digits and _")]
JsonPath = Annotated[str, matching(_JSON_PATH, "a dotted path such as results.0.seconds", numbers=True)]
Suite = Annotated[str, matching(SUITE, "the name of a suite, such as trixie, or host")]
Package = Annotated[str, matching(PACKAGE, "the name of a package, such as openmpi-bin")]
Mirror = Annotated[str, matching(MIRROR, "the URI of a package archive, such as file:/srv/debian")]
Source = Annotated[str, matching(SOURCE, "a line of sources.list, such as deb file:/srv/own ./")]
FileName = Annotated[
    str, BeforeValidator(_file_name), WithJsonSchema({"type": "string", "pattern": r"^[^/]"})
]
Real = Annotated[float, BeforeValidator(_real), WithJsonSchema({"type": "number"})]
Tolerance = Annotated[
    float, BeforeValidator(_small), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]
Truth = Annotated[bool, BeforeValidator(_truth), WithJsonSchema({"type": "boolean"})]
Seed = Annotated[int, BeforeValidator(whole(0, 2**63 - 1)), _int_schema(0, 2**63 - 1)]
Number = Annotated[int, BeforeValidator(whole(1, 100_000)), _int_schema(1, 100_000)]
NumberOrNone = Annotated[int, BeforeValidator(whole(0, 100_000)), _int_schema(0, 100_000)]
Shares = Annotated[int, BeforeValidator(whole(2, 262_144)), _int_schema(2, 262_144)]
Cpu = Annotated[int, BeforeValidator(whole(0, 65_535)), _int_schema(0, 65_535)]
ExitStatus = Annotated[int, BeforeValidator(whole(0, 255)), _int_schema(0, 255)]
Mtu = Annotated[int, BeforeValidator(whole(68, 65_535)), _int_schema(68, 65_535)]
Interface = Annotated[
    str, matching(INTERFACE, "the name of a network interface: 1 to 15 characters, no / or :")
]
CongestionControl = Annotated[
    str, matching(r"^[a-z0-9_]{1,15}$", "the name of a congestion control, such as cubic", shown=False)
]
Subnet = Annotated[str, BeforeValidator(_subnet), WithJsonSchema({"type": "string"})]
Switch = Annotated[bool, BeforeValidator(_switch), WithJsonSchema({"enum": ["on", "off"]})]
RtoMin = Annotated[float, _Told(_rto_min, _RTO_MIN.schema)]
WireRate = Annotated[float, _quantity(Dimension.RATE, 1e3, 4e9, open_ends=False)]
Seconds = Annotated[float, _quantity(Dimension.TIME, 0, 1e9, open_ends=True)]
Bytes = Annotated[int, _quantity(Dimension.SIZE, 1, 2**60, open_ends=False)]
Delay = Annotated[float, _quantity(Dimension.TIME, 0, 10, open_ends=False)]
SampleStep = Annotated[float, _quantity(Dimension.TIME, 0.1, 10, open_ends=False)]
Margin = Annotated[float, _quantity(Dimension.SHARE, 0, 1, open_ends=True)]
Scale = Annotated[
    float,
    BeforeValidator(_factor),
    WithJsonSchema({"type": "number", "minimum": LEAST_SCALE, "maximum": MOST_SCALE}),
]
Confidence = Annotated[float, _quantity(Dimension.SHARE, 0.5, 0.9999, open_ends=False)]
Extra = Annotated[float, _quantity(Dimension.SHARE, 0, 10, open_ends=False)]
Quota = Annotated[float, _quantity(Dimension.SHARE, 0, 65_536, open_ends=True)]


def words(kind: type[StrEnum]) -> WithJsonSchema:
    return WithJsonSchema({"enum": [str(k) for k in kind]})


AttachmentWord = Annotated[Attachment, BeforeValidator(one_of(Attachment)), words(Attachment)]
TransportWord = Annotated[TransportWish, BeforeValidator(one_of(TransportWish)), words(TransportWish)]
SharedWord = Annotated[Shared, BeforeValidator(one_of(Shared)), words(Shared)]
MpiWord = Annotated[Mpi, BeforeValidator(one_of(Mpi)), words(Mpi)]
ReachWord = Annotated[Reach, BeforeValidator(one_of(Reach)), words(Reach)]
SingleCopyWord = Annotated[SingleCopy, BeforeValidator(one_of(SingleCopy)), words(SingleCopy)]
BetterWord = Annotated[Better, BeforeValidator(one_of(Better)), words(Better)]
VariantWord = Annotated[Variant, BeforeValidator(one_of(Variant)), words(Variant)]
ModeWord = Annotated[Mode, BeforeValidator(one_of(Mode)), words(Mode)]
SubjectWord = Annotated[
    str, BeforeValidator(one_of_names(subject_names())), WithJsonSchema({"enum": [*subject_names()]})
]
PinningWord = Annotated[Pinning, BeforeValidator(one_of(Pinning)), words(Pinning)]
StartsWord = Annotated[Starts, BeforeValidator(one_of(Starts)), words(Starts)]
StorageWord = Annotated[StorageKind, BeforeValidator(one_of(StorageKind)), words(StorageKind)]
PagesWord = Annotated[Pages, BeforeValidator(one_of(Pages)), words(Pages)]
BenchmarkWord = Annotated[Benchmark, BeforeValidator(one_of(Benchmark)), words(Benchmark)]
SizeWord = Annotated[Size, BeforeValidator(one_of(Size)), words(Size)]
