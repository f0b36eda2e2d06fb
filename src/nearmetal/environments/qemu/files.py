"""Gives guests of QEMU access to the machine's root directory through virtiofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import RunError
from ...host import Host
from ...host.processes.running import await_true, running_program
from ..contract import Bind, InstanceRequest, Tools
from ..guests.guest import FRESH, require_base
from ..guests.needs import VIRTIOFSD_REMEDY, find_virtiofsd
from ..instance import START_TIMEOUT, all_binds
from ..program import in_groups, log_failure
from .argv import Sockets


def served_binds(tools: Tools, request: InstanceRequest) -> list[Bind]:
    """Return the binds that a guest sees through virtiofsd. The others are copied into it, except the tools,
    which are in its initramfs.

    A guest with the machine's root sees all targets that the machine has, except those below FRESH.
    """
    if require_base(request).root is not None:
        return []
    seen = (b for b in all_binds(tools, request) if b.writable and b.target.exists())
    return [b for b in seen if not any(b.target.is_relative_to(top) for top in FRESH)]


@contextmanager
def file_server(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], sockets: Sockets
) -> Iterator[None]:
    """Run virtiofsd until exit. It serves the machine's root directory to a guest.

    The guest mounts it read-only. So that its root user cannot change that, virtiofsd serves a copy of the
    mounts through which nothing can be written (nm-box wrap --view). The copy has the views of the request.

    Raises UnavailableError if virtiofsd is not installed.
    Raises RunError if virtiofsd does not start.
    """
    program = find_virtiofsd(host)
    if program is None:
        raise request.refused(
            "image host needs virtiofsd",
            f"{VIRTIOFSD_REMEDY}, or name an image: nearmetal image build debian-mpi",
        )
    output = sockets.directory / "virtiofsd.txt"
    old = "/qemu/" in program
    view = sockets.directory / "view"
    view.mkdir()
    how = (
        ["-o", f"source={view},cache=auto,sandbox=chroot"]
        if old
        else [f"--shared-dir={view}", "--sandbox=chroot"]
    )
    words = [program, f"--socket-path={sockets.files}", *how, "--rlimit-nofile=20000"]
    alone = [tools / "nm-box", "wrap", "--view", str(view)]
    for bind in served_binds(tools, request) if request.views else ():
        alone += ["--bind", str(bind.source), "--at", str(bind.target)]
    argv = [*alone, "--", *in_groups(tools, groups, request.label, words)]
    with running_program(host, argv, request.label, output) as server:
        if not await_true(sockets.files.exists, START_TIMEOUT, server):
            raise RunError(log_failure("virtiofsd", server.poll(), output))
        yield
