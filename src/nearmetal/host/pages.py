"""Samples pages of the memory of running processes, to see how fast they change. It only reads."""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..lifecycle import PageSample
from ..lifecycle.dirty import LOOKS, SAMPLED

PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
_TRIES = 2000
"""Addresses tried in a region for one page that has been touched."""
_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ *(.*)$")


@dataclass(frozen=True, kw_only=True)
class Region:
    """A memory mapping of a process.

    start: address.
    size: bytes.
    touched: bytes of touched pages that no existing file contains: private pages in memory or swap, or pages
        of shared memory whose file is deleted.
    permissions: as in /proc/<pid>/maps, such as 'rw-p'.
    """

    start: int
    size: int
    touched: int
    permissions: str

    @property
    def shared(self) -> bool:
        return self.permissions.endswith("s")


def regions(smaps: str) -> list[Region]:
    """Return the mappings with touched pages (Region.touched), from the text of /proc/<pid>/smaps."""
    found, head, sizes = [], None, dict[str, int]()
    for line in [*smaps.splitlines(), "0-0 ---p 0 0:0 0"]:
        begins = _HEAD.match(line)
        if begins is None:
            name, _, rest = line.partition(":")
            if rest.endswith(" kB"):
                sizes[name] = int(rest.split()[0]) << 10
            continue
        if head is not None and (touched := _touched(head, sizes)):
            start, end = int(head[1], 16), int(head[2], 16)
            found.append(Region(start=start, size=end - start, touched=touched, permissions=head[3]))
        head, sizes = begins, {}
    return found


def _touched(head: re.Match[str], sizes: dict[str, int]) -> int:
    if head[3].endswith("s"):  # for example shared memory of MPI or of a guest, whose file has no name
        return sizes.get("Rss", 0) if head[4].endswith("(deleted)") else 0
    return sizes.get("Anonymous", 0) + sizes.get("Swap", 0)


def own_memory(processes: Sequence[int]) -> int:
    """Return the bytes of touched memory of processes (Region.touched), added up. Processes that have ended
    count as 0, but the first one must exist.

    Raises UnavailableError if this user may not see the memory, RunError if the first process has ended.
    """
    total = sum(region.touched for region in _regions_of(processes[0]))
    for pid in processes[1:]:
        with contextlib.suppress(RunError):
            total += sum(region.touched for region in _regions_of(pid))
    return total


def shares_memory(processes: Sequence[int]) -> int | None:
    """Return the PID of another process that shares writable memory with one of these; None if there is none.

    Memory of a file that still has a name does not count: a restored process can open that file and share the
    memory again.
    """
    own = {key for pid in processes for key in _shared_maps(pid)}
    if own:
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if pid not in processes and not own.isdisjoint(_shared_maps(pid)):
                return pid
    return None


def _shared_maps(pid: int) -> set[tuple[str, ...]]:
    """Return (device, inode) of each writable shared mapping of a process whose file is deleted.

    Inodes of System V shared memory are unique only within an IPC namespace, which is therefore added.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        ipc = str(Path(f"/proc/{pid}/ns/ipc").readlink())
    except OSError:  # it has ended, or belongs to another user
        return set()
    lines = (line.split(maxsplit=5) for line in maps.splitlines() if line.endswith("(deleted)"))
    return {
        (words[3], words[4], *([ipc] if words[5].startswith("/SYSV") else []))
        for words in lines
        if words[1].startswith("rw") and words[1].endswith("s")
    }


def sample_pages(processes: Sequence[int], *, guest: int | None = None) -> PageSample:
    """Read random pages of processes now and again after LOOKS seconds, and count those that have changed.

    guest: bytes of memory of the guest that the processes run. Pages are then drawn from the mappings that
        hold the guest's memory, including pages that were never touched. None if they run no guest: touched
        pages are drawn from all mappings.

    Raises UnavailableError if this user may not read the memory, RunError if a process ends meanwhile.
    """
    rng = random.Random(1)
    with ExitStack() as stack:
        every = [
            (_Memory(pid, stack), region)
            for pid in processes
            for region in _of_guest(_regions_of(pid), guest)
        ]
        weights = [r.touched if guest is None else r.size for _, r in every]
        size = sum(weights)
        if not size:
            raise RunError(f"process {processes[0]} has no memory of its own")
        drawn = []
        for memory, region in rng.choices(every, weights, k=SAMPLED):
            address = memory.draw(region, rng, touched=guest is None)
            if address is not None:
                drawn.append((memory, address))
        if not drawn:
            raise RunError(f"no page of process {processes[0]} can be drawn")
        begin = time.monotonic()
        first = [memory.read(address) for memory, address in drawn]
        changed: set[int] = set()
        seen = []
        for look in LOOKS:
            time.sleep(max(begin + look - time.monotonic(), 0.0))
            at = time.monotonic() - begin
            changed |= {
                i
                for i, (memory, address) in enumerate(drawn)
                if i not in changed and memory.read(address) != first[i]
            }
            seen.append((at, len(changed)))
    empty = sum(not page or not page.strip(b"\0") for page in first)
    return PageSample(memory=size, pages=len(drawn), empty=empty, looks=tuple(seen))


def _of_guest(found: list[Region], guest: int | None) -> Iterator[Region]:
    """Yield the mappings that hold the memory of a guest; all if there is no guest.

    The memory of a guest is not executable, unlike the code that an emulator generates.
    """
    if guest is None:
        yield from found
        return
    able = [r for r in found if r.permissions.startswith("rw-")]
    left = guest
    for region in sorted(able, key=lambda r: (r.size != guest, -r.size)):
        if left <= 0:
            return
        yield region
        left -= region.size


class _Memory:
    """The memory of a process. Its files stay open until `stack` is closed."""

    def __init__(self, pid: int, stack: ExitStack) -> None:
        self._pid = pid
        with _explained(pid):
            self._pages = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self._pages)
            self._content = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self._content)

    def draw(self, region: Region, rng: random.Random, *, touched: bool) -> int | None:
        """Return the address of a random page; None if no touched page is found."""
        for _ in range(_TRIES if touched else 1):
            address = region.start + rng.randrange(region.size // PAGE) * PAGE
            entry = self._entry(address)
            own = region.shared or not entry & _OF_FILE
            if not touched or (entry & (_PRESENT | _SWAPPED) and own):
                return address
        return None

    def read(self, address: int) -> bytes:
        """Return the content of a page; empty if it is not in memory: never touched, or swapped out."""
        if not self._entry(address) & _PRESENT:
            return b""
        with _explained(self._pid):
            return os.pread(self._content, PAGE, address)

    def _entry(self, address: int) -> int:
        with _explained(self._pid):
            read = os.pread(self._pages, _ENTRY, address // PAGE * _ENTRY)
        if len(read) < _ENTRY:
            raise RunError(f"process {self._pid} has ended")
        return int.from_bytes(read, "little")


@contextlib.contextmanager
def _explained(pid: int) -> Iterator[None]:
    """Turn errors about the files of a process into errors for the user."""
    try:
        yield
    except PermissionError as e:
        raise UnavailableError(f"the memory of process {pid} cannot be read", remedy="run as root") from e
    except OSError as e:
        raise RunError(f"the memory of process {pid}: {e.strerror}") from e


def _regions_of(pid: int) -> list[Region]:
    with _explained(pid):
        return regions(Path(f"/proc/{pid}/smaps").read_text())
