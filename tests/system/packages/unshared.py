"""Backend unshared, as another package has it: a container made by unshare and mount of util-linux."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nearmetal.environments import (
    CONTAINER_ATTACHMENTS,
    OWN_ALL,
    Capabilities,
    InstanceRequest,
    Tools,
)
from nearmetal.environments.containers.wrapped import ProgramBackend, Wrapped, started
from nearmetal.environments.instance import BoxInstance, make_instance, require_root
from nearmetal.host import Host
from nearmetal.model.environments.environment import BackendSettings
from nearmetal.model.keys import TRUTH, key


@dataclass(frozen=True, kw_only=True)
class UnsharedSettings(BackendSettings):
    """Settings of unshare. time: whether the instance has a time namespace of its own."""

    section = "unshare"
    title = "unshare"
    doc = "of backend unshared"
    example = {"time": True}  # noqa: RUF012  a ClassVar of the base

    time: bool = field(default=False, metadata=key(TRUTH, "a time namespace of its own", True))


class Unshared(ProgramBackend):
    """Runs as root."""

    name = "unshared"
    program, remedy = "unshare", "apt-get install util-linux"
    capabilities = Capabilities(
        own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, settings=UnsharedSettings, title="unshare"
    )

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[BoxInstance]:
        return _start(host, tools, request)


def container(given: Wrapped) -> list[str]:
    """Return the command line; pure. In the namespaces, this file is the program that changes the root."""
    own = given.request.environment.own
    argv = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child"]
    if isinstance(own, UnsharedSettings) and own.time:
        argv.append("--time")
    binds = []
    for bind in given.binds:
        binds += [str(bind.target), "bind" if bind.writable else "bind,ro", str(bind.source)]
    return [*argv, "--", sys.executable, __file__, str(given.root), *binds, "--", *given.report.argv]


def change_root(root: str, *words: str) -> None:
    """Mount what the root needs, enter it, and run what follows '--'."""
    at = words.index("--")
    mounts = [
        ("/", "bind", root),
        ("/proc", "proc", "none"),
        ("/dev", "bind", "/dev"),
        ("/sys", "bind", "/sys"),
    ]
    mounts += [(top, "tmpfs", "none") for top in ("/dev/shm", "/tmp", "/run")]
    mounts += zip(words[0:at:3], words[1:at:3], words[2:at:3], strict=True)
    for path, kind, source in mounts:
        place = root + path
        Path(place).mkdir(parents=True, exist_ok=True)
        how = ["--options", kind] if kind.startswith("bind") else ["--types", kind]
        subprocess.run(["mount", *how, source, place], check=True)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)
    detach = 2
    if ctypes.CDLL(None).umount2(b".", detach) != 0:
        raise OSError("the old root is not unmounted")
    os.chdir("/")
    os.execv(words[at + 1], words[at + 1 :])


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
    require_root(host, request)
    with started(host, tools, request, container, more=("--hostname", request.hostname)) as one:
        yield make_instance(
            tools, request, pid=one.pid, namespaces_of=one.pid, groups=one.given.groups, phases=one.phases
        )


if __name__ == "__main__":
    change_root(*sys.argv[1:])
