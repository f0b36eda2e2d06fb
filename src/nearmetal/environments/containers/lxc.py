"""Backend lxc: a system container started by lxc-start, with nm-init as its init. Commands enter by
lxc-attach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ...errors import RunError
from ...host import Host, cgroups
from ...host.processes.failure import MOST_SHOWN
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ..contract import Available, InstanceRequest, Tools, Unavailable
from ..instance import require_root
from ..program import ProgramInstance, entered
from .wrapped import Wrapped, check_program, started

NAME = "c"
"""Name of every container. Containers are distinguished by their directories (lxcpath)."""

MONITOR, PIVOT = "-monitor", "-pivot"
"""Suffixes of the label: the control group of lxc-start, and the group that lxc-start moves to at its end."""


class Lxc:
    """Runs as root."""

    name = "lxc"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="LXC")

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        return check_program(self, host, tools, program="lxc-start", remedy="apt-get install lxc")

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[ProgramInstance]:
        return _start(host, tools, request)


def configuration(given: Wrapped) -> str:
    """Return the container's config file. No I/O.

    The container uses the network in which lxc-start runs. The name of the container's command socket also
    belongs to that network.
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
        ("lxc.cgroup.dir.container", request.label),
        ("lxc.cgroup.dir.monitor", f"{request.label}{MONITOR}"),
        ("lxc.cgroup.dir.monitor.pivot", f"{request.label}{PIVOT}"),
        ("lxc.mount.entry", "tmpfs dev/shm tmpfs nosuid,nodev,mode=1777,create=dir 0 0"),
        ("lxc.mount.entry", "tmpfs tmp tmpfs nosuid,nodev,mode=1777 0 0"),
        ("lxc.mount.entry", "tmpfs run tmpfs nosuid,nodev,mode=0755 0 0"),
    ]
    for path, writable in given.binds.items():
        options = "rbind,create=dir" if writable else "rbind,ro,create=dir"
        items.append(("lxc.mount.entry", f"{fstab(path)} {fstab(path.relative_to('/'))} none {options} 0 0"))
    return "".join(f"{key} = {value}\n" for key, value in items)


def fstab(path: Path) -> str:
    """Return a path, escaped for fstab(5)."""
    return str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def container(given: Wrapped) -> list[str]:
    """Write the config file and return the command line.

    Raises RunError for a path that lxc-start does not accept.
    """
    if any(word.split() != [word] for word in given.report.argv):
        raise RunError(
            f"{' '.join(given.report.argv)}: lxc-start takes no path with a space to its first process",
            remedy="set XDG_CACHE_HOME to a directory of a plainer name, or take another backend",
        )
    directory = given.state / "lxc" / NAME
    directory.mkdir(parents=True)
    (directory / "config").write_text(configuration(given))
    return [*_lxc("lxc-start", given), "--foreground"]


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
    require_root(host, request)

    with groups_of_lxc(request.label), started(host, tools, request, container, find=find_lxc_message) as one:
        # The command socket has a name in the network of lxc-start, while mpirun's agent runs in another
        # network. lxc-attach does not forward signals.
        into = [tools / "nm-box", "enter", "--pid", str(one.pid), "--only", "net"]
        attach = [*into, "--signal-grandchildren", "--", *_lxc("lxc-attach", one.given), "--"]
        yield ProgramInstance(
            label=request.label,
            hostname=request.hostname,
            pid=one.pid,
            phases=one.phases,
            cgroups=one.given.groups,
            enter=entered(tools, request, attach),
        )


def find_lxc_message(output: str) -> str:
    """Return the first line of lxc-start's errors, without its position in the sources. Later lines follow
    from it."""
    lines = (line for line in output.splitlines() if line.strip())
    return next((re.sub(r"^lxc-start: \S+: \S+: \S+: \d+ ", "", s)[:MOST_SHOWN] for s in lines), "")


def _lxc(command: str, given: Wrapped) -> list[str]:
    return [command, "--lxcpath", str(given.state / "lxc"), "--name", NAME]


@contextmanager
def groups_of_lxc(label: str) -> Iterator[None]:
    """Remove, on exit, the groups that lxc-start made in hierarchies where nearmetal makes none.

    lxc-start is killed, which saves the 40 ms in which it would remove them.
    """
    try:
        yield
    finally:
        names = (label, f"{label}{MONITOR}", f"{label}{PIVOT}")
        cgroups.remove([d / n for d in cgroups.own_everywhere() for n in names if (d / n).is_dir()])
