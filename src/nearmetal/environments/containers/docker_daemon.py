"""Requests to the Docker daemon at DOCKER_HOST or at the default socket."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, cgroups
from ...host.processes.labelled import name_of
from ..contract import InstanceRequest, Tools
from ..program import FirstReport, Running, end_payload, in_groups, running
from .docker_runc import end_stuck, stuck_restores

COMMAND_TIMEOUT = 60.0


def address() -> str:
    """Return the address of the daemon, from DOCKER_HOST; empty for the default socket."""
    return os.environ.get("DOCKER_HOST", "")


def socket_is_there() -> bool:
    """Return whether the daemon's socket exists, or the daemon is not reached by a Unix socket.

    Requests without a socket are avoided, because they fail only after some time.
    """
    kind, _, path = (address() or "unix:///var/run/docker.sock").partition("://")
    return kind != "unix" or Path(path).exists()


def cgroup_driver(host: Host) -> str:
    """Return the cgroup driver of the daemon: 'cgroupfs' or 'systemd'.

    Raises UnavailableError if no daemon answers.
    """
    return fact(host, "info", "{{.CgroupDriver}}")


def fact(host: Host, command: str, template: str) -> str:
    """Return a setting of the daemon that does not change while it runs. The answer of each daemon is cached.

    command, template: command of docker and its option --format.
    Raises UnavailableError if no daemon answers.
    """
    key = (address(), command, template)
    if key not in _facts:
        answer = host.run(["docker", command, "--format", template], timeout=COMMAND_TIMEOUT).require(
            "no Docker daemon answers", remedy="systemctl start docker", error=UnavailableError
        )
        _facts[key] = answer.stdout.strip()
    return _facts[key]


_facts: dict[tuple[str, str, str], str] = {}
"""Answers of daemons, by the daemon's address, command and template."""


@contextmanager
def container(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    report: FirstReport,
    words: Sequence[str],
    groups: Iterable[Path] = (),
    *,
    kept: bool = False,
) -> Iterator[Running]:
    """Run a container until exit. Its name is the label of the request.

    words: arguments of `docker`. The container must run report.argv.
    groups: directories of the control groups below which Docker makes those of the container; they are
        searched for its first process.
    kept: whether Docker keeps the container after its end, because the words lack --rm. It is removed here.

    Raises RunError.
    """
    status: int | None = None
    try:
        argv = in_groups(tools, {}, request.label, ["docker", *words])
        first = partial(_first_process, host, request.label, groups)
        with running(host, request, report, argv, pid_of=first) as run:
            with end_payload(run):
                yield run
            status = run.program.poll()
    finally:
        # A client that ends by itself has removed its container. After a client was killed, the container
        # must be removed here: its mounts must be removed before its directories.
        if kept or status is None or status < 0:
            remove(host, request.label)


def _first_process(host: Host, name: str, groups: Iterable[Path]) -> int | None:
    """Return the PID of the first process of a container; None if the container does not run.

    The process is not a descendant of the docker client. It is searched in the control groups, and only
    otherwise requested from the daemon, which takes longer.
    """
    members = cgroups.members(cgroups.with_children(groups))
    if own := next((pid for pid in members if name_of(pid) == "nm-init"), None):
        return own
    answer = host.run(["docker", "inspect", "--format", "{{.State.Pid}}", name], timeout=COMMAND_TIMEOUT)
    said = answer.stdout.strip()
    return int(said) if answer.ok and said.isdigit() and said != "0" else None  # 0: it has ended


def remove(host: Host, name: str) -> None:
    """Stop and remove a container. Does nothing if it no longer exists.

    Raises RunError.
    """
    if stuck := stuck_restores():
        listed = host.run(
            ["docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"], timeout=COMMAND_TIMEOUT
        )
        for line in listed.stdout.splitlines():
            identity, _, of_container = line.partition(" ")
            if of_container == name and identity in stuck:
                end_stuck(identity, stuck[identity])
    done = host.run(["docker", "rm", "--force", "--volumes", name], timeout=COMMAND_TIMEOUT)
    if not done.ok and "No such container" not in done.stderr and "already in progress" not in done.stderr:
        raise RunError(f"container {name} cannot be removed: {done.failure()}", remedy="nearmetal clean")
