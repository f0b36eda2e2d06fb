"""Gives guests of QEMU access to the machine's root directory through virtiofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import RunError
from ...host import Host
from ...host.processes.running import await_true, running_program
from ..contract import InstanceRequest, Tools
from ..guests.needs import VIRTIOFSD_REMEDY, find_virtiofsd
from ..instance import START_TIMEOUT
from ..program import in_groups, log_failure
from .argv import Sockets


@contextmanager
def file_server(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], sockets: Sockets
) -> Iterator[None]:
    """Run virtiofsd until exit. It serves the machine's root directory to a guest, which mounts it read-only.

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
    how = ["-o", "source=/,cache=auto,sandbox=chroot"] if old else ["--shared-dir=/", "--sandbox=chroot"]
    words = [program, f"--socket-path={sockets.files}", *how, "--rlimit-nofile=20000"]
    argv = in_groups(tools, groups, request.label, words)
    with running_program(host, argv, request.label, output) as server:
        if not await_true(sockets.files.exists, START_TIMEOUT, server):
            raise RunError(log_failure("virtiofsd", server.poll(), output))
        yield
