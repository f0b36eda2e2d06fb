"""What a user's program inherits from the caller of nearmetal, where nearmetal or an instance would change
it: standard input, ignored and blocked signals, umask, priority, resource limits, and the locale."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..units import show
from .processes.helper import wait_readable

MOST_INPUT = 64 << 20
"""Bytes of a pipe that are kept for all runs."""
SILENT = 5.0
"""Seconds that nothing may come from a pipe."""
_LIMITS = range(16)
_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, so what the caller did is not known


def _bits(signals: set[signal.Signals]) -> int:
    return sum(1 << (number - 1) for number in signals)


_IGNORED = {s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN} - set(_BY_PYTHON)
"""Signals that the caller ignores. Read when this module is imported: a run sets handlers of its own."""


def inherited_state() -> str:
    """Return the argument of `nm-rank --caller`."""
    status = Path("/proc/self/status").read_text()
    mask = re.search(r"^Umask:\s+([0-7]+)", status, re.MULTILINE)
    oom = Path("/proc/self/oom_score_adj").read_text().strip()
    blocked = _bits(set(map(signal.Signals, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    limits = (f"{soft}:{hard}" for soft, hard in map(resource.getrlimit, _LIMITS))
    words = [mask[1] if mask else "022", f"{nice}", oom, f"{_bits(_IGNORED):x}", f"{blocked:x}", *limits]
    return " ".join(words)


def variables_of_python() -> dict[str, None]:
    """Return the variables that Python has added to this process's environment (PEP 538)."""
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    coerced = os.environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8")
    return {"LC_CTYPE": None} if coerced and not any(v.startswith(b"LC_CTYPE=") for v in given) else {}


@dataclass(frozen=True, kw_only=True)
class StandardInput:
    """The standard input of a user's programs: each run reads it from the same place on.

    path: a file that is opened for each run.
    offset: bytes before that place.
    what: text for the record.
    note: what differs from the program run by hand; '' for nothing.
    """

    path: str
    offset: int
    what: str
    note: str = ""

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open it for one run. Yields its descriptor."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self.offset:
                os.lseek(fd, self.offset, os.SEEK_SET)
            yield fd
        finally:
            os.close(fd)


NO_INPUT = StandardInput(path=os.devnull, offset=0, what="empty")


def is_file(fd: int = 0) -> bool:
    """Return whether standard input is a file."""
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class Caller:
    """What the programs of a run inherit.

    state: see inherited_state().
    variables: changes of this process's variables.
    directory: working directory, by the name that the caller uses for it.
    """

    state: str
    directory: str
    variables: Mapping[str, str | None]
    input: StandardInput


def caller(given: StandardInput) -> Caller:
    here = Path.cwd()
    named = Path(os.environ.get("PWD", here))
    return Caller(
        state=inherited_state(),
        directory=str(named if named.exists() and named.samefile(here) else here),
        variables=variables_of_python(),
        input=given,
    )


@contextmanager
def caller_input(fd: int = 0) -> Iterator[StandardInput]:
    """Yield the caller's standard input. A pipe is read to its end.

    Raises UsageError if a pipe holds more than MOST_INPUT, or does not end.
    """
    try:
        kept = os.dup(fd)
    except OSError:
        yield NO_INPUT  # closed
        return
    try:
        mode = os.fstat(kept).st_mode
        if stat.S_ISREG(mode):
            yield _of_file(kept)
        elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            yield _of_pipe(kept)
        elif os.isatty(kept):
            yield StandardInput(
                path=os.devnull,
                offset=0,
                what=NO_INPUT.what,
                note="programs get no input from this terminal; < FILE gives them one",
            )
        elif os.fstat(kept).st_rdev == os.makedev(1, 3):
            yield NO_INPUT
        else:
            yield StandardInput(path=f"/proc/self/fd/{kept}", offset=0, what="a device")
    finally:
        os.close(kept)


def _of_file(fd: int) -> StandardInput:
    offset = os.lseek(fd, 0, os.SEEK_CUR)
    what = f"a file of {os.fstat(fd).st_size:,} bytes from byte {offset:,} on"
    found = StandardInput(path=f"/proc/self/fd/{fd}", offset=offset, what=what)
    try:
        with found.opened():
            return found
    except PermissionError:  # this user got it open, but may not open it
        data = bytearray()
        while piece := os.pread(fd, 1 << 20, offset + len(data)):
            data += piece
            _require_small(data)
        return _kept(fd, data, what)


def _of_pipe(fd: int) -> StandardInput:
    data = bytearray()
    deadline = time.monotonic() + SILENT
    while wait_readable(fd, deadline - time.monotonic()):
        try:
            piece = os.read(fd, 1 << 20)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINTR):
                continue
            raise UsageError(f"standard input cannot be read: {e.strerror}", remedy="< FILE") from e
        if not piece and not data:
            return NO_INPUT
        if not piece:
            return _kept(fd, data, f"a pipe of {show(len(data), 'B', binary=True)}")
        data += piece
        _require_small(data)
        deadline = time.monotonic() + SILENT
    if data:
        raise UsageError(
            f"standard input, a pipe, did not end: nothing came for {SILENT:g} s", remedy="use < FILE"
        )
    note = f"programs read an empty standard input: nothing came from the pipe for {SILENT:g} s; < FILE"
    return StandardInput(path=os.devnull, offset=0, what=NO_INPUT.what, note=note)


def _require_small(data: bytearray) -> None:
    if len(data) > MOST_INPUT:
        raise UsageError(
            f"standard input has more than {show(MOST_INPUT, 'B', binary=True)}, which is kept for all runs",
            remedy="use < FILE, which is read from its place",
        )


def _kept(fd: int, data: bytearray, what: str) -> StandardInput:
    """Keep data in a file in memory, in place of the descriptor."""
    memory = os.memfd_create("standard input", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(memory, view) :]
        os.dup2(memory, fd, inheritable=False)
    finally:
        os.close(memory)
    return StandardInput(path=f"/proc/self/fd/{fd}", offset=0, what=what)
