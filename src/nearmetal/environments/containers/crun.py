"""Backend crun: the C runtime of Podman, used directly. Needs root."""

from __future__ import annotations

from ..contract import Unavailable
from .oci import OciBackend


class Crun(OciBackend):
    """Backend crun.

    crun takes the path of a control group as relative to the top of each hierarchy, so a container could
    leave the group to which a batch system has restricted nearmetal. Therefore crun makes no groups: its
    processes are put in groups made by nearmetal. crun also does not work if control groups of both versions
    are mounted.
    """

    name = program = "crun"
    remedy = "apt-get install crun"
    immovable = Unavailable(
        reason="crun has no command checkpoint, for example in Debian 12, where it is built without CRIU",
        remedy="backend runc",
    )
    options = ("--cgroup-manager=disabled",)
    own_groups = False
    detach_unified = True
