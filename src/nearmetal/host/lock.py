"""A lock that allows one measurement at a time on a machine. All users share it, and it names the run that
holds it.

The lock is flock(2) on a file, so it is released when its holder ends, even by kill -9. The file names the
living runs, one JSON object per line; a line whose process has ended is ignored.

All users may write to the file, so nothing in it is believed. A line excludes other runs only if its process
is proven to be a run of nearmetal, or cannot be seen. A hostile user can hold the lock and delay others until
they use --force; he cannot have anything of theirs ended, or named as what it is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from ..errors import BusyError, RunError
from ..plain_text import one_line
from .labels import LABEL
from .processes.birth import birth, lives
from .processes.labelled import name_of
from .run_mark import bears_mark, bears_no_mark, find_marks, set_mark
from .untrusted import UntrustedDirectory

LIMIT = 1 << 16
"""Size of the lock file in bytes, beyond which nothing is read."""

_PIDS = range(2, 1 << 22)
_LAST_SECOND = 1 << 33
_COMMAND_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run, as recorded in the lock file.

    born: start time of the process in clock ticks since boot. It distinguishes the process from a later one
        with the same pid.
    run: label of the run.
    since: when the run took the lock, in Unix seconds.
    command: the command line, cleaned by clean_command().
    group: runs of the same group may measure at the same time; "" for a run that does not.
    """

    pid: int
    born: int
    run: str
    since: float
    command: str
    group: str = ""

    @property
    def line(self) -> str:
        """The line of the lock file, without the newline."""
        return json.dumps(asdict(self))


SHARED = Path("/run/lock")


def lock_path() -> Path:
    return lock_in(everyone=SHARED.is_dir() and bool(SHARED.stat().st_mode & stat.S_IWOTH))


def lock_in(*, everyone: bool) -> Path:
    """Return /run/lock/nearmetal.lock if all users may write to /run/lock, else /tmp/nearmetal.lock. No
    I/O."""
    return (SHARED if everyone else Path("/tmp")) / "nearmetal.lock"


def clean_command(text: str) -> str:
    """Return a command line that is safe to show, cut to a length that fits in a message. No I/O."""
    return one_line(text[:_COMMAND_LENGTH])


def _key(run: RunInfo) -> tuple[int, int, str]:
    return run.pid, run.born, run.run


def parse_runs(text: str) -> tuple[RunInfo, ...]:
    """Return the runs that a lock file names, each once. Lines that no run can have written are ignored. No
    I/O."""
    runs: dict[tuple[int, int, str], RunInfo] = {}
    for line in text[:LIMIT].splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            run = msgspec.json.decode(line, type=RunInfo)
            known = run.pid in _PIDS or run.pid == os.getpid()  # 1 in a container that runs only nearmetal
            if known and LABEL.fullmatch(run.run) and 0 <= run.since < _LAST_SECOND:
                runs[_key(run)] = replace(run, command=clean_command(run.command))
    return tuple(runs.values())


def living_runs(path: Path | None = None) -> tuple[RunInfo, ...]:
    """Return the runs that measure on this machine now: the holder of the lock, and runs started with
    --force.

    A run counts if its process bears its mark or holds the lock, or if it cannot be seen.
    """
    place = path or lock_path()
    return tuple(run for run in _alive(_entered(place)) if not _seen(run) or _proven(run, place))


def entered_labels(path: Path | None = None) -> frozenset[str]:
    """Return the labels of all runs in the lock file whose process lives, proven or not."""
    return frozenset(run.run for run in _alive(_entered(path or lock_path())))


def is_left_over(place: Path) -> bool:
    """Return whether something is in the place of a lock file that no process holds, and no living process is
    named in it."""
    try:
        with UntrustedDirectory(place.parent).open_file(place.name) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no lock file, but perhaps a FIFO or a link
        return os.path.lexists(place)
    return not entered_labels(place)


def _entered(place: Path) -> tuple[RunInfo, ...]:
    try:
        with UntrustedDirectory(place.parent).open_file(place.name) as file:
            return parse_runs(file.read(LIMIT).decode(errors="replace"))
    except OSError:
        return ()


def _alive(runs: Iterable[RunInfo]) -> list[RunInfo]:
    """Return the runs whose process lives, or may live where it cannot be seen from here."""
    alive, marks = [], None
    for run in runs:
        if not lives(run.pid, run.born):
            marks = find_marks() if marks is None else marks
            if run.run not in marks:
                continue
        alive.append(run)
    return alive


def _seen(run: RunInfo) -> bool:
    return birth(run.pid) == run.born


def _proven(run: RunInfo, place: Path) -> bool:
    """Return whether a process is a run of nearmetal: by its mark or, as older versions have none, because it
    holds the lock."""
    if not _seen(run):
        return False
    return bears_mark(run.pid, run.run) or (bears_no_mark(run.pid) and run.pid in _holders(place))


def _holders(place: Path) -> list[int]:
    """Return the processes that hold flock on a file. Processes of other PID namespaces are missing."""
    try:
        file = place.lstat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return []
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
    pattern = rf"^\d+: FLOCK +\S+ +\S+ +(\d+) {device}:{file.st_ino} "
    return [int(pid) for pid in re.findall(pattern, locks, re.MULTILINE)]


