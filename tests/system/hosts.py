"""Machines for tests: network namespaces joined by a bridge, each with an sshd, a host name, a CPU,
processes, control groups, /run and /dev/shm of its own, and on request a root tree. Their traffic stays in
these namespaces."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.patience import until

from nearmetal.host import cgroups
from nearmetal.host.mounts import own_mounts

NET = "10.231.77"
_APART = ("unshare", "--uts", "--mount", "--cgroup", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Words in front of the first process of a machine. With it, all its processes end."""


@dataclass(frozen=True)
class Hosts:
    """enter: words in front of a command on the machine that reaches all others; inventory: the others."""

    enter: tuple[str, ...]
    inventory: Path
    addresses: Mapping[str, str]

    def ssh(self, name: str) -> tuple[str, ...]:
        """Return the words in front of a command on one of the others."""
        config = self.inventory.parent / "config"
        return *self.enter, "ssh", "-F", str(config), "-o", "BatchMode=yes", self.addresses[name]


@contextmanager
def hosts(
    place: Path, names: Sequence[str], *, bridged: bool = False, tree: Path | None = None
) -> Iterator[Hosts]:
    """Make the machines until exit.

    place: an empty directory.
    bridged: whether eth0 of the machines is a port of a bridge br0, which has the address.
    tree: an image's root tree that each machine has as its own, with `place` and nearmetal in it; None if
        they see the files of this machine.
    """
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    assert sshd is not None, "apt-get install openssh-server"
    for key in ("host", "user"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key))
    shutil.copy(place / "user.pub", place / "authorized")
    public = (place / "host.pub").read_text()
    (place / "known").write_text("".join(f"{_address(at)} {public}" for at in range(len(names))))
    (place / "config").write_text(
        f"Host *\n  IdentityFile {place}/user\n  UserKnownHostsFile {place}/known\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    lines = "".join(f"  {name}: {{address: {_address(at)}}}\n" for at, name in enumerate(names))
    inventory = place / "hosts.yaml"
    inventory.write_text(f"nodes:\n{lines}ssh_config: {place}/config\n")
    cpus = sorted(os.sched_getaffinity(0))
    kind = "bridged-" if bridged else ""  # both kinds may exist at once
    with ExitStack() as stack:
        head = _namespace(f"{kind}head", stack)
        _in(head, "ip", "link", "add", "br0", "type", "bridge")
        _in(head, "ip", "address", "add", f"{NET}.1/24", "dev", "br0")
        _in(head, "ip", "link", "set", "br0", "up")
        for at, name in enumerate(names):
            own = _namespace(f"{kind}{name}", stack)
            _in(head, "ip", "link", "add", f"v{at}", "type", "veth", "peer", "name", "eth0", "netns", own)
            _in(head, "ip", "link", "set", f"v{at}", "master", "br0", "up")
            _in(own, "ip", "link", "set", "eth0", "up")
            if bridged:
                _in(own, "ip", "link", "add", "br0", "type", "bridge")
                _in(own, "ip", "link", "set", "eth0", "master", "br0")
                _in(own, "ip", "link", "set", "br0", "up")
            _in(own, "ip", "address", "add", f"{_address(at)}/24", "dev", "br0" if bridged else "eth0")
            settings = place / f"{name}.conf"
            settings.write_text(
                f"ListenAddress {_address(at)}\nHostKey {place}/host\nStrictModes no\nUsePAM no\n"
                f"AuthorizedKeysFile {place}/authorized\nPidFile none\nPermitRootLogin prohibit-password\n"
                "Subsystem sftp internal-sftp\n"
            )
            groups = _groups(f"nmtest{os.getpid()}-{kind}{name}", stack)
            script = (
                f"{_root(tree, place / f'{name}.root', place)}{_own_groups()}"
                "mount -t tmpfs tmpfs /run && mkdir /run/sshd && mount -t tmpfs tmpfs /dev/shm && "
                f"hostname {shlex.quote(name)} && "
                # It reaps, as the first process of a machine has to.
                f"exec taskset --cpu-list {cpus[at % len(cpus)]} {sshd} -D -e -f {settings}"
            )
            errors = stack.enter_context((place / f"{name}.log").open("wb"))
            words = [*_inside(groups), *_entering(own), *_APART, "sh", "-c", script]
            process = subprocess.Popen(words, stderr=errors)
            stack.callback(process.wait, timeout=60)
            stack.callback(process.kill)  # unshare ignores SIGTERM, and its child ends with it
            until(partial(_listens, place / f"{name}.log"), f"sshd of {name}")
        addresses = {name: _address(at) for at, name in enumerate(names)}
        yield Hosts(enter=_entering(head), inventory=inventory, addresses=addresses)


def _root(tree: Path | None, root: Path, place: Path) -> str:
    """Return the beginning of a shell script that makes a copy of the tree the root of its processes."""
    if tree is None:
        return ""
    root.mkdir()
    shared: list[Path] = []
    for path in [place, *map(Path, (sys.prefix, sys.base_prefix, *sys.path))]:
        above = [Path("/usr"), *shared]
        if path.is_dir() and path.is_absolute() and not any(path.is_relative_to(p) for p in above):
            shared.append(path)
    lines = [
        f"mount -t tmpfs tmpfs {root}",
        f"mkdir {root}/upper {root}/work {root}/root",
        f"mount -t overlay overlay -o lowerdir={tree},upperdir={root}/upper,workdir={root}/work {root}/root",
        f"cd {root}/root",
        *(f"mkdir -p .{path} && mount --bind {path} .{path}" for path in shared),
        "mount -t proc proc proc && mount --rbind /dev dev && mount --rbind /sys sys",
        "mkdir -p old && pivot_root . old && cd / && umount -l /old",
    ]
    return "".join(f"{line} && " for line in lines)


def _groups(name: str, stack: ExitStack) -> list[Path]:
    """Make a control group of this name below our own in every hierarchy, until exit."""
    made = []
    for own in cgroups.own_everywhere():
        group = own / name
        group.mkdir()
        stack.callback(until, partial(_removed, group), f"the processes of {group} end")
        for setting in ("cpuset.cpus", "cpuset.mems"):  # in version 1 they are empty at first
            if (own / setting).exists():
                (group / setting).write_text((own / setting).read_text())
        made.append(group)
    return made


def _removed(group: Path) -> bool:
    try:
        for directory, _, _ in os.walk(group, topdown=False):
            Path(directory).rmdir()
    except OSError:  # a process has not ended yet
        return False
    return True


def _inside(groups: Sequence[Path]) -> tuple[str, ...]:
    """Return the words in front of a command that runs in these control groups."""
    join = "".join(f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))} && " for group in groups)
    return "sh", "-c", f'{join}exec "$@"', "sh"


