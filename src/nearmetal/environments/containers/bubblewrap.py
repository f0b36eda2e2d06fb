"""Backend bubblewrap: bwrap of the bubblewrap package, which flatpak uses.

bwrap has no command that enters a running sandbox, so commands are run inside by joining the namespaces of
the first process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...host import Host
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ..contract import InstanceRequest, Tools, Unavailable
from ..instance import BoxInstance
from .wrapped import ProgramBackend, Wrapped, started


class Bubblewrap(ProgramBackend):
    """Backend bubblewrap. It runs as root, or as root of the user namespace that all instances share."""

    name = "bubblewrap"
    program, remedy = "bwrap", "apt-get install bubblewrap"
    capabilities = Capabilities(
        own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, needs_user_namespace=True, title="Bubblewrap"
    )
    immovable = Unavailable(
        reason="Bubblewrap has no restore, and CRIU cannot write its mounts by itself",
        remedy="backend runc, lxc or namespaces",
    )

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
        with started(host, tools, request, container) as one:
            yield one.entered_by_box(tools)


def container(given: Wrapped) -> list[str]:
    """Return the bwrap command line. No I/O. The container uses the network namespace in which bwrap is
    started."""
    argv = ["bwrap", "--die-with-parent", "--as-pid-1", "--unshare-uts", "--unshare-ipc", "--unshare-pid"]
    argv += ["--hostname", given.request.hostname, "--bind", str(given.root), "/", "--proc", "/proc"]
    argv += ["--bind", "/sys", "/sys", "--dev-bind", "/dev", "/dev"]
    for top, mode in (("/dev/shm", "1777"), ("/tmp", "1777"), ("/run", "0755")):
        argv += ["--perms", mode, "--tmpfs", top]
    for bind in given.binds:
        argv += ["--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target)]
    return [*argv, "--", *given.report.argv]
