"""nm-micro's JSON Lines as frozen dataclasses: strict, since the programs are built from our own sources."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import TrialFailedError
from ..host.failure import find_error_line
from ..model.record import JsonValue, RankPlace

SHOWN = 200  # characters of a bad line in the error
LONGEST = 1 << 20  # characters of a line; ready lines grow with the ranks


@dataclass(frozen=True, kw_only=True)
class PagesLine:
    """Memory of one kernel over all ranks, in kB. huge_kb: in transparent huge pages; None where Linux does
    not tell."""

    kernel: int
    huge_kb: int | None
    total_kb: int


EVENTS = ("task_clock", "cycles", "instructions", "cache_misses", "dtlb_misses")
"""By perf_event_open, as kernels/src/counts.c names them."""

Used = Mapping[str, float | None]
"""What ranks used (kernels/src/counts.h): task_clock and run_delay in seconds, else counts; None = absent."""


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What nm-rank says of one rank whose program has ended. wall, user, system: seconds; max_rss: bytes;
    io: bytes by system calls (rchar, wchar), and of these from and to disks (read_bytes, write_bytes), empty
    where the kernel does not tell; status: exit code, 128 and more: by a signal; left: names of processes
    that it left running, which were ended."""

    place: RankPlace
    wall: float
    user: float
    system: float
    max_rss: int
    io: Mapping[str, int] = field(default_factory=dict)
    used: Used = field(default_factory=dict)
    status: int = 0
    left: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReadyLine:
    """Everything is prepared. mpi: what the MPI library calls itself; init_seconds, prepare_seconds: of the
    slowest rank."""

    mpi: str
    ranks: int
    init_seconds: float
    prepare_seconds: float
    places: tuple[RankPlace, ...]
    pages: tuple[PagesLine, ...]


@dataclass(frozen=True, kw_only=True)
class PartLine:
    """One part of a slice. seconds: of the slowest rank; comm_seconds: that rank's time in MPI calls; work:
    bytes, operations or messages of all ranks."""

    metric: str
    seconds: float
    comm_seconds: float
    work: float


@dataclass(frozen=True, kw_only=True)
class SliceLine:
    """kernel: its number on the command line, from 0; used: by all ranks, run_delay: of the longest."""

    kernel: int
    name: str
    parts: tuple[PartLine, ...]
    used: Used = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerifyLine:
    """A full run against the published values."""

    kernel: int
    name: str
    ok: bool
    expected: Mapping[str, JsonValue]
    found: Mapping[str, JsonValue]
    seconds: float
    work: float


Line = ReadyLine | SliceLine | VerifyLine


class _Malformed(Exception):
    """What is wrong with a line."""


def parse_line(text: str) -> Line:
    """One line of nm-micro. Raises TrialFailedError for an error that it reports and for anything that is not
    one of its lines, with the beginning of the line."""
    try:
        item = _object(_decode(text), "the line")
        match item.get("event"):
            case "ready":
                return _ready(item)
            case "slice":
                return _slice(item)
            case "verify":
                return _verify(item)
            case "error":
                raise _failure(text)
            case other:
                raise _Malformed(f"event {other!r} is not known")
    except _Malformed as e:
        raise _unreadable("nm-micro", str(e), text) from e


def parse_report(text: str) -> RankReport:
    """The rank.<rank>.json of nm-rank. Raises TrialFailedError."""
    try:
        item = _object(_decode(text), "the report")
        _only(item, "place", "status", "wall", "user", "system", "max_rss", "io", "left", "used")
        io = _object(item["io"], "io")
        return RankReport(
            place=_place(item["place"]),
            wall=_number(item, "wall"),
            user=_number(item, "user"),
            system=_number(item, "system"),
            max_rss=_whole(item, "max_rss"),
            io={name: _whole(io, name) for name in io},
            used=_used(item["used"]),
            status=_whole(item, "status"),
            left=_texts(item, "left"),
        )
    except _Malformed as e:
        raise _unreadable("nm-rank", str(e), text) from e


def parse_offered(text: str) -> dict[str, str]:
    """What nm-rank --offered says: by event why it is not given, '' where it is. Raises TrialFailedError."""
    try:
        item = _object(_decode(text), "the line")
        return {name: _text(item, name) for name in item}
    except _Malformed as e:
        raise _unreadable("nm-rank", str(e), text) from e


def _unreadable(program: str, what: str, text: str) -> TrialFailedError:
    return TrialFailedError(
        f"unreadable line of {program}: {what}: {text[:SHOWN]!r}", remedy="look into the trial's logs"
    )


def _failure(text: str) -> TrialFailedError:
    error = find_error_line(text)
    if error is None:
        raise _Malformed("an error line has the keys event, program, process and what")
    return TrialFailedError(str(error))


def _decode(text: str) -> JsonValue:
    if len(text) > LONGEST:
        raise _Malformed(f"longer than {LONGEST} characters")
    try:
        value: JsonValue = _json(text)
    except (ValueError, RecursionError) as e:
        raise _Malformed(f"not JSON ({e})") from e
    return value


