"""Requests to the Docker daemon at DOCKER_HOST or at the default socket."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, Process

COMMAND_TIMEOUT = 60.0


def address() -> str:
    """Return the address that identifies the daemon."""
    return os.environ.get("DOCKER_HOST", "")


def socket_is_there() -> bool:
    """Return whether the daemon's socket exists. If not, a request would fail, but only after some time."""
    kind, _, path = (address() or "unix:///var/run/docker.sock").partition("://")
    return kind != "unix" or Path(path).exists()


def cgroup_driver(host: Host) -> str:
    """Return the cgroup driver of the daemon: 'cgroupfs' or 'systemd'. The answer of each daemon is cached.

    Raises UnavailableError if no daemon answers.
    """
    daemon = address()
    if daemon not in _drivers:
        answer = host.run(["docker", "info", "--format", "{{.CgroupDriver}}"], timeout=COMMAND_TIMEOUT)
        if not answer.ok:
            raise UnavailableError(
                f"no Docker daemon answers: {answer.failure()}", remedy="systemctl start docker"
            )
        _drivers[daemon] = answer.stdout.strip()
    return _drivers[daemon]


_drivers: dict[str, str] = {}
"""Control group drivers, by address of the daemon."""


def pid_of(host: Host, name: str) -> int | None:
    """Return the PID of the first process of a container; None if the container does not run."""
    answer = host.run(["docker", "inspect", "--format", "{{.State.Pid}}", name], timeout=COMMAND_TIMEOUT)
    return int(answer.stdout) if answer.ok and answer.stdout.strip().isdigit() else None


def put_away(host: Host, name: str, clients: Sequence[Process]) -> None:
    """Remove a container unless its client has done so.

    A client that ends by itself has removed its container. After a client was killed, the container must be
    removed here: its mounts must be removed before its directories.
    """
    if not clients or (clients[0].poll() or 0) < 0:
        remove(host, name)


def remove(host: Host, name: str) -> None:
    """Stop and remove a container. Does nothing if it no longer exists.

    Raises RunError.
    """
    done = host.run(["docker", "rm", "--force", "--volumes", name], timeout=COMMAND_TIMEOUT)
    if not done.ok and "No such container" not in done.stderr and "already in progress" not in done.stderr:
        raise RunError(f"container {name} cannot be removed: {done.failure()}", remedy="nearmetal clean")
