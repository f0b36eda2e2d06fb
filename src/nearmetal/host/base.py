"""What a host can be asked for; LocalHost answers for real, testing.FakeHost strictly from a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .processes.failure import describe_failure, failed_program, find_message, launcher_of


@dataclass(frozen=True)
class Unavailable:
    """A value that this machine does not give, and why; never a zero."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A finished command.

    seconds: wall time.
    returncode: negative = ended by that signal.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.returncode == 0

    def failure(self, find: Callable[[str], str] = find_message) -> str:
        """Return one line for an error message: the process that failed, how it ended, its own message.

        find: picks the message from the output of this program.
        """
        return describe_failure(
            failed_program(self.argv),
            self.returncode,
            self.stderr,
            self.stdout,
            seconds=self.seconds,
            launcher=launcher_of(self.argv),
            find=find,
        )


class Process(Protocol):
    """A running process that the caller owns and must end."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""

    def wait(self, timeout: float) -> int:
        """Exit status; raises TimeoutError after timeout seconds."""

    def kill(self) -> None:
        """End the process and everything in its process group; harmless when it has ended."""


REPORT_FD = 3
"""The descriptor on which a launched helper reports."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A helper that runs, and what it has reported."""

    process: Process
    facts: Mapping[str, int]


class Host(Protocol):
    """One machine. Paths are paths on that machine."""

    name: str

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str | None = None,
        pass_fds: Sequence[int] = (),
        each_second: Callable[[], None] | None = None,
        most: int | None = None,
    ) -> Completed:
        """Run to the end; returncode 124 and what it said so far after `timeout` seconds (its whole process
        group is killed); 127 when the program is not found. env is added to the tool's own; each_second is
        called about once a second while it runs; most: bytes of what it says on either stream that are kept,
        of its beginning and its end, None for all."""

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        most: int | None = None,
    ) -> Process:
        """Start in a session of its own, output appended to files. stdin: a descriptor that it reads, which
        stays the caller's to close; None: nothing to read. most: bytes of each, as in run(); the files are
        then whole once kill() has returned."""

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Launched:
        """Start a helper fast, in a session of its own, and read what it reports on descriptor REPORT_FD:
        lines {"key": integer, ...} until every expected key is there. argv[0] is an absolute path. inherit:
        env is added to the tool's own; else it is all that the helper gets, which takes less to hand over.

        Raises RunError with the helper's last words when it ends first or says nothing for `timeout`
        seconds; it is ended then. The helper dies with the calling thread if it asks to (PR_SET_PDEATHSIG).
        """

    def read(self, path: str | Path) -> bytes | Unavailable:
        """A whole file, for /proc and /sys."""

    def which(self, program: str) -> str | None:
        """Absolute path of a program, or None."""

    def cpus(self) -> tuple[int, ...]:
        """CPUs this process may use, in order."""

    def is_root(self) -> bool: ...
