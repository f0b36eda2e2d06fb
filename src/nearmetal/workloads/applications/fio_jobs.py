"""The measurements of fio: access patterns and block sizes, from the keys of a workload."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from ...units import UnitError, parse_size
from ..parameter import AUTO, Choices

LEAST_BLOCK, MOST_BLOCK = 4 << 10, 1 << 20
#: Ratio of successive block sizes in a range.
STEP = 4
PATTERNS = {
    "read": ("sequential", "read"),
    "write": ("sequential", "write"),
    "randread": ("random", "read"),
    "randwrite": ("random", "write"),
}


@dataclass(frozen=True, kw_only=True)
class FioJob:
    """One measurement of fio.

    rw: pattern in fio's notation.
    block: bytes of a request.
    """

    rw: str
    block: int

    @property
    def name(self) -> str:
        """Prefix of its metrics, for example randread_4KiB."""
        size = f"{self.block >> 20}MiB" if self.block >= 1 << 20 else f"{self.block >> 10}KiB"
        return f"{self.rw}_{size}"

    @property
    def operation(self) -> str:
        return PATTERNS[self.rw][1]


def read_blocks(text: str) -> tuple[int, ...] | str:
    """Return the block sizes in bytes, smallest first, or an error message; empty for 'auto'."""
    if text == AUTO:
        return ()
    ends = text.split("..")
    try:
        first, last = parse_size(ends[0].strip()), parse_size(ends[-1].strip())
    except UnitError as e:
        return f"block: {e}"
    if len(ends) > 2 or not LEAST_BLOCK <= first <= last <= MOST_BLOCK or (first | last) & 1023:
        return f"block: a size or a range from 4 KiB to 1 MiB in whole KiB was expected, not {text!r}"
    sizes = takewhile(lambda size: size <= last, (first * STEP**n for n in range(8)))
    return tuple(dict.fromkeys((*sizes, last)))


def jobs(choices: Choices) -> tuple[FioJob, ...]:
    """Return the measurements in their order."""
    blocks = read_blocks(choices.word("block"))
    sizes = blocks if not isinstance(blocks, str) else ()
    return tuple(
        FioJob(rw=rw, block=block)
        for rw, (order, operation) in PATTERNS.items()
        if choices.word("pattern") in ("all", order) and choices.word("operation") in ("all", operation)
        for block in sizes or ((MOST_BLOCK if order == "sequential" else LEAST_BLOCK),)
    )
