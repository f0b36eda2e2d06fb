"""A lock that allows one measurement at a time on a machine. All users share it, and it names the run that
holds it.

The lock is flock(2) on a file, so it is released when its holder ends, even by kill -9. The file names the
living runs, one JSON object per line; a line whose process has ended is ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from ..errors import BusyError, RunError


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run, as recorded in the lock file.

    born: start time of the process in clock ticks since boot. It distinguishes the process from a later one
        with the same pid.
    run: label of the run.
    since: when the run took the lock, in Unix seconds.
    group: runs of the same group may measure at the same time; "" for a run that does not.
    """

    pid: int
    born: int
    run: str
    since: float
    command: str
    group: str = ""

    @property
    def alive(self) -> bool:
        return birth(self.pid) == self.born

    @property
    def line(self) -> str:
        """The line of the lock file, without the newline."""
        return json.dumps(asdict(self))


def owns(run: str, name: str) -> bool:
    """Return whether a name is the label of a run, or of a part of it such as an instance. No I/O."""
    return name == run or name.startswith(f"{run}-")


def birth(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist or is a
    zombie."""
    try:
        return birth_in(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None


def birth_in(text: str) -> int | None:
    """Return the start time in the text of /proc/PID/stat; None for a zombie and for other text. No I/O."""
    fields = text.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else int(fields[19])


SHARED = Path("/run/lock")


def lock_path() -> Path:
    return lock_in(everyone=SHARED.is_dir() and bool(SHARED.stat().st_mode & stat.S_IWOTH))


def lock_in(*, everyone: bool) -> Path:
    """Return /run/lock/nearmetal.lock if all users may write to /run/lock, else /tmp/nearmetal.lock. No
    I/O."""
    return (SHARED if everyone else Path("/tmp")) / "nearmetal.lock"


def parse_runs(text: str) -> tuple[RunInfo, ...]:
    """Return the runs that a lock file names. Lines that cannot be parsed are ignored."""
    runs = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            runs.append(msgspec.json.decode(line, type=RunInfo))
    return tuple(runs)


def living_runs(path: Path | None = None) -> tuple[RunInfo, ...]:
    """Return the runs that measure on this machine now: the holder of the lock, and runs started with
    --force."""
    try:
        text = (path or lock_path()).read_text(errors="replace")
    except OSError:
        return ()
    return tuple(run for run in parse_runs(text) if run.alive)


@contextmanager
def machine_lock(
    run_label: str, *, command: str, force: bool = False, group: str = "", path: Path | None = None
) -> Iterator[None]:
    """Hold the lock of the machine for one run.

    force: run even if another run holds the lock.
    group: hold the lock together with other runs of this group, which use other CPUs; '' to hold it alone.

    Raises BusyError with the name of the other run, or RunError if the lock file cannot be used.
    """
    place = path or lock_path()
    own = RunInfo(
        pid=os.getpid(),
        born=birth(os.getpid()) or 0,
        run=run_label,
        since=time.time(),
        command=command,
        group=group,
    )
    fd = _take(place, force, group)
    try:
        # A run that was forced holds no flock, and may have outlived the run that held it.
        if not force and _others(place, group):
            raise _busy(place)
        _change(fd, add=own)
        try:
            # Check again: a run that reaches this machine by ssh adds its line without locking the file.
            me = own.pid, own.born
            others = () if force else [run for run in _others(place, group) if (run.pid, run.born) != me]
            if others:
                raise busy(others[0], "this machine")
            yield
        finally:
            _change(fd, drop=own, place=place)
    finally:
        os.close(fd)


def _others(place: Path, group: str) -> list[RunInfo]:
    """Return the living runs that exclude a run of this group."""
    return [run for run in living_runs(place) if not group or run.group != group]


_STARTING = 5.0
"""Seconds within which a run that has locked the file writes its line."""


def _take(place: Path, force: bool, group: str) -> int:
    """Open the lock file, lock it, and return its descriptor.

    With `force`, or if a run of the same group holds the lock, the descriptor is returned without the lock.

    A holder removes the file when it ends. If the file was removed before it was locked here, a new one is
    made and locked.

    Raises BusyError if another run holds the lock, and RunError if the file cannot be used.
    """
    until = time.monotonic() + (_STARTING if group else 0.0)
    while True:
        fd = _open(place)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            living = living_runs(place)
            if force or (living and not _others(place, group)):
                return fd
            os.close(fd)
            if not living and time.monotonic() < until:
                time.sleep(0.01)
                continue
            raise _busy(place) from e
        if _is_at(fd, place):
            return fd
        os.close(fd)


def _open(place: Path) -> int:
    """Open or make the lock file, and make sure that it is still at `place`: its last holder may just have
    removed it."""
    while True:
        try:
            # First without O_CREAT: with it the kernel refuses another user's file in a directory like /tmp.
            fd = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            try:
                fd = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # in spite of the umask: another user's run must be able to lock it
            except FileExistsError:
                continue
            except OSError as e:
                raise RunError(f"cannot make the lock {place}: {e.strerror}") from e
        except OSError as e:
            raise RunError(
                f"cannot open the lock {place}: {e.strerror}", remedy=f"remove {place} if no run is alive"
            ) from e
        if _is_at(fd, place):
            return fd
        os.close(fd)


def _is_at(fd: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), place.lstat())
    except FileNotFoundError:
        return False


def _change(
    fd: int, *, add: RunInfo | None = None, drop: RunInfo | None = None, place: Path | None = None
) -> None:
    """Rewrite the lines of the living runs, and remove the file from `place` if it becomes empty.

    A POSIX record lock, which is independent of flock, keeps two processes from writing at the same time.
    """
    fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        text = os.pread(fd, 1 << 20, 0).decode(errors="replace")
        runs = [run for run in parse_runs(text) if run.alive and run != drop]
        if add is not None:
            runs.append(add)
        os.ftruncate(fd, 0)
        os.pwrite(fd, "".join(f"{run.line}\n" for run in runs).encode(), 0)
        if not runs and place is not None and _is_at(fd, place):
            with contextlib.suppress(OSError):  # a file of another user in /tmp: left empty
                place.unlink()
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _busy(place: Path) -> BusyError:
    runs = living_runs(place)
    if not runs:
        return BusyError("another run is just starting on this machine", remedy="try again")
    return busy(runs[0], "this machine")


def busy(run: RunInfo, machine: str) -> BusyError:
    """Return the error that names a run that measures on a machine. No I/O."""
    since = time.strftime("%H:%M:%S", time.localtime(run.since))
    return BusyError(
        f"{run.run} measures on {machine} since {since} (pid {run.pid}: {run.command})",
        remedy=f"wait for it, stop it (kill -INT {run.pid}), or use --force, which disturbs both runs",
    )
