"""Code shared by backends that use a container program (runc, lxc-start, bwrap, ...): it runs in the
foreground with nm-init as its payload, and commands enter through the program's own command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process
from ..host.processes.failure import describe_failure, find_message, outer_program
from ..host.processes.helper import wait_readable
from ..host.processes.labelled import descendant
from ..host.processes.running import running_program
from .contract import InstanceRequest, Tools
from .instance import START_TIMEOUT

FIRST = "first"
REMOVAL_SECONDS = 10.0
"""Seconds in which a program may remove its container after the end of the first process."""
LOOK_AGAIN = 0.05
"""Seconds between two checks whether the program has ended, while nothing is reported."""


@dataclass(frozen=True, kw_only=True)
class ProgramInstance:
    """An instance that is entered through its container program; see contract.Instance.

    enter: words to put in front of a command, which also set the label and the CPUs (entered()).
    """

    label: str
    hostname: str
    pid: int
    phases: Mapping[str, float]
    cgroups: Mapping[str, Path]
    enter: tuple[str, ...]

    @property
    def agent_line(self) -> str:
        return agent_line(self.hostname, self.enter)

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*self.enter, *argv]


def agent_line(hostname: str, enter: Sequence[str]) -> str:
    """Return the line of an agent's map for an instance that is entered by these words."""
    words = [w.replace("%", "%25").replace(" ", "%20") for w in enter]
    return " ".join([hostname, "=", *words])


def entered(tools: Tools, request: InstanceRequest, program: Sequence[str]) -> tuple[str, ...]:
    """Return the words that enter an instance: those of the program ("lxc-attach -n NAME --"), then those of
    nm-box inside."""
    cpus = ["--cpus", ",".join(map(str, request.cpus))] if request.cpus else []
    inside = [tools / "nm-box", "enter", "--pid", "0", "--label", request.label, "--by-init", *cpus, "--"]
    return (*program, *inside)


def entered_by_call(
    tools: Tools, request: InstanceRequest, calls: Path, program: Sequence[str]
) -> tuple[str, ...]:
    """Return entered() for a program that forwards neither environment nor signals ("runc exec NAME").

    calls: a directory that the instance sees at the same path.
    """
    outside, inside = entered(tools, request, ()), [tools / "nm-box", "call", str(calls), "--"]
    return (*inside, *program, *outside[:-1], "--call", "{}", "--")


def in_groups(tools: Tools, groups: Mapping[str, Path], label: str, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs a program of the machine in these control groups. It is killed when
    nearmetal dies."""
    directories = [w for d in dict.fromkeys(groups.values()) for w in ("--cgroup", str(d))]
    return [
        *(tools / "nm-box", "enter", "--pid", "0", "--die-with-parent", "--label", label),
        *directories,
        "--",
        *argv,
    ]


def read_log(file: Path) -> str:
    """Return the content of a log, empty if it does not exist."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def log_failure(
    program: str, status: int | None, log: Path, find: Callable[[str], str] = find_message
) -> str:
    """Return one line about a failed program whose output went to a log; see describe_failure."""
    return describe_failure(program, status, read_log(log), find=find)


def shared_memory_size() -> int:
    """Return the size in bytes of an instance's /dev/shm: half of the memory, which is the kernel's default
    (tmpfs(5))."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@dataclass(frozen=True, kw_only=True)
class FirstReport:
    """The FIFO through which nm-init reports its first instruction.

    directory: must be bound into the instance at its own path.
    argv: command line of nm-init.
    """

    directory: Path
    argv: tuple[str, ...]
    descriptor: int

    def wait(
        self,
        program: Process,
        name: str,
        log: Path,
        timeout: float,
        find: Callable[[str], str] = find_message,
    ) -> int:
        """Return the time of the first instruction (CLOCK_MONOTONIC, ns).

        name: name of the program.
        find: selects the message that explains a failure from that output.

        Raises RunError if the program ends first, or nothing is reported within timeout seconds.
        """
        deadline = time.monotonic() + timeout
        while not wait_readable(self.descriptor, LOOK_AGAIN) or not (line := os.read(self.descriptor, 4096)):
            if program.poll() is not None:
                raise RunError(log_failure(name, program.poll(), log, find))
            if time.monotonic() > deadline:
                failure = log_failure(name, None, log, find)
                raise RunError(f"no first instruction within {timeout:g} s: {failure}")
        first: int = json.loads(line)["first"]
        return first


@contextmanager
def first_report(tools: Tools, request: InstanceRequest) -> Iterator[FirstReport]:
    """Make a FIFO in the directory for calls, or else in a directory below the scratch directory.

    A restored instance has the FIFO of its source.
    """
    directory = request.calls or request.scratch / "report"
    directory.mkdir(exist_ok=request.calls is not None)
    fifo = directory / FIRST
    with contextlib.suppress(FileExistsError):
        os.mkfifo(fifo, 0o600)
    # Also opened for writing, so that no end of file is read before the report.
    descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        argv = (tools / "nm-init", "--first-fifo", str(fifo), "--label", request.label)
        yield FirstReport(directory=directory, argv=argv, descriptor=descriptor)
    finally:
        os.close(descriptor)


def read_pid(file: Path) -> int | None:
    """Return the number in a file; None if it contains none."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def started_instance(
    request: InstanceRequest, run: Running, begin: int, groups: Mapping[str, Path], enter: Sequence[str]
) -> ProgramInstance:
    """Return an instance whose payload runs.

    begin: time of the request (CLOCK_MONOTONIC, ns).
    """
    return ProgramInstance(
        label=request.label,
        hostname=request.hostname,
        pid=run.pid,
        phases={
            "prepare": (run.begun - begin) / 1e9,
            "program": (run.first - run.begun) / 1e9,
            "first_instruction": (run.first - begin) / 1e9,
        },
        cgroups=groups,
        enter=tuple(enter),
    )


@contextmanager
def end_payload(run: Running) -> Iterator[None]:
    """On exit, end the first process and wait for some seconds until the program has removed its container
    itself."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            run.program.wait(REMOVAL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A program in the foreground whose payload runs.

    pid: PID of nm-init on the host.
    begun, first: time of the program's start, and of nm-init's first instruction (CLOCK_MONOTONIC, ns).
    """

    program: Process
    pid: int
    begun: int
    first: int


@contextmanager
def running(
    host: Host,
    request: InstanceRequest,
    report: FirstReport,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    find: Callable[[str], str] = find_message,
    pid_of: Callable[[], int | None] | None = None,
) -> Iterator[Running]:
    """Run a container program in the foreground until exit, with report.argv as its payload.

    The caller's control groups end processes that the program leaves behind.
    pid_of: returns the PID of a payload that is not a descendant of the program; None if it is a descendant.

    Raises RunError.
    """
    name, output = outer_program(argv), request.scratch / "program.err"
    begun = time.monotonic_ns()
    with running_program(
        host, argv, request.label, request.scratch / "program.out", errors=output, env=env
    ) as program:
        first = report.wait(program, name, output, START_TIMEOUT, find)
        pid = pid_of() if pid_of else descendant(program.pid, "nm-init")
        if pid is None:
            failure = log_failure(name, program.poll(), output, find)
            raise RunError(f"the first process of the instance has ended: {failure}")
        yield Running(program=program, pid=pid, begun=begun, first=first)
