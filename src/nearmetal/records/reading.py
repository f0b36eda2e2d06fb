"""Reads the trial records of all writers of a results directory. Finds complete blocks and last attempts."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, overload

import msgspec

from ..errors import RecordsError
from ..host.untrusted import UntrustedDirectory
from ..model.record import Claim, Head, Status, TrialData, TrialRecord, claim_of, counting
from .codec import Malformed, Record, UnknownSchema, data_from_line, from_line
from .disk import require_owner
from .json_files import names_in, unreadable
from .writer import is_whole

ENDING = ".jsonl"
"""Ending of the names of trials files."""
_BUFFER, _GROUP = 1 << 16, 1 << 20

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_NUMBER = rb"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_HEAD = re.compile(
    rb'\{"schema":[1-3],"run":"([^"\\]*)","trial":' + _TEXT + rb',"block":(-?\d+),"attempt":(\d+),'
    rb'"arm":"([^"\\]*)","aa":(true|false),"position":(\d+),"begin":'
    + _NUMBER
    + rb',"end":'
    + _NUMBER
    + rb',"fold":"[a-z]+","status":"(ok|failed)"'
)
"""The beginning of a line as written by records.codec. A line that begins differently is decoded as a
whole."""
_TAIL = re.compile(rb'(\d+)(?:,"left_out":\[[^\]]*\])?\}\n?')
_MEMBERS = b',"members":'


class StoredTrial(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The identity of the trial that a line contains, and the position of the line.

    file: index of the file in Trials.files.
    line: number of the line, from 1.
    offset, length: position and length of the line in bytes.

    For the other fields, see model.record.TrialRecord.
    """

    file: int
    line: int
    offset: int
    length: int
    run: str
    block: int
    attempt: int
    arm: str
    aa: bool
    position: int
    begin: float
    end: float
    status: Status
    members: int


class Trials(Sequence[TrialRecord]):
    """The records of all writers, with every attempt of every block, ordered by (block, position, attempt).

    Each record is read from its file when it is accessed, and not kept. Reading a corrupt record raises
    RecordsError with file:line.

    directory: the directory of the trials files.
    files: names of all trials files.
    heads: identities of the trials, in the order of the records.
    torn: number of incomplete last lines, which are ignored. A killed writer may leave one.
    """

    def __init__(
        self, directory: UntrustedDirectory, files: Sequence[str], heads: Sequence[StoredTrial], torn: int
    ) -> None:
        self.directory, self.files = directory, tuple(files)
        self.heads, self.torn = tuple(heads), torn

    def __len__(self) -> int:
        return len(self.heads)

    @overload
    def __getitem__(self, at: int) -> TrialRecord: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[TrialRecord, ...]: ...
    def __getitem__(self, at: int | slice) -> TrialRecord | tuple[TrialRecord, ...]:
        if isinstance(at, slice):
            return tuple(self.read(range(len(self))[at]))
        return next(self.read((at,)))

    def __iter__(self) -> Iterator[TrialRecord]:
        return self.read(range(len(self)))

    def read(self, which: Iterable[int]) -> Iterator[TrialRecord]:
        """Yield the records with these indexes, in this order."""
        return self.lines(which).records()

    def lines(self, which: Iterable[int]) -> StoredLines:
        """Return the positions of the lines of the records with these indexes, in this order."""
        heads = (self.heads[at] for at in which)
        places = array("q", [n for h in heads for n in (h.file, h.line, h.offset, h.length)])
        return StoredLines(directory=self.directory, files=self.files, places=places)


