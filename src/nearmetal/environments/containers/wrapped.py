"""Code shared by backends whose container program does not support everything that an instance needs.

nm-box wrap runs the program in the control groups and the network of the request, on a writable root
directory."""

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
from ..contract import Available, Backend, InstanceRequest, Tools, Unavailable
from ..instance import (
    CONTROLLERS,
    VERSION_TIMEOUT,
    BoxInstance,
    control_groups,
    group_notes,
    make_instance,
    missing_tools,
    require_fitting,
    seconds,
)
from ..probe import probe_as_user
from ..program import FirstReport, first_report, running


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """The input of a container program for one instance.

    request: the request, with scratch set to state.
    groups: the control groups that the program is started in.
    overlay: a directory with root, the root directory of the instance, and an empty shm; both are visible
        only to the program and its children.
    state: a directory for the program's own files.
    prefix: command line in front of the program's.
    binds: paths that are mounted at the same place inside, and whether each is writable.
    """

    request: InstanceRequest
    groups: Mapping[str, Path]
    overlay: Path
    state: Path
    report: FirstReport
    prefix: tuple[str, ...]
    binds: Mapping[Path, bool]

    @property
    def root(self) -> Path:
        return self.overlay / "root"


@contextmanager
def wrapped(
    tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], *, more: Sequence[str] = ()
) -> Iterator[Wrapped]:
    """Prepare the root directory of an instance and the nm-box command line around its program.

    more: options of nm-box wrap for features that the program lacks.

    Raises UnavailableError for an image, an attachment or a seat that does not match, and RunError.
    """
    require_fitting(request)
    binds = all_binds(tools, request)
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
        binds[report.directory] = True
        for path, writable in binds.items():
            argv += ["--place", str(path)]
            if not writable:
                argv += ["--read-only", str(path)]
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
    """Return the directory of an instance with the files of its container program."""
    return runtime.runtime_directory() / f"{request.place}-state"


def all_binds(tools: Tools, request: InstanceRequest) -> dict[Path, bool]:
    """Return the binds of a request by path, and whether each is writable. The tools are not.

    Raises RunError if one does not exist: programs report this in different ways, or create it.
    """
    binds = {p.resolve(): True for p in request.binds}
    for path in binds:
        if not path.exists():
            raise RunError(f"bind {path}: No such file or directory")
    own = tools.directory.resolve()
    if not any(own.is_relative_to(b) for b in binds):
        binds[own] = False
    return binds


def require_plain(given: Wrapped, program: str, *, without: str) -> None:
    """Check that no path of a bind contains a character with a special meaning on this program's command
    line.

    without: these characters.

    Raises RunError if one does.
    """
    for path in given.binds:
        if set(str(path)) & set(without):
            raise RunError(
                f"bind {path}: {program} takes no path with {' or '.join(map(repr, without))}",
                remedy="work in a directory of a plainer name, or take another backend",
            )


@dataclass(frozen=True, kw_only=True)
class Started:
    """A container program whose payload runs.

    phases: seconds of its start by step; 'program' begins when the program is started.
    pid: PID of nm-init.
    """

    given: Wrapped
    pid: int
    phases: Mapping[str, float]

    def entered_by_box(self, tools: Tools) -> BoxInstance:
        """Return the instance, whose commands enter through the namespaces of its first process."""
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
    """Start the program in its own control groups. Everything is stopped on exit.

    program: returns its command line.
    more: options of nm-box wrap.
    find: selects the message that explains a failure from its output.

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
        yield Started(
            given=given,
            pid=run.pid,
            phases={
                "prepare": seconds(begin, run.begun),
                "program": seconds(run.begun, run.first),
                "first_instruction": seconds(begin, run.first),
            },
        )


@contextmanager
def _ended_by_label(label: str, groups: Mapping[str, Path]) -> Iterator[Callable[[int], None]]:
    """Kill what the program has left behind on exit, and wait for its end. Without a control group, processes
    are found by their label only.

    Yields a function that takes the PID of the first process, which is awaited too: while it ends, it has no
    label any more.
    """
    with ExitStack() as held:

        def awaited(pid: int) -> None:
            if groups:
                return  # their removal, which comes later, ends and awaits all that is in them
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
        # ch-run does not even print its version without $USER.
        answer = host.run([self.program, "--version"], timeout=VERSION_TIMEOUT, env={"USER": "root"})
        number = re.search(r"\d+(\.\d+)+", answer.stdout + answer.stderr)
        version = f"{self.program} {number[0]}" if number else self.program
        return probe_as_user(self, host, tools, version=version, notes=group_notes())
