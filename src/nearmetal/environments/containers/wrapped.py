"""What the backends share whose container program does not do by itself all that an instance needs: nm-box
wrap runs it in the control groups and the network of the request, over a root directory that it may write
to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import RunError
from ...host import Host, cgroups, runtime
from ...host.processes.failure import find_message
from ...model.study import Attachment
from ..contract import Available, Backend, InstanceRequest, Tools, Unavailable
from ..instance import (
    CONTROLLERS,
    START_TIMEOUT,
    VERSION_TIMEOUT,
    control_groups,
    group_notes,
    missing_tools,
    require_fitting,
    seconds,
)
from ..probe import probe_as_user
from ..program import FirstReport, first_report, running


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """What a program is given to run.

    request: with the control groups that it is started in.
    overlay: a directory in which root, the root directory of the instance, and an empty shm stand for the
        program and its children alone.
    state: a directory for the program's own files.
    prefix: tokens before the program's.
    binds: what is seen inside at the same path, by path: whether it may be written to.
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
    """more: options of nm-box wrap for what the program cannot do.

    Raises UnavailableError for an image, an attachment or a seat that does not fit, RunError.
    """
    require_fitting(request)
    binds = all_binds(tools, request)
    # Not below request.scratch, which may lie in a bind: what is mounted there would be seen inside.
    with (
        runtime.scratch_directory(f"{request.label}-state") as state,
        first_report(tools, replace(request, scratch=state)) as report,
    ):
        overlay = state / "overlay"
        overlay.mkdir()
        argv = [tools / "nm-box", "wrap", "--root-overlay", str(overlay), "--tree", str(request.tree)]
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


def all_binds(tools: Tools, request: InstanceRequest) -> dict[Path, bool]:
    """The binds of a request by path, and whether each may be written to: the tools may not.

    Raises RunError where one is not there: programs tell it in many ways, or make it.
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
    """Raises RunError for a bind with a sign in its path that ends it on this program's command line."""
    for path in given.binds:
        if set(str(path)) & set(without):
            raise RunError(
                f"bind {path}: {program} takes no path with {' or '.join(map(repr, without))}",
                remedy="work in a directory of a plainer name, or take another backend",
            )


@dataclass(frozen=True, kw_only=True)
class Started:
    """A program whose payload runs.

    phases: of its start, 'program' from its own first moment on.
    pid: of nm-init.
    """

    given: Wrapped
    pid: int
    phases: Mapping[str, float]


@contextmanager
def started(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    program: Callable[[Wrapped], Sequence[str]],
    *,
    more: Sequence[str] = (),
    timeout: float = START_TIMEOUT,
    find: Callable[[str], str] = find_message,
) -> Iterator[Started]:
    """Start the program in groups of its own. program: its tokens; more: options of nm-box wrap; find:
    picks the message that explains a failure from its output. Everything ends on leaving.

    Raises UnavailableError, RunError.
    """
    begin = time.monotonic_ns()
    with (
        control_groups(request, CONTROLLERS) as groups,
        wrapped(tools, request, groups, more=more) as given,
        running(
            host,
            given.request,
            given.report,
            [*given.prefix, *program(given)],
            timeout=timeout,
            find=find,
        ) as run,
    ):
        yield Started(
            given=given,
            pid=run.pid,
            phases={
                "prepare": seconds(begin, run.begun),
                "program": seconds(run.begun, run.first),
                "first_instruction": seconds(begin, run.first),
            },
        )


def check_program(
    backend: Backend, host: Host, tools: Tools, *, program: str, remedy: str
) -> Available | Unavailable:
    """Start one by this program. remedy: the line that installs it."""
    missing = missing_tools(host, tools)
    if missing is not None:
        return missing
    if host.which(program) is None:
        return Unavailable(reason=f"{program} is not installed", remedy=remedy)
    # ch-run does nothing at all without $USER.
    said = host.run([program, "--version"], timeout=VERSION_TIMEOUT, env={"USER": "root"})
    number = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    version = f"{program} {number[0]}" if number else program
    return probe_as_user(backend, host, tools, version=version, notes=group_notes())
