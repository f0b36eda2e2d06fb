"""The daemon that DOCKER_HOST or the default socket leads to: what it is asked, and told to remove."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, Process

COMMAND_TIMEOUT = 60.0


def address() -> str:
    """What tells one daemon from another."""
    return os.environ.get("DOCKER_HOST", "")


def socket_is_there() -> bool:
    """False where asking the daemon would only fail, and take its time for that."""
    kind, _, path = (address() or "unix:///var/run/docker.sock").partition("://")
    return kind != "unix" or Path(path).exists()


def cgroup_driver(host: Host) -> str:
    """'cgroupfs' or 'systemd'; each daemon is asked once. Raises UnavailableError where none answers."""
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
"""By address of the daemon."""


def pid_of(host: Host, name: str) -> int | None:
    """Of the first process of a container; None where it has none."""
    answer = host.run(["docker", "inspect", "--format", "{{.State.Pid}}", name], timeout=COMMAND_TIMEOUT)
    return int(answer.stdout) if answer.ok and answer.stdout.strip().isdigit() else None


def put_away(host: Host, name: str, clients: Sequence[Process]) -> None:
    """A client that ends by itself has seen its container removed; for one that was killed, or that never
    came so far, we see to it: what is mounted for a container must be unmounted before its directories go."""
    if not clients or (clients[0].poll() or 0) < 0:
        remove(host, name)


def remove(host: Host, name: str) -> None:
    """End and remove a container; harmless where it is gone. Raises RunError."""
    done = host.run(["docker", "rm", "--force", "--volumes", name], timeout=COMMAND_TIMEOUT)
    if not done.ok and "No such container" not in done.stderr and "already in progress" not in done.stderr:
        raise RunError(f"container {name} cannot be removed: {done.failure()}", remedy="nearmetal clean")
