"""A fake host that answers from a script and fails on everything that is not in the script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from ..host.base import Completed, Launched, MissingValue, Process

Answer = str | Completed | Callable[[Sequence[str]], str | Completed]


class Unexpected(AssertionError):
    """The code under test read a file or ran a command that the fake host's script does not contain."""


class FakeProcess:
    """A fake process that ends when end() is called.

    returncode: its exit status after the end.
    """

    def __init__(self, argv: Sequence[str], *, pid: int = 4711, returncode: int = 0) -> None:
        self.argv, self.pid, self.killed = tuple(argv), pid, False
        self._returncode, self._ended = returncode, False

    def end(self) -> None:
        """Let the process end."""
        self._ended = True

    def poll(self) -> int | None:
        return self._returncode if self._ended else None

    def wait(self, timeout: float) -> int:
        if not self._ended:
            raise TimeoutError(f"{self.argv!r} still runs after {timeout} s")
        return self._returncode

    def kill(self) -> None:
        if not self._ended:
            self.killed, self._ended, self._returncode = True, True, -9


class FakeHost:
    """Implements host.base.Host without a machine.

    files: contents by path.
    absent: patterns (fnmatch) of paths that may be read but do not exist.
    commands: result by argv; a text is the standard output of a successful command.
    processes: process by argv, for start() and launch().
    reports: facts that a launched helper reports, by argv.
    programs: path by name, for which().
    missing: programs for which which() returns None.
    calls: every command that was run or started, in order, for tests to check.
    """

    def __init__(
        self,
        *,
        files: Mapping[str, str | bytes] | None = None,
        absent: Sequence[str] = (),
        commands: Mapping[tuple[str, ...], Answer] | None = None,
        processes: Mapping[tuple[str, ...], FakeProcess] | None = None,
        reports: Mapping[tuple[str, ...], Mapping[str, int]] | None = None,
        programs: Mapping[str, str] | None = None,
        missing: Sequence[str] = (),
        cpus: tuple[int, ...] = (0, 1),
        root: bool = True,
        name: str = "fake",
    ) -> None:
        self.name = name
        self.files: dict[str, str | bytes] = dict(files or {})
        self.commands: dict[tuple[str, ...], Answer] = dict(commands or {})
        self.processes: dict[tuple[str, ...], FakeProcess] = dict(processes or {})
        self.reports: dict[tuple[str, ...], Mapping[str, int]] = dict(reports or {})
        self.calls: list[tuple[str, ...]] = []
        self._absent, self._missing = tuple(absent), frozenset(missing)
        self._programs, self._cpus, self._root = dict(programs or {}), cpus, root
        self._read: set[str] = set()

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
        key = tuple(argv)
        found = self.answer(key, stdin if isinstance(stdin, str) else None)
        self.calls.append(key)
        result = found(key) if callable(found) else found
        if isinstance(result, Completed):
            return replace(result, argv=key)
        return Completed(argv=key, returncode=0, stdout=result, stderr="", seconds=0.0)

    def answer(self, argv: tuple[str, ...], stdin: str | None) -> Answer:
        """Return the result of a command. Subclasses may answer by other rules."""
        if argv not in self.commands:
            raise Unexpected(f"command not in the script: {argv!r}")
        return self.commands[argv]

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
        key = tuple(argv)
        if key not in self.processes:
            raise Unexpected(f"process not in the script: {key!r}")
        self.calls.append(key)
        return self.processes[key]

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Launched:
        key = tuple(argv)
        facts = self.reports.get(key)
        if facts is None or key not in self.processes:
            raise Unexpected(f"helper not in the script: {key!r}")
        if not expect <= facts.keys():
            raise Unexpected(f"the script's report of {key[0]} lacks {sorted(expect - facts.keys())}")
        self.calls.append(key)
        return Launched(process=self.processes[key], facts=facts)

    def read(self, path: str | Path) -> bytes | MissingValue:
        key = str(path)
        if key in self.files:
            self._read.add(key)
            text = self.files[key]
            return text if isinstance(text, bytes) else text.encode()
        if any(fnmatchcase(key, pattern) for pattern in self._absent):
            return MissingValue(f"{key}: No such file or directory")
        raise Unexpected(f"file not in the script: {key}")

    def which(self, program: str) -> str | None:
        if program in self._programs:
            return self._programs[program]
        if program in self._missing:
            return None
        raise Unexpected(f"program not in the script: {program}")

    def cpus(self) -> tuple[int, ...]:
        return self._cpus

    def is_root(self) -> bool:
        return self._root

    def never_used(self) -> tuple[str, ...]:
        """Return the entries of the script that were never used: files by path, commands as text."""
        files = [p for p in self.files if p not in self._read]
        argvs = [*self.commands, *self.processes]
        return (*files, *(" ".join(argv) for argv in argvs if argv not in self.calls))
