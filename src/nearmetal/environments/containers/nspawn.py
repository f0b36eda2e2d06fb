"""Backend nspawn: systemd-nspawn, neither registered with systemd-machined nor in a unit of its own.

Commands are run inside by joining the namespaces of the first process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...host import Host
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ..contract import InstanceRequest, Tools, Unavailable
from ..instance import BoxInstance, require_root
from .wrapped import ProgramBackend, Wrapped, started


class Nspawn(ProgramBackend):
    """Backend nspawn. It runs as root."""

    name = "nspawn"
    program, remedy = "systemd-nspawn", "apt-get install systemd-container"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="systemd-nspawn")
    immovable = Unavailable(
        reason="systemd-nspawn has no restore, and CRIU cannot write its mounts by itself",
        remedy="backend runc, lxc or namespaces",
    )

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
        require_root(host, request)
        with started(host, tools, request, container) as one:
            yield one.entered_by_box(tools)


def container(given: Wrapped) -> list[str]:
    """Return the systemd-nspawn command line. No I/O.

    The container uses the network namespace in which systemd-nspawn is started.
    """
    request = given.request
    argv = ["systemd-nspawn", "--quiet", "--keep-unit", "--register=no", "--directory", str(given.root)]
    # The host name may be no valid machine name; the machine name is not visible inside.
    argv += ["--machine", "nearmetal", "--hostname", request.hostname]
    argv += ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
    argv += ["--setenv", f"NEARMETAL_RUN={request.label}"]
    for bind in given.binds:
        source, target = (
            str(path).replace("\\", "\\\\").replace(":", "\\:") for path in (bind.source, bind.target)
        )
        argv += [f"--bind{'' if bind.writable else '-ro'}={source}:{target}"]
    return [*argv, "--", *given.report.argv]
