"""Code shared by backends whose container program cannot set up everything that an instance needs.

`nm-box wrap` sets up the rest: it makes a writable root directory, enters the control groups and the network
of the request, and then runs the container program."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import RunError
from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...host.processes.failure import find_message
from ...host.processes.helper import wait_readable
from ...model.study import Attachment
from ..contract import Available, Backend, Bind, InstanceRequest, Tools, Unavailable
from ..instance import (
    CONTROLLERS,
    VERSION_TIMEOUT,
    BoxInstance,
    all_binds,
    control_groups,
    innermost,
    make_instance,
    missing_tools,
    require_fitting,
)
from ..probe import probe_as_user
from ..program import FirstReport, first_report, running


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """Everything that is prepared for a container program to start one instance.

    request: the request, with scratch set to state.
    groups: control groups in which the program is started: directory by controller.
    overlay: directory in which the program and its children see `root`, the root directory of the instance,
        and `shm`, an empty directory. Other processes do not see them.
    state: directory for files of the program.
    prefix: command prefix of the program: `nm-box wrap` with its options.
    binds: from all_binds(), with the directory of the report.
    """

    request: InstanceRequest
    groups: Mapping[str, Path]
    overlay: Path
    state: Path
    report: FirstReport
    prefix: tuple[str, ...]
    binds: Sequence[Bind]

    @property
    def root(self) -> Path:
        return self.overlay / "root"


@contextmanager
def wrapped(
    tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], *, more: Sequence[str] = ()
) -> Iterator[Wrapped]:
    """Prepare the directories of an instance and the command prefix of its container program, until exit.

    groups: control groups of the instance: directory by controller.
    more: options of `nm-box wrap` for features that the program lacks.

    Raises UnavailableError if the request is not supported (require_fitting()).
    Raises RunError as all_binds().
    """
    require_fitting(request)
    # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
    with (
        runtime.scratch_directory(state_of(request).name) as state,
        first_report(tools, replace(request, scratch=state)) as report,
    ):
        overlay = state / "overlay"
        overlay.mkdir()
        argv = [tools / "nm-box", "wrap", "--root-overlay", str(overlay), "--tree", str(request.tree)]
        if request.layer is not None:
            argv += ["--layer", str(request.layer)]
        if request.user_namespace is not None:
            argv += ["--user-namespace", request.user_namespace]
        if request.seat is not None:
            argv += ["--netns", request.seat.netns]
        elif request.environment.attachment is not Attachment.HOST:
            argv.append("--new-net")
        for group in cgroups.unique(groups):
            argv += ["--cgroup", str(group)]
        if request.cpus:
            argv += ["--cpus", ",".join(map(str, request.cpus))]
        binds = all_binds(tools, request, report.directory)
        for number, bind in enumerate(binds):
            if (
                innermost(binds[:number], bind.target) is None
            ):  # else its mount point is in the other's source
                argv += ["--place", str(bind.target)]
            if not bind.writable:
                argv += ["--read-only", str(bind.source)]
        argv += more
        yield Wrapped(
            request=replace(request, scratch=state),
            groups=groups,
            overlay=overlay,
            state=state,
            report=report,
            prefix=(*argv, "--"),
            binds=binds,
        )


def state_of(request: InstanceRequest) -> Path:
    """Return the path of an instance's directory for the files of its container program (Wrapped.state)."""
    return runtime.runtime_directory() / f"{request.place}-state"


def own_network_path(request: InstanceRequest) -> Path | None:
    """Return the path of the network namespace that nm-box makes for an instance that can be checkpointed;
    None if the instance has no layer, or has the network of a seat or of the machine.

    CRIU then does not have to save and restore the namespace. The path is a symbolic link to the namespace of
    the process that opens it; for runc and crun during a checkpoint, to the namespace of the instance.
    """
    attached = request.seat is not None or request.environment.attachment is Attachment.HOST
    return None if request.layer is None or attached else state_of(request) / "net"


