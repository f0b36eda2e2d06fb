"""Reads trial records of all writers of a results directory, and keeps the books of blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordsError
from ..model.record import TrialRecord
from .codec import Malformed, UnknownSchema, from_dict, from_line, parse_json
from .writer import is_whole

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Trials:
    """records: ordered by (block, position, attempt), every attempt of every block; torn: last lines that
    were half-written when their writer was killed and are left out."""

    records: tuple[TrialRecord, ...]
    torn: int


def read_trials(files: Iterable[Path]) -> Trials:
    """The records of all files together. Raises RecordsError with file:line for a line that is corrupt, and
    for one of an unknown schema."""
    records: list[TrialRecord] = []
    torn = 0
    with _no_garbage_collection():
        for file in files:
            torn += _read_file(file, records)
    records.sort(key=lambda r: (r.block, r.position, r.attempt, r.begin))
    return Trials(records=tuple(records), torn=torn)


def completed_blocks(records: Iterable[TrialRecord], arms_per_block: int) -> set[int]:
    """Blocks of which one attempt has all its trials, failed ones included: they were run, and a trial that
    fails is a result. arms_per_block counts the A/A run too."""
    seen: dict[tuple[int, int], set[str]] = {}
    for r in records:
        seen.setdefault((r.block, r.attempt), set()).add(r.trial)
    return {block for (block, _), trials in seen.items() if len(trials) >= arms_per_block}


def next_attempt(records: Iterable[TrialRecord], block: int) -> int:
    """The attempt number with which to (re)run a block; attempts count from 1."""
    return 1 + max((r.attempt for r in records if r.block == block), default=0)


def latest_attempts(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Only the records of the last attempt of each block, order kept."""
    records = tuple(records)
    last: dict[int, int] = {}
    for r in records:
        last[r.block] = max(r.attempt, last.get(r.block, 0))
    return tuple(r for r in records if r.attempt == last[r.block])


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Millions of live objects and no cycles: the collector would walk them again and again.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_file(path: Path, out: list[TrialRecord]) -> int:
    """Append the records of one file to `out`; returns the number of torn lines (0 or 1)."""
    number, rest = 0, b""
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                rest, chunk = b"", rest + chunk
                cut = chunk.rfind(b"\n") + 1
                # The very last line is held back: only it may be torn.
                cut = chunk.rfind(b"\n", 0, cut - 1) + 1 if cut else 0
                chunk, rest = chunk[:cut], chunk[cut:]
                number += _decode(chunk, out, path, number)
    except OSError as e:
        raise RecordsError(f"cannot be read: {e.strerror or e}", where=str(path)) from e
    head = rest[: rest.rfind(b"\n", 0, -1) + 1]
    number += _decode(head, out, path, number)
    last = rest[len(head) :]
    if not last:
        return 0
    if not is_whole(last):
        return 1
    _decode(last, out, path, number)
    return 0


def _decode(chunk: bytes, out: list[TrialRecord], path: Path, before: int) -> int:
    """Decode whole lines; returns how many. before: lines of the file ahead of them."""
    if not chunk:
        return 0
    count = chunk.count(b"\n")
    # All lines as one array: one call of the parser, and keys that are shared among the records.
    try:
        items: list[Any] = parse_json("[" + chunk[:-1].decode().replace("\n", ",") + "]")
        if len(items) == count:
            out.extend([from_dict(item) for item in items])
            return count
    except (ValueError, RecursionError, UnknownSchema):
        pass
    for number, line in enumerate(chunk[:-1].split(b"\n"), before + 1):
        try:
            out.append(from_line(line))
        except Malformed as e:
            raise RecordsError(
                f"corrupt record: {e}",
                where=f"{path}:{number}",
                remedy="nearmetal verifies directories against SHA256SUMS; take the file from a copy, or move"
                " the line out of it to go on without that trial",
            ) from e
        except UnknownSchema as e:
            raise RecordsError(e.what, where=f"{path}:{number}", remedy=e.remedy) from e
    return count