def _no_constant(word: str) -> JsonValue:
    raise ValueError(f"{word} is not JSON")


_json = json.JSONDecoder(parse_constant=_no_constant).decode


def _ready(item: Mapping[str, JsonValue]) -> ReadyLine:
    _only(item, "event", "mpi", "ranks", "init_s", "prepare_s", "places", "pages")
    line = ReadyLine(
        mpi=_text(item, "mpi"),
        ranks=_whole(item, "ranks", least=1),
        init_seconds=_number(item, "init_s"),
        prepare_seconds=_number(item, "prepare_s"),
        places=tuple(_place(p) for p in _list(item, "places")),
        pages=tuple(_pages(p) for p in _list(item, "pages")),
    )
    if [p.rank for p in line.places] != list(range(line.ranks)):
        raise _Malformed(f"places are not those of ranks 0 to {line.ranks - 1}")
    return line


def _place(value: JsonValue) -> RankPlace:
    item = _object(value, "a place")
    _only(item, "rank", "host", "cpu", "affinity", "namespaces")
    _whole(item, "cpu")
    namespaces = _object(item["namespaces"], "namespaces")
    return RankPlace(
        rank=_whole(item, "rank"),
        host=_text(item, "host"),
        cpus=tuple(_as_whole(cpu, "affinity") for cpu in _list(item, "affinity")),
        namespaces={kind: _whole(namespaces, kind) for kind in namespaces},
    )


def _pages(value: JsonValue) -> PagesLine:
    item = _object(value, "pages")
    _only(item, "kernel", "huge_kb", "total_kb")
    huge = None if item["huge_kb"] is None else _whole(item, "huge_kb")
    return PagesLine(kernel=_whole(item, "kernel"), huge_kb=huge, total_kb=_whole(item, "total_kb"))


def _slice(item: Mapping[str, JsonValue]) -> SliceLine:
    _only(item, "event", "kernel", "name", "parts", "used")
    parts = tuple(_part(p) for p in _list(item, "parts"))
    if not parts:
        raise _Malformed("a slice without parts")
    used = _used(item["used"])
    return SliceLine(kernel=_whole(item, "kernel"), name=_text(item, "name"), parts=parts, used=used)


def _used(value: JsonValue) -> Used:
    item = _object(value, "used")
    return {name: None if item[name] is None else _number(item, name) for name in item}


def _part(value: JsonValue) -> PartLine:
    item = _object(value, "a part")
    _only(item, "metric", "seconds", "comm_seconds", "work")
    return PartLine(
        metric=_text(item, "metric"),
        seconds=_number(item, "seconds"),
        comm_seconds=_number(item, "comm_seconds"),
        work=_number(item, "work"),
    )


def _verify(item: Mapping[str, JsonValue]) -> VerifyLine:
    _only(item, "event", "kernel", "name", "ok", "expected", "found", "seconds", "work")
    ok = item["ok"]
    if not isinstance(ok, bool):
        raise _Malformed("ok is neither true nor false")
    return VerifyLine(
        kernel=_whole(item, "kernel"),
        name=_text(item, "name"),
        ok=ok,
        expected=_object(item["expected"], "expected"),
        found=_object(item["found"], "found"),
        seconds=_number(item, "seconds"),
        work=_number(item, "work"),
    )


def _only(item: Mapping[str, JsonValue], *keys: str) -> None:
    """Exactly these keys."""
    if item.keys() == {*keys}:
        return
    if missing := [k for k in keys if k not in item]:
        raise _Malformed(f"{missing[0]} is missing")
    if unknown := [k for k in item if k not in keys]:
        raise _Malformed(f"{unknown[0]!r} is not known")


def _object(value: JsonValue, what: str) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise _Malformed(f"{what} is not an object")
    return value


def _list(item: Mapping[str, JsonValue], key: str) -> list[JsonValue]:
    value = item[key]
    if not isinstance(value, list):
        raise _Malformed(f"{key} is not a list")
    return value


def _texts(item: Mapping[str, JsonValue], key: str) -> tuple[str, ...]:
    texts = _list(item, key)
    if not all(isinstance(t, str) for t in texts):
        raise _Malformed(f"{key} holds something else than texts")
    return tuple(str(t) for t in texts)


def _text(item: Mapping[str, JsonValue], key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise _Malformed(f"{key} is not a text")
    return value


def _whole(item: Mapping[str, JsonValue], key: str, *, least: int = 0) -> int:
    return _as_whole(item[key], key, least=least)


def _as_whole(value: JsonValue, what: str, *, least: int = 0) -> int:
    if type(value) is int and value >= least:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _Malformed(f"{what} is not a whole number from {least}")
    return value


def _number(item: Mapping[str, JsonValue], key: str) -> float:
    """A finite number from 0."""
    value = item[key]
    if type(value) is float and 0 <= value < math.inf:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Malformed(f"{key} is not a number")
    try:
        number = float(value)
    except OverflowError as e:
        raise _Malformed(f"{key} is too large") from e
    if not math.isfinite(number) or number < 0:
        raise _Malformed(f"{key} is not a finite number from 0")
    return number