def _own_groups() -> str:
    """Return a part of a shell script after which /sys/fs/cgroup shows the groups below its own only."""
    lines = ["umount --recursive /sys/fs/cgroup"]
    for mount in own_mounts():
        if Path(mount.point).is_relative_to("/sys/fs/cgroup"):
            options = ",".join(mount.options & _controllers()) if mount.kind == "cgroup" else "rw"
            if options.startswith("name="):
                options = f"none,{options}"
            lines.append(f"mkdir -p {mount.point} && mount -t {mount.kind} -o {options} cgroup {mount.point}")
    return "".join(f"{line} && " for line in lines)


def _controllers() -> set[str]:
    """Return the names of the controllers of version 1, and of hierarchies without controllers."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return {name for line in lines for name in line.split(":")[1].split(",") if name}


def _listens(log: Path) -> bool:
    return "Server listening" in log.read_text()


def _address(at: int) -> str:
    return f"{NET}.{at + 11}"


def _namespace(name: str, stack: ExitStack) -> str:
    own = f"nmtest{os.getpid()}-{name}"
    _run("ip", "netns", "add", own)
    stack.callback(_run, "ip", "netns", "delete", own)
    _in(own, "ip", "link", "set", "lo", "up")
    return own


def _entering(namespace: str) -> tuple[str, ...]:
    return "nsenter", f"--net=/run/netns/{namespace}"


def _in(namespace: str, *argv: str) -> None:
    _run(*_entering(namespace), *argv)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
