"""Code that several applications share: parameters with several values for one run (block sizes, message
sizes), the parameter for a user's own program, and the file of a benchmark of storage."""

from __future__ import annotations

import re
from pathlib import PurePath

from ..parameter import Choices, Kind, Parameter
from .contract import Application, Needs, Place

MOST = 32
_SWEEP = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})")


def program_parameter(default: str) -> Parameter:
    """Return the parameter for the user's own build of a program: a name on PATH, or an absolute path."""
    return Parameter("program", Kind.TEXT, default, "your own build: on PATH, or its absolute path")


SIZES = Parameter(
    "sizes",
    Kind.TEXT,
    "8 4096 1048576",
    "message sizes in bytes: 8, '8 1024 65536', or 8..1048576 in doubling steps",
)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parse '64', '32 48 64', or '32..512' in doubling steps. Return each number once; empty if the text is
    invalid.

    The numbers are at least 1.
    """
    sweep = _SWEEP.fullmatch(text.strip())
    if sweep:
        least, most = int(sweep[1]), int(sweep[2])
        steps = range(MOST) if least else ()
        return tuple(least << step for step in steps if least << step <= most)
    words = text.split()
    if not words or len(words) > MOST or not all(re.fullmatch(r"[0-9]{1,12}", w) and int(w) for w in words):
        return ()
    return tuple(dict.fromkeys(map(int, words)))


def sizes_problem(choices: Choices) -> str | None:
    """Return why the parameter `sizes` is invalid, or None if it is valid."""
    if whole_numbers(choices.word("sizes")):
        return None
    return f"sizes is a number of bytes, several, or LEAST..MOST, not '{choices.word('sizes')[:80]}'"


def program_problem(choices: Choices) -> str | None:
    """Return why the parameter `program` cannot name a program, or None if it can.

    Whether the program exists is checked later, where it runs.
    """
    program = choices.word("program")
    if "/" not in program or PurePath(program).is_absolute():
        return None
    return (
        f"program is a name on PATH or an absolute path, not '{program[:80]}': it runs in another directory"
    )


class OwnBuild(Application):
    """Base class of applications that the user has built; the parameter `program` names them."""

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=(choices.word("program"),))

    def problem(self, choices: Choices, place: Place) -> str | None:
        return program_problem(choices)


def file_size(choices: Choices, place: Place) -> int:
    """Return the size of a benchmark's file in bytes, in whole MiB; twice the memory of an instance for
    'auto'."""
    return (choices.whole("size") or 2 * place.memory) >> 20 << 20


def cache_sentence(size: int, memory: int) -> str:
    """Return whether the page cache serves all buffered requests to a file, or a part of them, as text.

    size: bytes of the file.
    memory: bytes of memory of the instance.
    """
    if size <= memory:
        return "the page cache: the file is smaller than the memory"
    return "the page cache in part: the file is larger than the memory"
