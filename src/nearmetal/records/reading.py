"""Reads trial records of all writers of a results directory, and keeps the books of blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RecordsError
from ..model.record import TrialRecord
from .codec import Malformed, UnknownSchema, from_line
from .writer import is_whole


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


def by_attempt(records: Iterable[TrialRecord]) -> dict[tuple[int, int], list[TrialRecord]]:
    """The records of each block and attempt at it, in the order of the records."""
    out: dict[tuple[int, int], list[TrialRecord]] = {}
    for r in records:
        out.setdefault((r.block, r.attempt), []).append(r)
    return out


def completed_blocks(records: Iterable[TrialRecord], arms_per_block: int) -> set[int]:
    """Blocks of which one attempt has all its trials, failed ones included: they were run, and a trial that
    fails is a result. arms_per_block counts the A/A run too; a block without settled arms says how many
    trials it has."""
    seen: dict[tuple[int, int], set[str]] = {}
    members: dict[tuple[int, int], int] = {}
    for r in records:
        seen.setdefault((r.block, r.attempt), set()).add(r.trial)
        members[r.block, r.attempt] = r.members or arms_per_block
    return {block for (block, at), trials in seen.items() if len(trials) >= members[block, at]}


def last_attempts(records: Iterable[TrialRecord]) -> dict[int, int]:
    """Attempts by block, of those that were begun; a block is run again as the next one."""
    last: dict[int, int] = {}
    for r in records:
        last[r.block] = max(last.get(r.block, 0), r.attempt)
    return last


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
    number, line = 0, b""
    try:
        with path.open("rb") as file:
            for following in file:
                if line:
                    number += 1
                    out.append(_record(line, path, number))
                line = following
    except OSError as e:
        raise RecordsError(f"cannot be read: {e.strerror or e}", where=str(path)) from e
    if line and not is_whole(line):
        return 1
    if line:
        out.append(_record(line, path, number + 1))
    return 0


def _record(line: bytes, path: Path, number: int) -> TrialRecord:
    try:
        return from_line(line)
    except Malformed as e:
        raise RecordsError(
            f"corrupt record: {e}",
            where=f"{path}:{number}",
            remedy="take the file from a copy, or take this line out of it to go on without that trial",
        ) from e
    except UnknownSchema as e:
        raise RecordsError(e.what, where=f"{path}:{number}", remedy=e.remedy) from e
