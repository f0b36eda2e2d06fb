"""Backend lxc: a system container started by lxc-start, with nm-init as its init. Commands are run inside by
lxc-attach."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ...errors import RunError
from ...host import Host, cgroups
from ...host.processes.failure import MOST_SHOWN
from ...host.processes.labelled import descendant
from ...lifecycle import Method
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Environment
from .. import criu as criu_of
from ..contract import Instance, InstanceRequest, Tools, Unavailable
from ..criu_connections import connection_options, freezing_options
from ..criu_restoring import restorer, restoring_from
from ..instance import CONTROLLERS, control_groups, require_root, seconds
from ..moving import Criu, Dump, Restore
from ..program import ProgramInstance, entered, program_instance, read_log
from .wrapped import ProgramBackend, Wrapped, started, state_of, wrapped

NAME = "c"
"""Name of every container in LXC. Containers are distinguished by their directories (--lxcpath)."""

_RESTORED = "Restore finished successfully"
"""Line that CRIU writes to its log when all processes are restored and run."""
MONITOR, PIVOT = "-monitor", "-pivot"
"""Suffixes of control group names: the group of lxc-start itself, and the group to which lxc-start moves
before it exits."""


class Lxc(ProgramBackend, criu_of.RestoresConnections):
    """Backend lxc. It runs as root. Of CRIU's methods, lxc-checkpoint supports only the plain dump."""

    name = "lxc"
    program, remedy = "lxc-start", "apt-get install lxc"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="LXC")
    checkpoints_by = (Method.CRIU,)
    restores_beside = False

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        require_root(host, request)
        with (
            groups_of_lxc(request.place),
            started(host, tools, request, container, find=find_lxc_message) as one,
        ):
            yield _instance(host, tools, request, one.pid, one.phases, one.given)

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        if host.which("lxc-checkpoint") is None:
            return Unavailable(reason="lxc-checkpoint is not installed", remedy="apt-get install lxc")
        return super().refuses_checkpoint(host, environment)

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        freezer = cgroups.freezer(instance.pid, request.place)
        more = freezing_options(tools, freezer, state_of(request), dump.images)
        more += connection_options(tools, request, dump.images)
        words = _checkpointing(tools, request, criu, dump.images, "--stop", more=more)
        return [*_into(tools, instance.pid), "--", *words]

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with (
            groups_of_lxc(request.place),
            control_groups(request, CONTROLLERS) as groups,
            wrapped(tools, request, groups) as given,
        ):
            container(given)
            yield partial(_restored, host, tools, criu, request, given)


def configuration(given: Wrapped) -> str:
    """Return the content of the container's config file. No I/O.

    The container uses the network namespace in which lxc-start runs.
    """
    request = given.request
    items = [
        ("lxc.uts.name", request.hostname),
        ("lxc.rootfs.path", f"dir:{given.root}"),
        ("lxc.init.cmd", " ".join(given.report.argv)),
        ("lxc.net.0.type", "none"),
        ("lxc.mount.auto", "proc:rw sys:rw"),
        ("lxc.pty.max", "16"),
        ("lxc.tty.max", "0"),
        ("lxc.console.path", "none"),
        ("lxc.environment", f"NEARMETAL_RUN={request.label}"),
        ("lxc.cgroup.relative", "1"),
        ("lxc.cgroup.dir.container", request.place),
        ("lxc.cgroup.dir.monitor", f"{request.place}{MONITOR}"),
        ("lxc.cgroup.dir.monitor.pivot", f"{request.place}{PIVOT}"),
        ("lxc.mount.entry", "tmpfs dev/shm tmpfs nosuid,nodev,mode=1777,create=dir 0 0"),
        ("lxc.mount.entry", "tmpfs tmp tmpfs nosuid,nodev,mode=1777 0 0"),
        ("lxc.mount.entry", "tmpfs run tmpfs nosuid,nodev,mode=0755 0 0"),
    ]
    for bind in given.binds:
        options = "rbind,create=dir" if bind.writable else "rbind,ro,create=dir"
        where = f"{fstab(bind.source)} {fstab(bind.target.relative_to('/'))}"
        items.append(("lxc.mount.entry", f"{where} none {options} 0 0"))
    return "".join(f"{key} = {value}\n" for key, value in items)


def fstab(path: Path) -> str:
    """Return a path escaped as in fstab(5), for use in the config file. A newline in it would begin a new
    item."""
    return str(path).translate({ord(c): f"\\{ord(c):03o}" for c in "\\ \t\n"})


