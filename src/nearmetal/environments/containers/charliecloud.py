"""Backend charliecloud: ch-run, which makes only a user namespace and a mount namespace.

nm-box sets up the network and the host name of an instance. Commands are run inside by `ch-run --join-pid`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...host import Host, cgroups
from ...model.capabilities import CONTAINER_ATTACHMENTS, Capabilities
from ..contract import InstanceRequest, Tools, Unavailable
from ..program import ProgramInstance, entered, program_instance
from .wrapped import ProgramBackend, Started, Wrapped, require_plain, started

CH_RUN = ("env", "USER=root", "ch-run")
"""Command that runs ch-run. ch-run refuses to start without $USER; the value has no effect here."""


class Charliecloud(ProgramBackend):
    """Backend charliecloud. It runs as root, or as root of the user namespace that all instances share."""

    name = "charliecloud"
    program, remedy = "ch-run", "apt-get install charliecloud"
    capabilities = Capabilities(
        title="Charliecloud",
        own=frozenset({"mnt", "uts", "net"}),
        attachments=CONTAINER_ATTACHMENTS,
        needs_user_namespace=True,
    )
    immovable = Unavailable(
        reason="Charliecloud has no restore, and CRIU cannot write its namespaces by itself",
        remedy="backend runc, lxc or namespaces",
    )

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        with started(
            host, tools, request, container, more=("--hostname", request.hostname, "--fresh", "/run")
        ) as one:
            enter = entered(tools, request, entrance(tools, one))
            yield program_instance(request, one.pid, one.phases, one.given.groups, enter)


def container(given: Wrapped) -> list[str]:
    """Return the ch-run command line that starts an instance. No I/O.

    Raises RunError for a path that ch-run does not accept.
    """
    require_plain(given, "ch-run", without=":")
    argv = [*CH_RUN, "--write", "--private-tmp", "--no-passwd", "--cd", "/"]
    argv += ["--bind", f"{given.overlay / 'shm'}:/dev/shm"]
    for bind in given.binds:
        argv += ["--bind", f"{bind.source}:{bind.target}"]
    return [*argv, str(given.root), "--", *given.report.argv]


def entrance(tools: Tools, one: Started) -> list[str]:
    """Return the command prefix that runs a command inside the instance.

    It enters first the shared user namespace, then the control groups and the network and UTS namespaces, and
    last the namespaces that ch-run made.
    """
    request, pid = one.given.request, str(one.pid)
    argv = []
    if request.user_namespace is not None:
        holder = request.user_namespace.split("/")[2]
        argv += [tools / "nm-box", "enter", "--pid", holder, "--user-namespace", "--only", "user", "--"]
    argv += [tools / "nm-box", "enter", "--pid", pid, "--only", "uts,net"]
    for group in cgroups.unique(one.given.groups):
        argv += ["--cgroup", str(group)]
    # ch-run requires an image directory here, but does not use it.
    return [*argv, "--", *CH_RUN, "--join-pid", pid, str(one.given.state), "--"]
