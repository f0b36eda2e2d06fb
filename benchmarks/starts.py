"""Times of the start, of a command and of the stop of each container backend, compared with the command line
of its container program.

By hand, as root: python -m benchmarks.starts [rounds] [backend ...]. Every round does the following for each
backend, in random order. On nearmetal's side, an instance is started, runs `true`, and is stopped. On the
other side, the container program is started by a command line that creates the same root directory as a
person would (unshare, mount; Docker's daemon mounts it itself), with nm-init as its payload; it runs `true`
by its own exec command, and is stopped. Both sides use attachment host. On the other side only those control
groups exist that the program creates by itself.

Limits: a start takes at most 1.1 times as long as by the command line, and a command at most 20 ms longer
than by the program's own exec command.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.paired import difference, interleaved, interval, ratio, shown

from nearmetal.environments import Bind, InstanceRequest, Tools, Unavailable
from nearmetal.environments.containers import apptainer, bubblewrap, charliecloud, docker, lxc, nspawn, podman
from nearmetal.environments.containers.docker_daemon import remove
from nearmetal.environments.containers.docker_image import look_at, overlays, skeleton_image
from nearmetal.environments.containers.oci import Groups, OciBackend, bundle
from nearmetal.environments.containers.wrapped import Wrapped
from nearmetal.environments.instance import all_binds
from nearmetal.environments.program import FirstReport, end_payload, first_report, read_pid, running
from nearmetal.environments.registry import get_backend
from nearmetal.host import LocalHost, cgroups
from nearmetal.host.outside import short_directory
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.progress import NullProgress
from nearmetal.workloads.build import build_tools

HOST = LocalHost()
LIMIT = 20.0
LABEL = f"nearmetal-check-{os.getpid()}-starts"  # left alone as long as we live
WRAPPED: dict[str, Callable[[Wrapped], Sequence[str]]] = {
    "apptainer": partial(apptainer.container, lacking=apptainer.lacking_here(HOST)),
    "bubblewrap": bubblewrap.container,
    "charliecloud": charliecloud.container,
    "lxc": lxc.container,
    "nspawn": nspawn.container,
}
NAMES = (*WRAPPED, "runc", "crun", "podman", "docker")
Times = tuple[float, float, float]
"""Seconds from the start to the first instruction, of the command `true`, and of the stop until nothing is
left."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """The command line of a container program.

    argv: runs a container in the foreground, with nm-init as its payload.
    enter: returns the prefix of a command inside the container, given the PID of its first process.
    find_pid: finds this PID if the process is not a descendant of the program; None otherwise.
    """

    argv: Sequence[str]
    enter: Callable[[int], Sequence[str]]
    env: Mapping[str, str] = field(default_factory=dict)
    find_pid: Callable[[], int | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The files of a command line: directories, the FIFO for the report of its payload, and bind mounts (by
    path, whether writable)."""

    tools: Tools
    request: InstanceRequest
    report: FirstReport
    binds: Sequence[Bind]
    stack: ExitStack

    @property
    def overlay(self) -> Path:
        return self.request.scratch / "overlay"


BY_HAND = """\
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work shm root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
mkdir -p "root$2" "root$3"
cd /
if [ -n "$4" ]; then umount --lazy "$4"; fi
shift 4
exec "$@"
"""
"""The steps of nm-box wrap, as a person would type them."""


def first_process(container: str) -> int | None:
    """Return the PID of the first process of a container of Docker; None if it does not run."""
    answer = HOST.run(["docker", "inspect", "--format", "{{.State.Pid}}", container], timeout=LIMIT)
    return int(answer.stdout) if answer.ok and answer.stdout.strip().isdigit() else None


def by_hand(ground: Ground, detached: Path | None = None) -> list[str]:
    """Return the prefix of a container program's command line that prepares its root directory.

    detached: directory of version 2 control groups to unmount, for a program that refuses them; None to keep
    it.
    """
    binds = [str(bind.target) for bind in ground.binds]
    assert len(binds) == 2, binds
    words = [str(ground.overlay), *binds, str(detached or "")]
    return ["unshare", "--mount", "sh", "-c", BY_HAND, "sh", *words]


def of_wrapped(name: str, ground: Ground) -> CommandLine:
    ground.overlay.mkdir()
    given = Wrapped(
        request=ground.request,
        groups={},
        overlay=ground.overlay,
        state=ground.request.scratch,
        report=ground.report,
        prefix=(),
        binds=ground.binds,
    )

    def enter(pid: int) -> list[str]:
        if name == "lxc":
            return ["lxc-attach", "--lxcpath", str(given.state / "lxc"), "--name", lxc.NAME, "--"]
        if name == "charliecloud":
            return [*charliecloud.CH_RUN, "--join-pid", str(pid), str(given.state), "--"]
        return ["nsenter", "--target", str(pid), "--all", "--"]

    if name == "lxc":
        ground.stack.enter_context(lxc.groups_of_lxc(ground.request.label))
    return CommandLine(argv=[*by_hand(ground), *WRAPPED[name](given)], enter=enter)