def container(given: Wrapped) -> list[str]:
    """Write the config file and return the command line.

    Raises RunError for a path that lxc-start does not accept.
    """
    if any(word.split() != [word] for word in given.report.argv):
        raise RunError(
            f"{' '.join(given.report.argv)}: lxc-start accepts no path with a space for its first process",
            remedy="set XDG_CACHE_HOME to a directory of a plainer name, or take another backend",
        )
    directory = given.state / "lxc" / NAME
    directory.mkdir(parents=True)
    (directory / "config").write_text(configuration(given))
    return [*_lxc("lxc-start", given.state), "--foreground"]


def _instance(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    pid: int,
    phases: Mapping[str, float],
    given: Wrapped,
) -> ProgramInstance:
    # A copy that lxc-attach makes of itself fails on a busy machine: see kernels/box/copy.c.
    program = host.which("lxc-attach") or "lxc-attach"
    options = ["--copy", "--signal-grandchildren", "--"]
    attach = [*_into(tools, pid), *options, *_lxc(program, given.state), "--"]
    return program_instance(request, pid, phases, given.groups, entered(tools, request, attach))


@contextmanager
def _restored(
    host: Host, tools: Tools, criu: Criu, request: InstanceRequest, given: Wrapped, images: Path
) -> Iterator[ProgramInstance]:
    def restored_pid(program: int) -> int | None:
        """Return the PID of the first process, or None until CRIU's log says that everything is restored.
        lxc-checkpoint writes no PID file."""
        done = _RESTORED in read_log(images / criu_of.RESTORE_LOG)
        return descendant(program, "nm-init") if done else None

    begin = time.monotonic_ns()
    more = connection_options(tools, request, images)
    words = _checkpointing(tools, request, criu, images, "--restore", "--foreground", more=more)
    argv = [*restorer(tools, request, {}), *given.prefix, *words]
    with restoring_from(host, request, argv, images, pid_of=restored_pid) as pid:
        cgroups.thaw(pid, request.place)  # CRIU restores the state in which it found the group
        phases = {"restore": seconds(begin, time.monotonic_ns())}
        yield _instance(host, tools, request, pid, phases, given)


def _checkpointing(
    tools: Tools,
    request: InstanceRequest,
    criu: Criu,
    images: Path,
    *words: str,
    more: Sequence[str] = (),
) -> list[str]:
    """Return a command line of lxc-checkpoint. It sets PATH, by which lxc-checkpoint finds CRIU.

    words: options of lxc-checkpoint.
    more: further options of CRIU.
    """
    bound = criu_of.bound_to_tool(tools, request.label, criu.argv)
    restores = images if "--restore" in words else None
    program = criu_of.script(tools, bound, images, more=more, restores=restores)
    path = f"PATH={program.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    where = ["--checkpoint-dir", str(images), "--verbose"]
    return ["env", path, *_lxc("lxc-checkpoint", state_of(request)), *words, *where]


def _into(tools: Tools, pid: int) -> list[str]:
    """Return the beginning of a command line that enters the network namespace of a process in the container.

    The tools of LXC must run in the namespace in which lxc-start runs, because the name of the container's
    command socket is valid only there. mpirun's agent, which runs commands inside, is in another namespace.
    """
    return [tools / "nm-box", "enter", "--pid", str(pid), "--only", "net"]


def find_lxc_message(output: str) -> str:
    """Return the first error of lxc-start, without the position in LXC's source code. Later lines are
    consequences of the first."""
    lines = (line for line in output.splitlines() if line.strip())
    return next((re.sub(r"^lxc-start: \S+: \S+: \S+: \d+ ", "", s)[:MOST_SHOWN] for s in lines), "")


def _lxc(command: str, state: Path) -> list[str]:
    return [command, "--lxcpath", str(state / "lxc"), "--name", NAME]


@contextmanager
def groups_of_lxc(label: str) -> Iterator[None]:
    """Remove, on exit, the control groups that lxc-start has made in hierarchies where nearmetal makes none.

    lxc-start would take 40 ms to remove them. It is killed instead.
    """
    try:
        yield
    finally:
        names = (label, f"{label}{MONITOR}", f"{label}{PIVOT}")
        cgroups.remove([d / n for d in cgroups.own_everywhere() for n in names if (d / n).is_dir()])
