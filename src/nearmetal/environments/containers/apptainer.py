"""Backend apptainer: `apptainer exec` on the instance's root directory.

Commands are run inside by joining the namespaces of the first process. `apptainer instance start` is not
used, since such an instance would outlive the process that started it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ...host import Host, text_of
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ..contract import InstanceRequest, Tools, Unavailable
from ..instance import BoxInstance
from .wrapped import ProgramBackend, Wrapped, require_plain, started

CAP_SYS_RESOURCE = 1 << 24
"""Bit of CAP_SYS_RESOURCE in a mask of capabilities. Root inside a container often lacks this capability, but
apptainer would try to pass it on to the instance."""

FRESH = ("/run", "/tmp")
MORE = (*(word for top in FRESH for word in ("--fresh", top)), "--new-pids")
"""Options of `nm-box wrap`. The new PID namespace ends apptainer with nearmetal: its parent-death signal is
lost when it changes its credentials."""


class Apptainer(ProgramBackend):
    """Backend apptainer. It runs as root or, for a built image, as root of the user namespace that all
    instances share."""

    name = program = "apptainer"
    remedy = "apt-get install apptainer (Debian 12 has no package of it; its own project has)"
    capabilities = Capabilities(
        own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, needs_user_namespace=True, title="Apptainer"
    )
    immovable = Unavailable(
        reason="Apptainer makes checkpoints by DMTCP only, for which Debian has no package",
        remedy="backend runc, lxc or namespaces",
    )

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
        if request.user_namespace is not None and request.tree == Path("/"):
            # Without root, the root directory is one overlay for each directory of /, and apptainer ignores
            # what is mounted below a root directory.
            raise request.refused(
                "without root, apptainer cannot use image host", "run as root, or take a built image"
            )
        program = partial(container, lacking=lacking_here(host))
        with started(host, tools, request, program, more=MORE) as one:
            yield one.entered_by_box(tools)


def container(given: Wrapped, *, lacking: tuple[str, ...]) -> list[str]:
    """Return the apptainer command line. No I/O.

    The container uses the network namespace in which apptainer is started. It sees no files of the machine
    except the binds.

    lacking: names of capabilities that this process lacks and apptainer therefore must not pass on.

    Raises RunError for a path that apptainer does not accept.
    """
    require_plain(given, "apptainer", without=":,")
    argv = ["apptainer", "--silent", "exec", "--writable", "--pid", "--no-init", "--ipc", "--uts"]
    argv += ["--hostname", given.request.hostname, "--no-mount", "home,tmp,cwd,hostfs,bind-paths"]
    argv += ["--no-home", "--pwd", "/", "--bind", f"{given.overlay / 'shm'}:/dev/shm"]
    for top in FRESH:  # mounted there already, with the targets of binds; not bound with the root
        argv += ["--bind", f"{given.root}{top}:{top}"]
    if lacking:
        argv += ["--drop-caps", ",".join(lacking)]
    for bind in given.binds:
        argv += ["--bind", f"{bind.source}:{bind.target}{'' if bind.writable else ':ro'}"]
    return [*argv, str(given.root), *given.report.argv]


def lacking_capabilities(status: str) -> tuple[str, ...]:
    """Return the names of the capabilities that apptainer cannot pass on because this process lacks them.

    status: contents of /proc/self/status.
    """
    line = next((s for s in status.splitlines() if s.startswith("CapEff:")), "CapEff: 0")
    effective = int(line.split()[1], 16)
    return () if effective & CAP_SYS_RESOURCE or not effective else ("CAP_SYS_RESOURCE",)


def lacking_here(host: Host) -> tuple[str, ...]:
    """Return lacking_capabilities() of this process."""
    return lacking_capabilities(text_of(host, "/proc/self/status"))
