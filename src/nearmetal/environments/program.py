"""Code shared by backends that use a container program, such as runc, lxc-start or bwrap.

The program runs in the foreground and starts nm-init as the first process of the container (its payload).
Commands are run inside by the program's own command, such as `runc exec`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process, cgroups
from ..host.processes.failure import describe_failure, find_message, outer_program
from ..host.processes.helper import wait_readable
from ..host.processes.labelled import descendant
from ..host.processes.running import running_program
from ..host.replies import FirstInstruction, read_reply
from ..host.untrusted import LIMIT, UntrustedDirectory
from .contract import InstanceRequest, Tools
from .instance import START_TIMEOUT, init_name, seconds

FIRST = "first"
REMOVAL_SECONDS = 10.0
"""Seconds that a program is given to remove its container after the end of the first process."""
LOOK_AGAIN = 0.05
"""Seconds between two checks whether the program has ended, until nm-init reports its first instruction."""


@dataclass(frozen=True, kw_only=True)
class ProgramInstance:
    """An instance in which commands are run by its container program; see contract.Instance.

    enter: command prefix that runs a command inside, with the label and on the CPUs of the request
        (entered()).
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
    """Return Instance.agent_line of an instance.

    enter: command prefix that runs a command inside.
    """
    words = [w.replace("%", "%25").replace(" ", "%20") for w in enter]
    return " ".join([hostname, "=", *words])


def entered(tools: Tools, request: InstanceRequest, program: Sequence[str]) -> tuple[str, ...]:
    """Return the command prefix that runs a command inside an instance.

    program: prefix of the container program, such as "lxc-attach -n NAME --". It is followed by
        `nm-box enter`, which sets the label and the CPUs inside.
    """
    cpus = ["--cpus", ",".join(map(str, request.cpus))] if request.cpus else []
    inside = [tools / "nm-box", "enter", "--pid", "0", "--label", request.label]
    return (*program, *inside, "--by-init", init_name(request.label), *cpus, "--")


def entered_by_call(
    tools: Tools, request: InstanceRequest, calls: Path, program: Sequence[str]
) -> tuple[str, ...]:
    """Return the command prefix as entered() does, for a container program that forwards neither the
    environment nor signals, such as "runc exec NAME". nm-box forwards them instead (kernels/box/call.c).

    calls: a directory that the instance sees at the same path.
    """
    outside, inside = entered(tools, request, ()), [tools / "nm-box", "call", str(calls), "--"]
    return (*inside, *program, *outside[:-1], "--call", "{}", "--")


def write_script(tools: Tools | None, file: Path, text: str) -> Path:
    """Write a shell script that programs can run by its path. Return the path.

    Debian mounts /run so that no file there can be executed. On such a file system the path is a link to
    nm-box, which runs the script beside it (kernels/box/script.c).

    tools: None if there are no tools, for a directory where files can be executed.
    """
    if tools is not None and os.statvfs(file.parent).f_flag & os.ST_NOEXEC:
        file.with_name(f"{file.name}.sh").write_text(text)
        file.unlink(missing_ok=True)
        file.symlink_to(tools / "nm-box")
    else:
        file.write_text(text)
        file.chmod(0o755)
    return file


def in_groups(
    tools: Tools, groups: Mapping[str, Path], label: str, argv: Sequence[str], cpus: Sequence[int] = ()
) -> list[str]:
    """Return the command line that runs a program on the machine, outside of instances, in these control
    groups. The program is killed when its parent dies.

    groups: directory by controller.
    cpus: CPUs that it may use; empty for no restriction.
    """
    words = [tools / "nm-box", "enter", "--pid", "0", "--die-with-parent", "--label", label]
    if cpus:
        words += ["--cpus", ",".join(map(str, cpus))]
    for directory in cgroups.unique(groups):
        words += ["--cgroup", str(directory)]
    return [*words, "--", *argv]


def read_log(file: Path) -> str:
    """Return the content of a log, at most the first LIMIT bytes; empty if it does not exist or is no regular
    file."""
    try:
        with UntrustedDirectory(file.parent).open_file(file.name) as log:
            return log.read(LIMIT).decode(errors="replace")
    except OSError:
        return ""


def log_failure(
    program: str, status: int | None, log: Path, find: Callable[[str], str] = find_message
) -> str:
    """Return one line about a failed program whose output went to a log file; see host's describe_failure().

    find: selects the message that explains the failure from the output.
    """
    return describe_failure(program, status, read_log(log), find=find)