@contextmanager
def machine_lock(
    run_label: str, *, command: str, force: bool = False, group: str = "", path: Path | None = None
) -> Iterator[None]:
    """Hold the lock of the machine for one run.

    force: run even if another run holds the lock, or if the lock file cannot be used.
    group: hold the lock together with other runs of this group, which use other CPUs; '' to hold it alone.

    Raises BusyError with the name of the other run, or RunError if the lock file cannot be used.
    """
    place = path or lock_path()
    own = RunInfo(
        pid=os.getpid(),
        born=birth(os.getpid()) or 0,
        run=run_label,
        since=time.time(),
        command=clean_command(command),
        group=group,
    )
    with contextlib.ExitStack() as stack:
        try:
            fd = _take(place, force, group)
        except RunError:
            if not force:
                raise
            stack.enter_context(set_mark(run_label))
        else:
            stack.callback(os.close, fd)
            # A run that was forced holds no flock, and may have outlived the run that held it.
            if not force and _others(place, group):
                raise _busy(place)
            stack.enter_context(set_mark(run_label))
            stack.callback(_change, fd, drop=own, place=place)
            _change(fd, add=own)
            # Check again: a run that reaches this machine by ssh adds its line without locking the file.
            others = () if force else [run for run in _others(place, group) if _key(run) != _key(own)]
            if others:
                raise busy(others[0], "this machine", _owner(others[0], place))
        yield


def _others(place: Path, group: str) -> list[RunInfo]:
    """Return the living runs that exclude a run of this group."""
    return [run for run in living_runs(place) if not group or run.group != group]


_STARTING = 5.0
"""Seconds within which a run that has locked the file writes its line, or changes the lines."""


def _take(place: Path, force: bool, group: str) -> int:
    """Open the lock file, lock it, and return its descriptor.

    With `force`, or if a run of the same group holds the lock, the descriptor is returned without the lock.

    A holder removes the file when it ends. If the file was removed before it was locked here, a new one is
    made and locked.

    Raises BusyError if another run holds the lock, and RunError if the file cannot be used.
    """
    until = time.monotonic() + _STARTING
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
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            # First without O_CREAT: with it the kernel refuses another user's file in a directory like /tmp.
            fd = os.open(place, flags)
        except FileNotFoundError:
            try:
                fd = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # in spite of the umask: another user's run must be able to lock it
            except FileExistsError:
                continue
            except OSError as e:
                raise RunError(f"cannot make the lock {place}: {e.strerror}") from e
        except OSError as e:
            reason = "is a symbolic link" if e.errno == errno.ELOOP else (e.strerror or str(e))
            raise _unusable(place, reason) from e
        found = os.fstat(fd)
        # Another name of the file might be that of a file which matters.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(fd)
            raise _unusable(place, "is not a regular file of one name")
        if _is_at(fd, place):
            return fd
        os.close(fd)


def _unusable(place: Path, reason: str) -> RunError:
    try:
        whose = f", which belongs to {_user_name(place.lstat().st_uid)}"
    except OSError:
        whose = ""
    return RunError(
        f"cannot open the lock {place}{whose}: {reason}",
        remedy=f"have {place} removed if no run is alive, or use --force, which runs without the lock",
    )


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
    Whoever holds it for longer than any run does is not waited for.
    """
    until = time.monotonic() + _STARTING
    while not _lock_records(fd) and time.monotonic() < until:
        time.sleep(0.01)
    try:
        runs = _alive(parse_runs(os.pread(fd, LIMIT, 0).decode(errors="replace")))
        runs = [run for run in runs if drop is None or _key(run) != _key(drop)]
        text = "".join(f"{run.line}\n" for run in [*runs, *([add] if add is not None else [])])
        if add is not None and len(text) > LIMIT:  # somebody has filled it
            text = f"{add.line}\n"
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
        if not text and place is not None and _is_at(fd, place):
            with contextlib.suppress(OSError):  # a file of another user in /tmp: left empty
                place.unlink()
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _lock_records(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _busy(place: Path) -> BusyError:
    runs = living_runs(place)
    if runs:
        return busy(runs[0], "this machine", _owner(runs[0], place))
    holders = _holders(place)
    whose = _user_of(holders[0]) if holders else None
    if whose is None:
        return BusyError(
            f"a process that cannot be seen from here holds the lock {place}, and names no run",
            remedy="wait for it, or use --force, which may disturb another run",
        )
    name, user = clean_command(name_of(holders[0])), _user_name(whose)
    return BusyError(
        f"process {holders[0]} ({name}, of user {user}) holds the lock {place}, and names no run",
        remedy=f"wait for it, ask {user}, or use --force, which may disturb another run",
    )


def _owner(run: RunInfo, place: Path) -> int | None:
    """Return the user whose process a run is; None if that is not proven."""
    return _user_of(run.pid) if _proven(run, place) else None


def _user_of(pid: int) -> int | None:
    """Return the user of a process; None if it has ended or is hidden."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^Uid:\t(\d+)", text, re.MULTILINE)
    return None if found is None else int(found[1])


def _user_name(uid: int) -> str:
    """Return the name of a user, or the number if the user has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def busy(run: RunInfo, machine: str, uid: int | None) -> BusyError:
    """Return the error that names a run that measures on a machine.

    uid: user of the run; None if that is not known. Only the user's own process is one that may be ended.
    """
    since = time.strftime("%H:%M:%S", time.localtime(run.since))
    asking = "" if uid is None else f"ask {_user_name(uid)}, "
    stop = f"stop it (kill -INT {run.pid}), " if uid == os.geteuid() else asking
    return BusyError(
        f"{run.run} measures on {machine} since {since} (pid {run.pid}: {run.command})",
        remedy=f"wait for it, {stop}or use --force, which disturbs both runs",
    )
