"""bonnie++: sequential output and input by character and by block, rewriting, and seeks in one file."""

from __future__ import annotations

import csv
import re

from ...model.record import TOO_FAST_TO_MEASURE, JsonValue
from ...model.study import IDS, Better
from ..numbers import LONGEST_LINE, number
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of
from .several import cache_sentence, file_size

MIB = 1 << 20
#: Path of Debian's bonnie++, which is not on the PATH of users.
PROGRAM = "/usr/sbin/bonnie++"
#: Printed instead of a value when the test took less than half a second.
TOO_FAST = "+++++"
VERSIONS = ("1.97", "1.98")

#: By metric: its column in format 1.98 (the CPU share in per cent is in the next column), its unit, its
#: scale, and whether it works by character.
COLUMNS = {
    "sequential_output_character": (9, "B/s", 1024.0, True),
    "sequential_output_block": (11, "B/s", 1024.0, False),
    "rewrite": (13, "B/s", 1024.0, False),
    "sequential_input_character": (15, "B/s", 1024.0, True),
    "sequential_input_block": (17, "B/s", 1024.0, False),
    "random_seek": (19, "op/s", 1.0, False),
}
#: First column of the longest single operations of each test, in the order of COLUMNS.
FIRST_LATENCY = 38
FIXED_SECONDS, BLOCK_RATE, CALLS_SECONDS, CHARACTER_RATE = 3.0, 500e6, 4e-6, 2e6
"""For estimates: seconds that any run takes; bytes per second by block, over all tests; seconds of the system
calls for one block; bytes per second by character."""
_DURATION = re.compile(r"(\d{1,15})(us|ms|s)", re.ASCII)
_SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

PARAMETERS = (
    Parameter(
        "size",
        Kind.BYTES,
        1 << 30,
        "of the file; auto: twice the memory of an instance",
        auto=True,
        least=16 * MIB,
        most=1 << 44,
        multiple=MIB,
    ),
    Parameter("chunk", Kind.BYTES, 8192, "of block reads and writes, a power of two", least=256, most=MIB),
    Parameter(
        "characters",
        Kind.WORD,
        "no",
        "whether it also reads and writes character by character, about a MB a second",
        words=("no", "yes"),
    ),
    Parameter(
        "character_size",
        Kind.BYTES,
        AUTO,
        "of the file for characters; auto: as bonnie++ chooses, a few MB",
        least=MIB,
        most=1 << 40,
        multiple=MIB,
    ),
    Parameter(
        "mode",
        Kind.WORD,
        "buffered",
        "buffered: through the page cache; direct: blocks past it (O_DIRECT)",
        words=("buffered", "direct"),
    ),
)


class Bonnie(Application):
    """Debian's bonnie++."""

    name = "bonnie"
    of_files = True
    doc = "storage: characters, blocks, rewriting and seeks, as the papers' Bonnie measures them"
    parameters = PARAMETERS

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=(PROGRAM,), packages=("bonnie++",), storage=True)

    def problem(self, choices: Choices, place: Place) -> str | None:
        chunk = choices.whole("chunk") or 1
        if chunk & (chunk - 1):
            return f"chunk: a power of two is needed, not {chunk}"
        return None

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        size = choices.whole("size") or 512 * MIB
        characters = choices.word("characters") == "yes"
        by_character = 2 * (choices.whole("character_size") or 3e6) / CHARACTER_RATE if characters else 0.0
        by_block = size / BLOCK_RATE + size / (choices.whole("chunk") or 8192) * CALLS_SECONDS
        return FIXED_SECONDS + by_block + by_character

    def waiting(self, choices: Choices) -> float:
        return FIXED_SECONDS

    def command(self, choices: Choices, place: Place) -> Invocation:
        size = file_size(choices, place) // MIB
        return Invocation(
            argv=(
                # As root, bonnie++ requires a user; other users may only name themselves.
                *(PROGRAM, "-u", IDS),
                *("-q", "-d", "{storage}", "-m", "nearmetal", "-n", "0"),
                *("-s", f"{size}:{choices.word('chunk')}"),
                *("-r", str(size // 2)),  # least memory: files must be at least twice as large
                *_characters(choices),
                *(("-D",) if choices.word("mode") == "direct" else ()),
            )
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        characters = choices.word("characters") == "yes"
        return tuple(
            (name, unit, Better.HIGHER)
            for name, (_, unit, _, by_character) in COLUMNS.items()
            if characters or not by_character
        )

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        fields, named = _fields(output.stdout), self.metrics(choices)
        size = file_size(choices, place)
        facts: dict[str, JsonValue] = {"size": size, "meets": _meets(choices, size, place.memory)}
        if fields is None:
            errors = [line.strip() for line in output.stderr.splitlines() if line.startswith("Can't")]
            missing = errors[0][:200] if errors else "the output has no result line of bonnie++"
            return Parsed(metrics=metrics_of(named, {}, lambda _: missing), facts=facts)
        facts["version"] = fields[1][:20]
        facts["cpu"] = _cpu(fields)
        facts["longest"] = _longest(fields)
        values = {name: _value(name, fields) for name, *_ in named}
        return Parsed(metrics=metrics_of(named, values, lambda name: _unusable(name, fields)), facts=facts)


def _characters(choices: Choices) -> tuple[str, ...]:
    """Return bonnie++'s option that leaves out the tests by character, or sets the size of their file; no
    option for its default."""
    if choices.word("characters") != "yes":
        return ("-f",)
    size = choices.whole("character_size")
    return () if size is None else (f"-f{size // MIB}",)


def _fields(text: str) -> list[str] | None:
    """Return the columns of the first line of results; None if there is no complete one."""
    for line in text.splitlines():
        if len(line) <= LONGEST_LINE and line.startswith(tuple(f"{v}," for v in VERSIONS)):
            fields = next(csv.reader([line]), [])
            if len(fields) >= FIRST_LATENCY + len(COLUMNS):
                return fields
    return None


def _value(name: str, fields: list[str]) -> float | None:
    """Return the value in base units; None if there is no positive one."""
    at, _, scale, _ = COLUMNS[name]
    value = number(fields[at])
    return None if value is None or value <= 0 else value * scale


def _unusable(name: str, fields: list[str]) -> str:
    """Return why a metric has no value."""
    at, *_ = COLUMNS[name]
    if fields[at] == TOO_FAST:
        return f"{name} needs a larger size: {TOO_FAST_TO_MEASURE}"
    return f"{name}: {fields[at][:40]!r} is not a positive number"


def _cpu(fields: list[str]) -> dict[str, JsonValue]:
    """Return the fraction of one CPU that each test used, if reported."""
    shares = {name: number(fields[at + 1]) for name, (at, *_) in COLUMNS.items()}
    return {name: share / 100 for name, share in shares.items() if share is not None and share >= 0}


def _longest(fields: list[str]) -> dict[str, JsonValue]:
    """Return the seconds of the longest operation of each test, if reported."""
    out: dict[str, JsonValue] = {}
    for n, name in enumerate(COLUMNS):
        if duration := _DURATION.fullmatch(fields[FIRST_LATENCY + n]):
            out[name] = int(duration[1]) * _SCALE[duration[2]]
    return out


def _meets(choices: Choices, size: int, memory: int) -> str:
    if choices.word("mode") == "direct":
        return "the file system below the page cache, blocks alone"
    return cache_sentence(size, memory)