def shared_memory_size() -> int:
    """Return the size in bytes of an instance's /dev/shm: half of the memory, which is the kernel's default
    (tmpfs(5))."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@dataclass(frozen=True, kw_only=True)
class FirstReport:
    """The FIFO through which nm-init reports the time of its first instruction.

    directory: directory of the FIFO, which must be mounted in the instance at the same path.
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
        """Wait for the report, and return the time of the first instruction (CLOCK_MONOTONIC, ns).

        program: the container program, which is expected to start nm-init.
        name: name of the program, for messages.
        log: file with the output of the program.
        timeout: time limit in seconds.
        find: selects the message that explains a failure from that output.

        Raises RunError if the program ends first, or nothing is reported within the time limit.
        """
        deadline = time.monotonic() + timeout
        while not wait_readable(self.descriptor, LOOK_AGAIN) or not (line := os.read(self.descriptor, 4096)):
            if program.poll() is not None:
                raise RunError(log_failure(name, program.poll(), log, find))
            if time.monotonic() > deadline:
                failure = log_failure(name, None, log, find)
                raise RunError(f"no first instruction within {timeout:g} s: {failure}")
        return read_reply(line, FirstInstruction, str(log)).first


@contextmanager
def first_report(tools: Tools, request: InstanceRequest, *, outlives: bool = False) -> Iterator[FirstReport]:
    """Make the FIFO through which nm-init reports the first instruction. It is closed on exit.

    It is made in request.calls or, if that is None, in a new directory below request.scratch. A FIFO that
    exists there is used: an instance that is restored from a checkpoint needs the FIFO of its source at the
    same path.

    outlives: whether nm-init continues when its parent ends, because some container programs end after a
        restore.
    """
    directory = request.calls or request.scratch / "report"
    directory.mkdir(exist_ok=request.calls is not None)
    fifo = directory / FIRST
    with contextlib.suppress(FileExistsError):
        os.mkfifo(fifo, 0o600)
    # Also opened for writing, so that no end of file is read before the report.
    descriptor = UntrustedDirectory(directory).open_fifo(FIRST)
    try:
        option = "--lone-fifo" if outlives else "--first-fifo"
        argv = (tools / "nm-init", option, str(fifo), "--socket", init_name(request.label))
        yield FirstReport(directory=directory, argv=argv, descriptor=descriptor)
    finally:
        os.close(descriptor)


def read_pid(file: Path) -> int | None:
    """Return the number in a PID file; None if the file does not exist or contains no positive number."""
    try:
        number = int(file.read_text())
    except (OSError, ValueError):
        return None
    return number if number > 0 else None


def program_instance(
    request: InstanceRequest,
    pid: int,
    phases: Mapping[str, float],
    groups: Mapping[str, Path],
    enter: tuple[str, ...],
) -> ProgramInstance:
    """Return the object for an instance whose container program runs its payload.

    pid, phases, groups: as pid, phases and cgroups of contract.Instance.
    enter: command prefix that runs a command inside.
    """
    return ProgramInstance(
        label=request.label,
        hostname=request.hostname,
        pid=pid,
        phases=phases,
        cgroups=groups,
        enter=enter,
    )


@contextmanager
def end_payload(run: Running) -> Iterator[None]:
    """On exit, kill the first process of the container. Then wait at most REMOVAL_SECONDS until the container
    program has removed the container and ended."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            run.program.wait(REMOVAL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Running:
    """A container program in the foreground whose payload, nm-init, runs.

    pid: PID of nm-init on the machine.
    begun, first: time of the program's start, and of nm-init's first instruction (CLOCK_MONOTONIC, ns).
    """

    program: Process
    pid: int
    begun: int
    first: int

    def phases(self, begin: int) -> dict[str, float]:
        """Return the phases of the start; see contract.Instance. 'program' is the time from the start of the
        program to the first instruction of nm-init.

        begin: time of the request (CLOCK_MONOTONIC, ns).
        """
        return {
            "prepare": seconds(begin, self.begun),
            "program": seconds(self.begun, self.first),
            "first_instruction": seconds(begin, self.first),
        }


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
    """Run a container program in the foreground until exit. Yields as soon as its payload runs.

    The caller must kill the processes that the program leaves behind, by the control groups of the instance.
    argv: command line of the program, which must run report.argv as its payload.
    env: environment variables of the program; None for the default.
    find: selects the message that explains a failure from the output of the program.
    pid_of: returns the PID of the payload, for a payload that is not a descendant of the program. If None,
        the payload is found among the descendants.

    Raises RunError if the payload does not run within START_TIMEOUT.
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