@dataclass(frozen=True, kw_only=True)
class StoredLines:
    """The positions of lines in trials files. The object is small, so it can be sent to another process.

    places: four numbers for each line: index of the file in `files`, line number, offset and length in bytes.
    loaded: the text of the lines, if they are in memory; else None.
    """

    directory: UntrustedDirectory
    files: tuple[str, ...]
    places: array[int]
    loaded: tuple[bytes, ...] | None = None

    def load(self) -> StoredLines:
        """Return the same lines, with their text in memory. Raises RecordsError if a file cannot be read."""
        return replace(self, loaded=tuple(self.read()))

    def records(self) -> Iterator[TrialRecord]:
        """Yield the records of the lines. Raises RecordsError with file:line for a corrupt one."""
        return self._decoded(from_line)

    def data(self) -> Iterator[TrialData]:
        """Yield the fields of the records that the analysis uses. Raises RecordsError like records(), but
        does not check the numbers of rows."""
        return self._decoded(data_from_line)

    def read(self) -> Iterator[bytes]:
        """Yield the lines as they are stored. Raises RecordsError if a file cannot be read."""
        if self.loaded is not None:
            yield from self.loaded
            return
        with ExitStack() as stack:
            opened: dict[int, BinaryIO] = {}
            for file, offset, lengths in self._adjacent():
                name = self.files[file]
                try:
                    if file not in opened:
                        opened[file] = stack.enter_context(self.directory.open_file(name, _BUFFER))
                    opened[file].seek(offset)
                    text = opened[file].read(sum(lengths))
                except OSError as e:
                    raise unreadable(e, self.directory.path_to(name)) from e
                at = 0
                for length in lengths:
                    yield text[at : at + length]
                    at += length

    def _each(self) -> Iterator[tuple[int, int, int, int]]:
        numbers = iter(self.places)
        return zip(numbers, numbers, numbers, numbers, strict=True)

    def _adjacent(self) -> Iterator[tuple[int, int, list[int]]]:
        """Yield groups of adjacent lines of a file, of about _GROUP bytes at most. A group consists of
        the index of the file, the offset of its first line, and the length of each line."""
        first, begin, end = -1, 0, 0
        lengths: list[int] = []
        for file, _, offset, length in self._each():
            if lengths and (file != first or offset != end or end - begin >= _GROUP):
                yield first, begin, lengths
                lengths = []
            if not lengths:
                first, begin = file, offset
            lengths.append(length)
            end = offset + length
        if lengths:
            yield first, begin, lengths

    def _decoded(self, decode: Callable[[bytes], Record]) -> Iterator[Record]:
        for (file, number, _, _), line in zip(self._each(), self.read(), strict=True):
            yield _record(decode, line, self.directory.path_to(self.files[file]), number)


def heads_of(records: Sequence[TrialRecord]) -> Sequence[Head]:
    """Return the identities of the trials. Records that are not in memory are not read."""
    return records.heads if isinstance(records, Trials) else records


def read_trials(directory: UntrustedDirectory, files: Iterable[str]) -> Trials:
    """Return the trials of these files of a directory. Only the identities of the trials are read.

    Raises RecordsError if a file cannot be read, and with file:line for a line from which the identity cannot
    be read or whose schema is unknown.
    """
    heads: list[StoredTrial] = []
    torn = 0
    files = tuple(files)
    names: dict[bytes, str] = {}
    for number, file in enumerate(files):
        torn += _scan(number, directory, file, heads, names)
    heads.sort(key=_order)
    return Trials(directory, files, heads, torn)


def _order(head: StoredTrial) -> tuple[int, int, int, float]:
    return head.block, head.position, head.attempt, head.begin


class GrowingTrials:
    """The trials of a results directory to which a run still writes. Only their identities are kept in
    memory."""

    def __init__(self, trials: Path) -> None:
        """trials: the directory with one file for each writer."""
        self._directory = UntrustedDirectory.part(trials)
        self._files: list[str] = []
        self._ends: list[tuple[int, int]] = []
        self._heads: list[StoredTrial] = []
        self._names: dict[bytes, str] = {}

    def now(self) -> Trials:
        """Return all trials that are on disk now. Only lines that were added since the last call are read.

        Raises the errors of read_trials().
        """
        known = set(self._files)
        new = [name for name in names_in(self._directory, ENDING) if name not in known]
        self._files += new
        self._ends += [(0, 0)] * len(new)
        torn, before = 0, len(self._heads)
        for number, file in enumerate(self._files):
            torn += _scan(number, self._directory, file, self._heads, self._names, *self._ends[number])
        for head in self._heads[before:]:
            self._ends[head.file] = head.offset + head.length, head.line
        self._heads.sort(key=_order)
        return Trials(self._directory, self._files, self._heads, torn)


class NewTrials:
    """Reads the records that writers have appended to a results directory since the last call. Only the
    position in each file is kept in memory."""

    def __init__(self, trials: Path) -> None:
        """trials: the directory with one file for each writer."""
        self._directory = UntrustedDirectory.part(trials)
        self._read: dict[str, tuple[int, int]] = {}

    def skip(self, known: Trials) -> None:
        """Do not return records that are known already."""
        for head in known.heads:
            end = head.offset + head.length, head.line
            self._read[known.files[head.file]] = max(end, self._read.get(known.files[head.file], end))

    def read(self) -> list[TrialRecord]:
        """Return the new records of all files. An incomplete last line is left for the next call.

        Raises RecordsError with file:line for a corrupt record, and for a file of another user.
        """
        found: list[TrialRecord] = []
        for file in names_in(self._directory, ENDING):
            offset, number = self._read.get(file, (0, 0))
            path = self._directory.path_to(file)
            try:
                require_owner(self._directory, file, "its records would count")
                lines = list(self._directory.lines(file, offset))
            except OSError as e:
                raise unreadable(e, path) from e
            if lines and not is_whole(lines[-1]):
                lines.pop()
            for line in lines:
                number += 1
                found.append(_record(from_line, line, path, number))
                offset += len(line)
            self._read[file] = offset, number
        return found