def of_runtime(backend: OciBackend, ground: Ground) -> CommandLine:
    state, label = ground.request.scratch, ground.request.label
    (ground.overlay / "root").mkdir(parents=True)
    groups = label if backend.groups_of(ground.request) is Groups.BELOW_OURS else None
    config = bundle(ground.request, ground.report, ground.overlay / "root", ground.binds, groups)
    (state / "config.json").write_text(json.dumps(config))
    unified = cgroups.unified_beside_version1() if backend.detach_unified else None
    program = [backend.program, "--root", str(state / "runtime"), *backend.options(ground.request)]
    away = 'umount --lazy "$1"; shift; exec "$@"'
    without = ["unshare", "--mount", "sh", "-c", away, "sh", str(unified)] if unified is not None else []
    return CommandLine(
        argv=[*by_hand(ground, unified), *program, "run", "--bundle", str(state), label],
        enter=lambda _: [*without, *program, "exec", label],
    )


def of_podman(ground: Ground) -> CommandLine:
    state, label = ground.request.scratch, ground.request.label
    short = ground.stack.enter_context(short_directory(f"{label}-podman"))
    store = replace(podman.Store.of(ground.request), directory=state, short=short)
    store.prepare(HOST, ground.tools)
    words = podman.container_options(ground.request, store, ground.binds, groups=None)
    return CommandLine(
        argv=[*by_hand(ground), *store.command("run", "--rm", *words), *ground.report.argv],
        enter=lambda _: ["env", *store.assignments(), *store.command("exec", label)],
        env=store.environment(),
        find_pid=lambda: read_pid(store.pid_file),
    )


def of_docker(ground: Ground) -> CommandLine:
    state, label = ground.request.scratch, ground.request.label
    tree = look_at(Path("/"))
    words = docker.container_words(
        ground.request,
        ground.binds,
        image=skeleton_image(HOST, tree, state),
        mounts=overlays(tree, state),
        groups=f"/{label}",
        seat=None,
    )
    ground.stack.callback(remove, HOST, label)
    return CommandLine(
        argv=["docker", "run", "--rm", *words, *ground.report.argv],
        enter=lambda _: ["docker", "exec", label],
        find_pid=lambda: first_process(label),
    )


def command_line(name: str, ground: Ground) -> CommandLine:
    """Return the command line for a container of the same kind as the backend's."""
    if name in WRAPPED:
        return of_wrapped(name, ground)
    if name == "podman":
        return of_podman(ground)
    if name == "docker":
        return of_docker(ground)
    backend = get_backend(name)
    assert isinstance(backend, OciBackend)
    return of_runtime(backend, ground)


def requested(name: str, scratch: Path) -> InstanceRequest:
    return InstanceRequest(
        label=scratch.name,
        hostname="nmstart",
        environment=Environment(name=name, backend=name, attachment=Attachment.HOST, placements=()),
        cpus=HOST.cpus(),
        seat=None,
        binds=(),
        scratch=scratch,
    )


Side = Callable[[Tools, str, Path], AbstractContextManager[tuple[float, Sequence[str]]]]
"""A side of the comparison: a context with a running container, which yields the seconds to the first
instruction, and the prefix of a command inside."""


@contextmanager
def ours(tools: Tools, name: str, scratch: Path) -> Iterator[tuple[float, Sequence[str]]]:
    with get_backend(name).start(HOST, tools, requested(name, scratch)) as instance:
        yield instance.phases["first_instruction"], instance.command([])


@contextmanager
def plain(tools: Tools, name: str, scratch: Path) -> Iterator[tuple[float, Sequence[str]]]:
    with ExitStack() as stack:
        request = requested(name, scratch)
        stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.label)))
        report = stack.enter_context(first_report(tools, request))
        binds = all_binds(tools, request, report.directory)
        ground = Ground(tools=tools, request=request, report=report, binds=binds, stack=stack)
        one = command_line(name, ground)
        run = stack.enter_context(running(HOST, request, report, one.argv, env=one.env, pid_of=one.find_pid))
        stack.enter_context(end_payload(run))
        yield (run.first - run.begun) / 1e9, one.enter(run.pid)


numbers = count()


def once(side: Side, tools: Tools, name: str) -> Times:
    with scratch_directory(f"{LABEL}-{next(numbers)}") as scratch:
        with side(tools, name, scratch) as (first, enter):
            done = HOST.run([*enter, "true"], timeout=LIMIT, cwd=Path("/"))
            assert done.ok, done
            ending = time.monotonic()
        return first, done.seconds, time.monotonic() - ending


def main() -> None:
    if not HOST.is_root():
        sys.exit("as root: the command lines mount the root directory by themselves")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    tools = Tools(directory=build_tools(HOST, cache_directory(), progress=NullProgress().phase).directory)
    what: dict[str, Callable[[], Times]] = {}
    for name in sys.argv[2:] or NAMES:
        answer = get_backend(name).check(HOST, tools)
        if isinstance(answer, Unavailable):
            print(f"{name}: {answer.reason}; {answer.remedy}")
            continue
        what |= {f"{name} ours": partial(once, ours, tools, name)}
        what |= {f"{name} plain": partial(once, plain, tools, name)}
    interleaved(what, 1)  # whatever is made once
    begun = time.monotonic()
    times = interleaved(what, rounds)
    print(f"{rounds} rounds, {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}")
    for name in dict.fromkeys(key.partition(" ")[0] for key in what):
        start, command, stop = (
            [[t[i] for t in times[f"{name} {side}"]] for side in ("ours", "plain")] for i in range(3)
        )
        beyond = (shown(difference(*pair), "ms", 1e3) for pair in (command, stop))
        print(
            f"{name:13} plain {shown(interval(start[1]), 'ms', 1e3)}   start x {shown(ratio(*start))}   "
            "command + {}   stop + {}".format(*beyond)
        )


if __name__ == "__main__":
    main()