def mount_words(bind: Bind) -> list[str]:
    """Return the option of podman and docker that mounts a directory. They read it as a line of CSV."""
    source, target = (str(path).replace('"', '""') for path in (bind.source, bind.target))
    return ["--mount", f'type=bind,"src={source}","dst={target}"{"" if bind.writable else ",readonly"}']


def require_plain(given: Wrapped, program: str, *, without: str) -> None:
    """Check that no bind's path contains a character with a special meaning on a program's command line.

    program: name of the program, for the message.
    without: the special characters.

    Raises RunError if a path contains one of them.
    """
    for path in (path for bind in given.binds for path in (bind.source, bind.target)):
        if set(str(path)) & set(without):
            raise RunError(
                f"bind {path}: {program} accepts no path with {' or '.join(map(repr, without))}",
                remedy="work in a directory of a plainer name, or take another backend",
            )


@dataclass(frozen=True, kw_only=True)
class Started:
    """A container program that runs its payload, nm-init.

    pid: PID of nm-init on the machine.
    phases: as phases of contract.Instance.
    """

    given: Wrapped
    pid: int
    phases: Mapping[str, float]

    def entered_by_box(self, tools: Tools) -> BoxInstance:
        """Return the instance, in which commands are run by joining the namespaces of nm-init."""
        return make_instance(
            tools,
            self.given.request,
            pid=self.pid,
            namespaces_of=self.pid,
            groups=self.given.groups,
            phases=self.phases,
        )


@contextmanager
def started(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    program: Callable[[Wrapped], Sequence[str]],
    *,
    more: Sequence[str] = (),
    find: Callable[[str], str] = find_message,
) -> Iterator[Started]:
    """Start an instance by a container program, in control groups of the instance. On exit, everything is
    ended and removed.

    program: returns the command line of the program.
    more: options of `nm-box wrap`.
    find: selects the message that explains a failure from the output of the program.

    Raises UnavailableError, RunError.
    """
    begin = time.monotonic_ns()
    with (
        control_groups(request, CONTROLLERS) as groups,
        _ended_by_label(request.label, groups) as awaited,
        wrapped(tools, request, groups, more=more) as given,
        running(host, given.request, given.report, [*given.prefix, *program(given)], find=find) as run,
    ):
        awaited(run.pid)
        yield Started(given=given, pid=run.pid, phases=run.phases(begin))


@contextmanager
def _ended_by_label(label: str, groups: Mapping[str, Path]) -> Iterator[Callable[[int], None]]:
    """On exit, kill the processes that a program has left behind, by their label, and wait for their end.

    Nothing is done if there are control groups, since their removal kills and awaits all processes.

    Yields a function that must be called with the PID of the first process. Its end is awaited as well; it
    must be given by PID, because an exiting process no longer has a label.
    """
    with ExitStack() as held:

        def awaited(pid: int) -> None:
            if groups:
                return  # the removal of the groups, which comes later, ends and awaits all processes in them
            with suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                held.callback(os.close, fd)
                held.callback(wait_readable, fd, processes.DYING_SECONDS)

        try:
            yield awaited
        finally:
            if not groups:
                processes.kill_labelled(label)


class ProgramBackend(Backend):
    """A backend whose instances are started by a container program.

    program: name of the program.
    remedy: command that installs it.
    """

    program: str
    remedy: str

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        if (missing := missing_tools(host, tools)) is not None:
            return missing
        if host.which(self.program) is None:
            return Unavailable(reason=f"{self.program} is not installed", remedy=self.remedy)
        version = self._version(host)
        if isinstance(version, Unavailable):
            return version
        return probe_as_user(self, host, tools, version=version)

    def _version(self, host: Host) -> str | Unavailable:
        """Return the name of the installed program and its version, or why it cannot be used."""
        # ch-run does not even print its version without $USER.
        answer = host.run([self.program, "--version"], timeout=VERSION_TIMEOUT, env={"USER": "root"})
        number = re.search(r"\d+(\.\d+)+", answer.stdout + answer.stderr)
        return f"{self.program} {number[0]}" if number else self.program
