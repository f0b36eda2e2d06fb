"""Backend crun: the C runtime of Podman, used directly. Needs root."""

from __future__ import annotations

from ..contract import Unavailable
from .oci import OciBackend, OciRuntime


class Crun(OciBackend):
    """Backend crun.

    crun interprets the path of a control group from the top of each hierarchy, so a container could leave the
    groups in which a batch system confines nearmetal. Its processes are therefore put in groups made by
    nearmetal. crun also refuses a machine with both versions of control groups mounted.
    """

    name = program = "crun"
    remedy = "apt-get install crun"
    stays = Unavailable(
        reason="crun has no command checkpoint, for example in Debian 12, where it is built without CRIU",
        remedy="backend runc",
    )
    runtime = OciRuntime(
        program=program,
        options=("--cgroup-manager=disabled",),
        own_groups=False,
        detach_unified=True,
    )
