"""Remedies for a program that could not be started, or that ended with an error. No I/O."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...model.environments.environment import DISKS, STORAGE
from ...model.environments.image import HOST
from ...model.study import Environment
from ...units import show

NOT_EXECUTABLE, COMMAND_NOT_FOUND = 126, 127
"""Exit statuses with which a shell reports that it could not execute a command, or did not find it."""
_KNOWN = {
    "does not support O_DIRECT": "this storage does not support direct requests: use buffered ones (mode: "
    "buffered), or another storage, such as {kind: loop, size: 1 GiB}; in a guest, that of guest: writable",
    os.strerror(errno.ENOSPC): "a larger storage, or a smaller size",
}
"""Remedies by a text that the program's message contains."""
GUEST_ENDED = "its console is in console.*.txt there; more guest: {memory: ...} if it ran out of memory"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LIBRARY = re.compile(r"error while loading shared libraries: ([^\s:]+)")
_VERSION = re.compile(r"version [`'\"]?((?:GLIBC|GLIBCXX|CXXABI)_[\w.]+)'? not found")


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run of a program that failed.

    argv: command line of the program.
    mpi: number of ranks if mpirun started it, else 0.
    directory: working directory of the run; None if it was made only for the run.
    virtual: whether it ran in a virtual machine.
    works_by_hand: whether the same command was run by hand before, in the same directory, and succeeded.
    head: first bytes of the program on this machine; empty if it is not here.
    """

    argv: Sequence[str]
    mpi: int
    directory: Path | None
    environment: Environment
    virtual: bool
    works_by_hand: bool = False
    head: bytes = b""

    @property
    def program(self) -> str:
        """First word of its command line."""
        return self.argv[0]

    def by_hand(self) -> str:
        """Return how to run the program without nearmetal."""
        launcher = ("mpirun", "-n", str(self.mpi)) if self.mpi else ()
        line = shlex.join([*launcher, *(word.replace(STORAGE, DISKS) for word in self.argv)])
        if self.directory is None:
            return f"run it by hand in a directory with its files: {line}"
        return f"run it by hand: cd {shlex.quote(str(self.directory))} && {line}"


def start_remedy(run: FailedRun, reason: str) -> str:
    """Return what to do about a program that could not be started.

    reason: error message of the C library.
    """
    program, image = run.program, run.environment.image
    if os.strerror(errno.EACCES) in reason:
        return f"chmod +x {program}, if it is a program; else name what runs it: [python3, {program}]"
    if (mend := _first_line_remedy(run)) is not None:
        return mend
    if os.strerror(errno.ENOEXEC) in reason:
        return (
            f"file {program} shows whether it was compiled for another processor; "
            "a script needs a first line such as #!/bin/sh"
        )
    if image != HOST:
        has = "this machine has it, the image does not: " if run.head else ""
        return f"{has}add its package to image {image} and build it again, or copy it there by files"
    if run.head:
        return (
            f"head -1 {program} names an interpreter that may be missing; "
            "a program in /run or /dev/shm must be moved below the working directory"
        )
    return "install it" if program.startswith("/") else "install it, or name it by its absolute path"


def end_remedy(run: FailedRun, status: int, message: str) -> str:
    """Return what to do about a program that ended with an error.

    status: exit status; negative or above 128 for a signal.
    message: what the program printed about its failure.
    """
    for part, remedy in _KNOWN.items():
        if part in message:
            return remedy
    if found := _LIBRARY.search(message):
        return _library_remedy(run, found[1])
    if found := _VERSION.search(message):
        other = "image: host" if _has_image(run) else "link it statically"
        return f"it was compiled on a newer system than this ({found[1]}): compile it there, or {other}"
    number = status - 128 if status > 128 else -status
    if number in _SIGNALS:
        return _signal_remedy(run, signal.Signals(number))
    if status == COMMAND_NOT_FOUND:
        place = f" in image {run.environment.image}" if _has_image(run) else ""
        return f"a command that it starts is not there: install it{place}, or name it by its absolute path"
    if status == NOT_EXECUTABLE:
        return "a command that it starts cannot be executed: chmod +x, or name what runs it: sh, python3"
    if os.strerror(errno.EACCES) in message or os.strerror(errno.EPERM) in message:
        return "it may not do that as the user that it runs as (whoami): change the owner or mode of the file"
    if os.strerror(errno.ENOENT) in message and _has_image(run):
        return (
            f"it sees the files of image {run.environment.image}, and those below the working directory: "
            "put the file there, or name it under files in a study"
        )
    return _seen_only_here(run, message) if run.works_by_hand else run.by_hand()


def _seen_only_here(run: FailedRun, message: str) -> str:
    """Return what to do about a program that works by hand and fails in an environment."""
    if os.strerror(errno.EROFS) in message:
        return (
            f"by hand it may write there; here only below the working directory and in {STORAGE}: start in "
            f"the directory that it writes to, or name {STORAGE}"
        )
    if os.strerror(errno.ECONNREFUSED) in message or os.strerror(errno.ENETUNREACH) in message:
        return "by hand it works: here it has a network of its own; --attachment host gives it the machine's"
    if os.strerror(errno.ENOENT) in message:
        return (
            "by hand it works: here /tmp, /run, /dev/shm and devices are not the machine's; put its files "
            "below the working directory"
        )
    return "by hand it works, so what it misses is in this environment: --attachment host, or its log"


def _first_line_remedy(run: FailedRun) -> str | None:
    """Return what to do about a script whose first line the kernel cannot read; None if it can."""
    program = shlex.quote(run.program)
    if run.head.startswith(_BYTE_ORDER_MARK):
        return f"it begins with a byte order mark, before #!: sed -i '1s/^\\xef\\xbb\\xbf//' {program}"
    if run.head.startswith(b"#!") and run.head.partition(b"\n")[0].endswith(b"\r"):
        return f"its lines end with a carriage return, as on Windows: sed -i 's/\\r$//' {program}"
    return None


_SIGNALS = frozenset(
    (
        *(signal.SIGKILL, signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT),
        *(signal.SIGXCPU, signal.SIGXFSZ, signal.SIGTERM, signal.SIGPIPE),
    )
)


def _signal_remedy(run: FailedRun, number: signal.Signals) -> str:
    own_cpu = "; in a virtual machine, guest: {cpu: host}" if run.virtual else ""
    match number:
        case signal.SIGKILL:
            return _memory_remedy(run)
        case signal.SIGILL:
            what = "it uses instructions that this CPU does not support"
            return f"{what}: compile it without -march=native{own_cpu}"
        case signal.SIGBUS:
            return "a file that it maps is cut short; often /dev/shm or its storage is full: make room there"
        case signal.SIGXCPU | signal.SIGXFSZ:
            return "ulimit -a shows the limit that it reached; raise it in the shell that starts nearmetal"
        case signal.SIGSEGV:
            return (
                f"{run.by_hand()}; if it fails only in this environment: ulimit -s, and compile it without "
                f"-march=native{own_cpu}"
            )
        case _:
            return run.by_hand()


def _memory_remedy(run: FailedRun) -> str:
    limit = run.environment.limits.memory
    if limit is not None:
        size = show(limit, "B", binary=True)
        return f"it met limits: {{memory: {size}}}, most likely: raise it, or take a smaller input"
    if run.virtual:
        return "the guest ran out of memory, most likely: raise guest: {memory: ...}, or a smaller input"
    return "this machine ran out of memory, most likely (dmesg says so): a smaller input, or fewer ranks"


def _library_remedy(run: FailedRun, library: str) -> str:
    package = f"the package that has {library} (apt-file search {library})"
    if _has_image(run):
        return f"add {package} to image {run.environment.image} and build it again, or image: host"
    return f"install {package}, or set LD_LIBRARY_PATH; ldd {run.program} shows what is missing"


def _has_image(run: FailedRun) -> bool:
    return run.environment.image != HOST
