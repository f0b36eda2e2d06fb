"""Parses nm-micro's JSON Lines strictly, since the programs are built from nearmetal's own sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from ..errors import TrialFailedError
from ..host.processes.failure import MOST_SHOWN, find_error_line
from ..model.record import RankPlace

T = TypeVar("T")

SHOWN = 200  # characters of a bad line in the error
LONGEST = 1 << 20  # characters of a line; ready lines grow with the ranks

EVENTS = ("task_clock", "cycles", "instructions", "cache_misses", "dtlb_misses")
"""Events of perf_event_open, with their names in kernels/common/counts.c."""

Whole = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0)]
Used = Mapping[str, Number | None]
"""Counters of ranks by name (kernels/common/counts.h): task_clock and run_delay in seconds, all others as
counts. A value is None if the counter is not available."""


class PagesLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory of one kernel over all ranks, in kB.

    huge_kb: in transparent huge pages; None if Linux does not report it.
    """

    kernel: Whole
    huge_kb: Whole | None
    total_kb: Whole


class PlaceLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rank runs.

    cpu: the CPU that it ran on when it reported.
    affinity: CPUs of its affinity mask.
    """

    rank: Whole
    host: str
    cpu: Whole
    affinity: tuple[Whole, ...]
    namespaces: dict[str, Whole]

    def place(self) -> RankPlace:
        return RankPlace(rank=self.rank, host=self.host, cpus=self.affinity, namespaces=self.namespaces)


class RankReport(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"placed": "place"}
):
    """nm-rank's report of one rank whose program has ended.

    wall, user, system: seconds.
    max_rss: bytes.
    io: bytes of system calls (rchar, wchar), and the part of them read from and written to disks (read_bytes,
        write_bytes); empty if the kernel does not report them.
    status: exit status; 128 or more if a signal ended it.
    left: names of processes that it left running, which were then killed.
    """

    placed: PlaceLine
    wall: Number
    user: Number
    system: Number
    max_rss: Whole
    io: dict[str, Whole]
    used: dict[str, Number | None]
    status: Whole
    left: tuple[str, ...]

    @property
    def place(self) -> RankPlace:
        return self.placed.place()


class ReadyLine(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="event",
    tag="ready",
    rename={"init_seconds": "init_s", "prepare_seconds": "prepare_s", "placed": "places"},
):
    """nm-micro's report that all ranks are prepared.

    mpi: name that the MPI library reports.
    init_seconds, prepare_seconds: times of the slowest rank.
    placed: where each rank runs, by rank.
    """

    mpi: str
    ranks: Annotated[int, msgspec.Meta(ge=1)]
    init_seconds: Number
    prepare_seconds: Number
    placed: tuple[PlaceLine, ...]
    pages: tuple[PagesLine, ...]

    def __post_init__(self) -> None:
        # The number is compared first: a line may claim more ranks than a list of them has room for.
        if len(self.placed) != self.ranks or any(p.rank != i for i, p in enumerate(self.placed)):
            raise ValueError(f"places are not those of ranks 0 to {self.ranks - 1}")

    @property
    def places(self) -> tuple[RankPlace, ...]:
        return tuple(p.place() for p in self.placed)


class PartLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a slice.

    seconds: time of the slowest rank.
    comm_seconds: that rank's time in MPI calls.
    work: bytes, operations or messages of all ranks.
    """

    metric: str
    seconds: Number
    comm_seconds: Number
    work: Number


class SliceLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", tag="slice"
):
    """nm-micro's report of one slice.

    kernel: number of the kernel on the command line, from 0.
    used: counters of all ranks; run_delay is that of the rank that waited longest.
    """

    kernel: Whole
    name: str
    parts: Annotated[tuple[PartLine, ...], msgspec.Meta(min_length=1)]
    used: dict[str, Number | None]


class VerifyLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event", tag="verify"
):
    """Result of a full run, compared with the published values."""

    kernel: Whole
    name: str
    ok: bool
    expected: dict[str, Any]
    found: dict[str, Any]
    seconds: Number
    work: Number


Line = ReadyLine | SliceLine | VerifyLine

_lines: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_reports = msgspec.json.Decoder(RankReport)
_texts = msgspec.json.Decoder(dict[str, str])


def parse_line(text: bytes | str) -> Line:
    """Parse one line of nm-micro.

    Raises TrialFailedError for an error that it reports, and for any other text, with the beginning of the
    line.
    """
    try:
        return _decoded(_lines, text)
    except ValueError as e:
        raise _failure(text, e) from e


def parse_report(text: str, where: str = "nm-rank") -> RankReport:
    """Parse the file rank.<rank>.json that nm-rank writes.

    where: the file, for the error.

    Raises TrialFailedError if it is invalid.
    """
    return _of_rank(_reports, text, where)


def parse_offered(text: str) -> dict[str, str]:
    """Parse the output of nm-rank --offered. Return for each perf event why it is not available; '' if it is.

    Raises TrialFailedError if the output is invalid.
    """
    return _of_rank(_texts, text, "nm-rank")


def _of_rank(decoder: msgspec.json.Decoder[T], text: str, where: str) -> T:
    try:
        return _decoded(decoder, text)
    except ValueError as e:
        raise _unreadable(where, e, text) from e


def _decoded(decoder: msgspec.json.Decoder[T], text: bytes | str) -> T:
    """Decode a text as the decoder's type.

    Raises ValueError if it is not valid.
    """
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        return decoder.decode(text)
    except RecursionError as e:
        raise ValueError(str(e)) from e


def _unreadable(where: str, why: ValueError, text: bytes | str) -> TrialFailedError:
    shown = text[:SHOWN] if isinstance(text, str) else text[:SHOWN].decode(errors="replace")
    return TrialFailedError(f"unreadable line: {why}: {shown!r}", where=where, remedy="read the trial's logs")


def _failure(text: bytes | str, why: ValueError) -> TrialFailedError:
    line = text if isinstance(text, str) else text[:LONGEST].decode(errors="replace")
    error = find_error_line(line) if '"error"' in line[:SHOWN] else None
    if error is None:
        return _unreadable("nm-micro", why, text)
    return TrialFailedError(error.what[:MOST_SHOWN], where=error.where[:MOST_SHOWN])