def by_claim(records: Iterable[TrialRecord]) -> dict[Claim, list[TrialRecord]]:
    """Return the records of each attempt at a block, by attempt, in the order of the records."""
    out: dict[Claim, list[TrialRecord]] = {}
    for r in records:
        out.setdefault(claim_of(r), []).append(r)
    return out


def completed_blocks(records: Iterable[TrialRecord], arms_per_block: int) -> set[int]:
    """Return the numbers of the blocks that have a complete attempt. Failed trials count, since a failure is
    a result.

    arms_per_block: number of trials in a block, including the A/A run; used if the records do not contain it.
    """
    return {
        claim.block for claim, found in by_claim(records).items() if is_whole_attempt(found, arms_per_block)
    }


def last_attempts(records: Iterable[Head]) -> dict[int, int]:
    """Return, by block, the number of the last attempt, including incomplete ones."""
    last: dict[int, int] = {}
    for r in records:
        last[r.block] = max(last.get(r.block, 0), r.attempt)
    return last


def counted_attempts(records: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Return the records of the attempts that count, one attempt for each block, in the order of the records.
    See model.record.counting().

    Old records do not contain the number of trials of their attempt. It is then assumed to be that of the
    largest attempt.
    """
    records = tuple(records)
    attempts = by_claim(records)
    most = max((len(found) for found in attempts.values()), default=0)
    whole = {c: min(r.begin for r in found) for c, found in attempts.items() if is_whole_attempt(found, most)}
    counted = set(counting(whole).values())
    return tuple(r for r in records if claim_of(r) in counted)


def is_whole_attempt(found: Sequence[TrialRecord], arms_per_block: int) -> bool:
    """Return whether these records of one attempt contain all of its trials.

    arms_per_block: see completed_blocks().
    """
    return len({r.trial for r in found}) >= (found[-1].members or arms_per_block)


def _scan(
    file: int,
    directory: UntrustedDirectory,
    name: str,
    out: list[StoredTrial],
    names: dict[bytes, str],
    offset: int = 0,
    number: int = 0,
) -> int:
    """Append the trials of one file to `out`. Returns the number of incomplete lines (0 or 1).

    file: index of the file.
    name: name of the file in its directory.
    names: strings that occurred before; see _known().
    offset, number: number of bytes and of lines at the beginning of the file to skip.
    """
    line, path = b"", directory.path_to(name)
    try:
        for following in directory.lines(name, offset):
            if line:
                number += 1
                out.append(_stored(line, path, names, file=file, number=number, offset=offset))
                offset += len(line)
            line = following
    except OSError as e:
        raise unreadable(e, path) from e
    if line and not is_whole(line):
        return 1
    if line:
        out.append(_stored(line, path, names, file=file, number=number + 1, offset=offset))
    return 0


def _stored(
    line: bytes, path: Path, names: dict[bytes, str], *, file: int, number: int, offset: int
) -> StoredTrial:
    found = _HEAD.match(line)
    run = _known(found[1], names) if found is not None else None
    arm = _known(found[4], names) if found is not None else None
    members = _members(line)
    place = {"file": file, "line": number, "offset": offset, "length": len(line)}
    if found is None or run is None or arm is None or members is None:
        r = _record(from_line, line, path, number)
        return StoredTrial(
            **place,
            run=r.run,
            block=r.block,
            attempt=r.attempt,
            arm=r.arm,
            aa=r.aa,
            position=r.position,
            begin=r.begin,
            end=r.end,
            status=r.status,
            members=r.members,
        )
    _, block, attempt, _, aa, position, begin, end, status = found.groups()
    return StoredTrial(
        **place,
        run=run,
        block=int(block),
        attempt=int(attempt),
        arm=arm,
        aa=aa == b"true",
        position=int(position),
        begin=float(begin),
        end=float(end),
        status=Status.OK if status == b"ok" else Status.FAILED,
        members=members,
    )


def _known(text: bytes, names: dict[bytes, str]) -> str | None:
    """Return the same string object for equal texts, to save memory; None if the text is not UTF-8."""
    name = names.get(text)
    if name is None:
        with suppress(UnicodeDecodeError):
            name = names[text] = text.decode()
    return name


def _members(line: bytes) -> int | None:
    """Return TrialRecord.members from the end of a line; None if the whole line must be decoded for it."""
    at = line.rfind(_MEMBERS)
    if at < 0:
        return 0
    found = _TAIL.fullmatch(line, at + len(_MEMBERS))
    return int(found[1]) if found is not None else None


def _record(decode: Callable[[bytes], Record], line: bytes, path: Path, number: int) -> Record:
    try:
        return decode(line)
    except Malformed as e:
        raise RecordsError(
            f"corrupt record: {e}",
            where=f"{path}:{number}",
            remedy="take the file from a copy, or take this line out of it to go on without that trial",
        ) from e
    except UnknownSchema as e:
        raise RecordsError(e.what, where=f"{path}:{number}", remedy=e.remedy) from e
