"""Provides the machine's own root to guests of QEMU through virtiofs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host
from ...host.processes import labelled as processes
from ..contract import InstanceRequest, Tools
from ..guests.needs import VIRTIOFSD_REMEDY, find_virtiofsd
from ..instance import START_TIMEOUT
from ..program import in_groups, log_failure
from .argv import Sockets


@contextmanager
def file_server(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], sockets: Sockets
) -> Iterator[None]:
    """Serve the machine's own root to a guest, which mounts it read-only, until exit.

    Raises UnavailableError if virtiofsd is not installed.
    Raises RunError if virtiofsd does not start.
    """
    program = find_virtiofsd(host)
    if program is None:
        raise UnavailableError(
            f"environment {request.environment.name}: image host needs virtiofsd",
            remedy=f"{VIRTIOFSD_REMEDY}, or name an image: nearmetal image build debian-mpi",
        )
    output = sockets.directory / "virtiofsd.txt"
    old = "/qemu/" in program
    how = ["-o", "source=/,cache=auto,sandbox=chroot"] if old else ["--shared-dir=/", "--sandbox=chroot"]
    server = host.start(
        in_groups(
            tools,
            groups,
            request.label,
            [program, f"--socket-path={sockets.files}", *how, "--rlimit-nofile=20000"],
        ),
        stdout=output,
        stderr=output,
        env={processes.LABEL_VARIABLE: request.label},
        cwd=Path("/"),
    )
    try:
        end = time.monotonic() + START_TIMEOUT
        while not sockets.files.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise RunError(log_failure("virtiofsd", server.poll(), output))
            time.sleep(0.002)
        yield
    finally:
        server.kill()
