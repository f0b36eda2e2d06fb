"""The interface of a host. LocalHost implements it on this machine. For tests, testing.FakeHost answers only
the commands of a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import NearmetalError, RunError
from .processes.failure import describe_failure, failed_program, find_message, launcher_of


@dataclass(frozen=True)
class MissingValue:
    """A value that this machine does not provide. It is never replaced by zero."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A finished command.

    seconds: wall time.
    returncode: exit status; negative if a signal of that number ended the command.
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
        """Return one line for an error message: the process that failed, how it ended, and its own message.

        find: selects the message from the output of this program.
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

    def require(
        self,
        what: str = "",
        *,
        remedy: str = "",
        error: type[NearmetalError] = RunError,
        find: Callable[[str], str] = find_message,
    ) -> Completed:
        """Return this command if it has succeeded; otherwise raise an error of the class `error`.

        what: beginning of the error message, such as "the networks could not be built"; '' for none.
        remedy: what the user can do next, for the error.
        find: as in failure().
        """
        if not self.ok:
            reason = self.failure(find)
            raise error(f"{what}: {reason}" if what else reason, remedy=remedy)
        return self


class Process(Protocol):
    """A running process that the caller owns and must end."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status. Raises TimeoutError after timeout seconds."""

    def kill(self) -> None:
        """Kill the process and its process group, and wait until all of them have ended, for a few seconds at
        most.

        Does nothing if the process has already ended, because another group may have its number by then.
        """


REPORT_FD = 3
"""The file descriptor on which a launched helper reports."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A running helper.

    facts: the values that it has reported, by key.
    """

    process: Process
    facts: Mapping[str, int]


class Host(Protocol):
    """One machine. All paths are paths on that machine."""

    name: str

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str | int | None = None,
        pass_fds: Sequence[int] = (),
        each_second: Callable[[], None] | None = None,
        before_kill: Callable[[], None] | None = None,
        most: int | None = None,
    ) -> Completed:
        """Run a command to its end.

        After `timeout` seconds its whole process group is killed; the result then has returncode 124 and the
        output up to that time. The returncode is 127 if the program is not found.

        env: variables to add to the tool's own environment; None for one to remove.
        stdin: text for the command, or a descriptor that it reads and the caller closes; None for an empty
            input.
        each_second: called about once a second while the command runs.
        before_kill: called before the command is killed, because of its time limit or of an exception such as
            that of Ctrl-C. A host that is another machine does not call it.
        most: number of bytes of each output stream to keep, from its beginning and its end; None for all.
        """

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        most: int | None = None,
    ) -> Process:
        """Start a command in a session of its own and append its output to files.

        stdin: descriptor that the command reads, and the caller closes; None for an empty input.
        most: number of bytes of each output stream to keep, as in run(). The files are then complete only
            after kill() has returned.
        """

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Launched:
        """Start a helper quickly, in a session of its own, and read its report.

        The helper writes lines {"key": integer, ...} to descriptor REPORT_FD; they are read until every
        expected key is there. The helper dies with the calling thread if it requests that (PR_SET_PDEATHSIG).

        argv: its first element is an absolute path.
        expect: keys that the report must contain.
        inherit: whether env is added to the tool's own environment. If False, env is the whole environment of
            the helper, which is faster.

        Raises RunError with the last output of the helper if it ends early or has not reported every key
        after `timeout` seconds. The helper is then killed.
        """

    def read(self, path: str | Path) -> bytes | MissingValue:
        """Return the contents of a whole file; meant for /proc and /sys."""

    def which(self, program: str) -> str | None:
        """Return the absolute path of a program, or None if there is none."""

    def cpus(self) -> tuple[int, ...]:
        """Return the CPUs that this process may use, in ascending order."""

    def is_root(self) -> bool: ...


def text_of(host: Host, path: str | Path) -> str:
    """Return the text of a file of the machine; '' if it cannot be read."""
    data = host.read(path)
    return "" if isinstance(data, MissingValue) else data.decode(errors="replace")
