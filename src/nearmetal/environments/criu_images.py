"""Reads the files that CRIU writes: images, statistics and logs."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError
from ..host.untrusted import UntrustedDirectory
from ..lifecycle import Method
from .program import read_log

PAGE = 4096
_FREEZING, _FROZEN, _WRITTEN = 1, 2, 7
"""Field numbers in the message of a dump in CRIU's stats.proto: freezing time, frozen time (both in
microseconds), pages written."""
_HEADER, _PAGES_ID, _FLAGS, _PAGES = 8, 1, 4, 5
"""Length in bytes of the header of a pagemap file, and field numbers of its entries in CRIU's
pagemap.proto."""
_IS_LAZY, _IS_PRESENT = 2, 4
"""Bits of the field _FLAGS."""


_LONGEST_NUMBER = 63
"""Largest shift in bits of a part of a number. Without a limit, a damaged file could take hours to read."""
_LONGEST_PAGEMAP = 1 << 28
"""Largest pagemap file that is read, in bytes: that of a process whose memory is in many small pieces."""


def _varints(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the field number and the value of each field of a message in the protocol buffers format. A value
    is an integer or a nested message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if shift > _LONGEST_NUMBER:
                raise IndexError(f"a number at {at} has no end")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        value = number()
        if tag & 7 == 0:
            yield tag >> 3, value
        else:  # a message of that length; CRIU's statistics contain nothing else
            yield tag >> 3, message[at : at + value]
            at += value


@dataclass(frozen=True, kw_only=True)
class DumpStatistics:
    """The statistics that CRIU writes about a dump.

    freezing: seconds until all processes stood still.
    frozen: seconds from then until they were resumed or killed.
    written: bytes of memory written to files or to a page server.
    """

    freezing: float
    frozen: float
    written: int


def read_statistics(stats: bytes, where: str = "") -> DumpStatistics:
    """Parse the content of a stats-dump file.

    where: path of the file, for error messages.

    Raises RunError if it has another format.
    """
    try:
        (size,) = struct.unpack_from("<I", stats, 8)
        dump = dict(_varints(stats[12 : 12 + size]))[1]
        values = dict(_varints(dump)) if isinstance(dump, bytes) else {}
        numbers = [values[n] for n in (_FREEZING, _FROZEN, _WRITTEN)]
    except (struct.error, IndexError, KeyError) as e:
        raise RunError(f"cannot read CRIU's stats-dump: {e!r}", where=where) from e
    freezing, frozen, written = (n if isinstance(n, int) else 0 for n in numbers)
    return DumpStatistics(freezing=freezing / 1e6, frozen=frozen / 1e6, written=written * PAGE)


@dataclass(frozen=True, kw_only=True)
class Pagemap:
    """Where the memory of one process is.

    pages: number N of the file pages-N.img with its memory.
    present: bytes of its memory in that file.
    lazy: bytes of its memory that a lazy dump left at the source.
    """

    pages: int
    present: int
    lazy: int


def read_pagemap(content: bytes, where: str = "") -> Pagemap:
    """Parse the content of a pagemap-*.img file.

    where: path of the file, for error messages.

    Raises RunError if the content is truncated.
    """
    present = lazy = 0
    try:
        entries = _entries(content)
        pages = next(entries, {})[_PAGES_ID]
        for entry in entries:
            size, flags = PAGE * entry.get(_PAGES, 0), entry.get(_FLAGS, 0)
            if flags & _IS_PRESENT:
                present += size
            elif flags & _IS_LAZY:  # every dump flags the pages that could be lazy, also those in the file
                lazy += size
    except (struct.error, IndexError, KeyError) as e:
        raise RunError(f"cannot read CRIU's pagemap: {e!r}", where=where) from e
    return Pagemap(pages=pages, present=present, lazy=lazy)


def _entries(content: bytes) -> Iterator[dict[int, int]]:
    """Yield the numbers in each entry of a pagemap, by number of the field."""
    at = _HEADER
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        entry = content[at + 4 : at + 4 + size]
        if not size or len(entry) < size:
            raise IndexError(f"{len(entry)} of {size} bytes")
        yield {n: v for n, v in _varints(entry) if isinstance(v, int)}
        at += 4 + size


def read_pagemaps(images: Path) -> Iterator[Pagemap]:
    """Parse all pagemap-*.img files of a directory.

    Raises RunError if one cannot be read, and OSError if the directory cannot."""
    files = UntrustedDirectory(images)
    for name in files.names():
        if name.startswith("pagemap-") and name.endswith(".img"):
            try:
                content = files.read_bytes(name, _LONGEST_PAGEMAP)
            except OSError as e:
                raise RunError(f"cannot read CRIU's pagemap: {e.strerror}", where=str(images / name)) from e
            yield read_pagemap(content, str(images / name))


def check_images(images: Path) -> None:
    """Check that the memory files of a checkpoint are complete: CRIU hangs when it restores incomplete ones.

    Raises RunError if a file is too short or missing.
    """
    expected: dict[int, int] = {}
    for found in read_pagemaps(images):
        expected[found.pages] = expected.get(found.pages, 0) + found.present
    for number, wanted in expected.items():
        file = images / f"pages-{number}.img"
        size = file.stat().st_size if file.exists() else 0
        if size != wanted:
            raise RunError(f"not restored: {file.name} has {size} of {wanted} bytes", where=str(images))


def statistics_of(images: Path) -> DumpStatistics:
    """Return the statistics of a finished dump.

    images: directory to which the dump wrote.
    Raises RunError if they cannot be read.
    """
    try:
        content = UntrustedDirectory(images).read_bytes("stats-dump")
        return read_statistics(content, str(images / "stats-dump"))
    except OSError as e:
        raise RunError(f"cannot read CRIU's stats-dump: {e.strerror}", where=str(images)) from e


def memory_sent(images: Path, method: Method) -> int:
    """Return the bytes of memory that CRIU itself sent to the destination; 0 for methods by which CRIU writes
    all memory to files.

    images: directory of the dump.
    """
    if method is Method.CRIU_PAGESERVER:
        return statistics_of(images).written
    if method is Method.CRIU_LAZY:
        return sum(pagemap.lazy for pagemap in read_pagemaps(images))
    return 0


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def image_bytes(directory: Path) -> int:
    files = UntrustedDirectory(directory)
    return sum(files.status(name).st_size for name in files.files() if name.endswith(".img"))


def first_error(log: Path) -> str:
    """Return the first error in a log of CRIU that explains a failure; empty if there is none."""
    # At verbosity levels above errors and warnings, CRIU puts a time in front of each line. During a restore
    # it also puts the number of the restored process there.
    lines = re.findall(r"^(?:\([\d.]+\) +)?(?: *\d+: )?(Error \(.*)$", read_log(log), re.M)
    errors = [line.partition("Error ")[2] for line in lines]
    # Without CAP_SYS_RESOURCE, CRIU logs this error and continues.
    return next((e.partition("): ")[2] for e in errors if "RLIMIT_NOFILE for self" not in e), "")


def lost_memory(log: Path) -> bool:
    """Whether CRIU says in the log of a restore that it has lost the program that fetches memory. It does not
    if that program ends because it has fetched everything."""
    return "Error (criu/uffd.c:" in read_log(log)
