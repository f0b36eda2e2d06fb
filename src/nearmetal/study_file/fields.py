"""The types of the keys of a study file, for pydantic: what model.keys reads and describes.

Imports pydantic: imported by the sections alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ..model.image import Variant
from ..model.keys import (
    COUNT,
    COUNT_OR_NONE,
    INTERFACE,
    NAME,
    SECONDS,
    SIZE,
    SOME_TEXT,
    SWITCH,
    TEXT,
    TRUTH,
    Kind,
    ValueMistake,
    matching,
    one_of,
    one_word,
    quantity,
    real,
    scalar,
    whole,
)
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
from ..units import Dimension
from .npb import Benchmark, Size
from .subjects import subject_names

ENV_KEY = r"^[A-Za-z_][A-Za-z0-9_]{0,199}$"
LEAST_SCALE, MOST_SCALE = 1e-30, 1e30  # a factor beyond these is a slip of the hand
SUITE = r"^[a-z][a-z0-9.-]{0,99}$"
PACKAGE = r"^[a-z0-9][a-z0-9+.-]{0,199}(:[a-z0-9-]+)?([=/][A-Za-z0-9.+:~-]+)?$"
MIRROR = r"^[a-z][a-z+]{1,19}:/[^\s,\"'\\]+$"
SOURCE = r"^deb( \[[^\]\n]*\])? [a-z][a-z+]{1,19}:/\S+( \S+)+$"
_JSON_PATH = r"^[^.\s]+(\.[^.\s]+)*$"


@dataclass(frozen=True, eq=False)  # a kind has no hash, which an annotation must have
class Taken:
    """An annotation: the value is read, and described, by a kind."""

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


_RTO_MIN = quantity(Dimension.TIME, 1e-3, 120)


def _rto_min(value: object) -> float:
    seconds: float = _RTO_MIN.read(value)
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-9:
        raise ValueMistake(f'"{scalar(value)[:40]}": the kernel counts it in whole milliseconds')
    return seconds


def _subnet(value: object) -> str:
    text = scalar(value)
    try:
        network = IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as e:
        raise ValueMistake(f'"{text[:40]}" is not an IPv4 network such as 192.168.7.0/24') from e
    if not 8 <= network.prefixlen <= 29 or "/" not in text:
        raise ValueMistake(f'"{text[:40]}": write a network of /8 to /29, such as 192.168.7.0/24')
    return str(network)


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
Suite = Annotated[str, Taken(matching(SUITE, "the name of a suite, such as trixie, or host"))]
Package = Annotated[str, Taken(matching(PACKAGE, "the name of a package, such as openmpi-bin"))]
Mirror = Annotated[str, Taken(matching(MIRROR, "the URI of a package archive, such as file:/srv/debian"))]
Source = Annotated[str, Taken(matching(SOURCE, "a line of sources.list, such as deb file:/srv/own ./"))]
FileName = Annotated[str, Taken(Kind(_file_name, {"type": "string", "pattern": r"^[^/]"}, plain=False))]
Real = Annotated[float, Taken(REAL)]
Tolerance = Annotated[float, Taken(Kind(_small, {"type": "number", "minimum": 0, "maximum": 1}, repr))]
Truth = Annotated[bool, Taken(TRUTH)]
Seed = Annotated[int, Taken(whole(0, 2**63 - 1))]
Number = Annotated[int, Taken(COUNT)]
NumberOrNone = Annotated[int, Taken(COUNT_OR_NONE)]
Shares = Annotated[int, Taken(whole(2, 262_144))]
Cpu = Annotated[int, Taken(whole(0, 65_535))]
ExitStatus = Annotated[int, Taken(whole(0, 255))]
Mtu = Annotated[int, Taken(whole(68, 65_535))]
Interface = Annotated[str, Taken(INTERFACE)]
CongestionControl = Annotated[
    str,
    Taken(matching(r"^[a-z0-9_]{1,15}$", "the name of a congestion control, such as cubic", shown=False)),
]
Subnet = Annotated[str, Taken(Kind(_subnet, {"type": "string"}, plain=False))]
Switch = Annotated[bool, Taken(SWITCH)]
RtoMin = Annotated[float, Taken(Kind(_rto_min, _RTO_MIN.schema, _RTO_MIN.write))]
WireRate = Annotated[float, Taken(quantity(Dimension.RATE, 1e3, 4e9))]
Seconds = Annotated[float, Taken(SECONDS)]
Bytes = Annotated[int, Taken(SIZE)]
Delay = Annotated[float, Taken(quantity(Dimension.TIME, 0, 10))]
SampleStep = Annotated[float, Taken(quantity(Dimension.TIME, 0.1, 10))]
Margin = Annotated[float, Taken(quantity(Dimension.SHARE, 0, 1, open_ends=True))]
Scale = Annotated[
    float,
    Taken(Kind(_factor, {"type": "number", "minimum": LEAST_SCALE, "maximum": MOST_SCALE}, repr)),
]
Confidence = Annotated[float, Taken(quantity(Dimension.SHARE, 0.5, 0.9999))]
Extra = Annotated[float, Taken(quantity(Dimension.SHARE, 0, 10))]
Quota = Annotated[float, Taken(quantity(Dimension.SHARE, 0, 65_536, open_ends=True))]


AttachmentWord = Annotated[Attachment, Taken(one_of(Attachment))]
TransportWord = Annotated[TransportWish, Taken(one_of(TransportWish))]
SharedWord = Annotated[Shared, Taken(one_of(Shared))]
MpiWord = Annotated[Mpi, Taken(one_of(Mpi))]
ReachWord = Annotated[Reach, Taken(one_of(Reach))]
SingleCopyWord = Annotated[SingleCopy, Taken(one_of(SingleCopy))]
BetterWord = Annotated[Better, Taken(one_of(Better))]
VariantWord = Annotated[Variant, Taken(one_of(Variant))]
ModeWord = Annotated[Mode, Taken(one_of(Mode))]
SubjectWord = Annotated[str, Taken(one_word(subject_names()))]
PinningWord = Annotated[Pinning, Taken(one_of(Pinning))]
StartsWord = Annotated[Starts, Taken(one_of(Starts))]
StorageWord = Annotated[StorageKind, Taken(one_of(StorageKind))]
PagesWord = Annotated[Pages, Taken(one_of(Pages))]
BenchmarkWord = Annotated[Benchmark, Taken(one_of(Benchmark))]
SizeWord = Annotated[Size, Taken(one_of(Size))]
