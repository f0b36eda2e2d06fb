"""Backends runc and crun: OCI runtimes, used without Docker, containerd or Podman. They need root."""

from __future__ import annotations

from ..contract import Unavailable
from .oci import CheckpointingOciBackend, OciBackend


class Runc(CheckpointingOciBackend):
    """Backend runc. runc makes the control groups of a container: at the paths of the groups that nearmetal
    has made for the instance, and below nearmetal's own group in all other hierarchies."""

    name = program = "runc"
    remedy = "apt-get install runc"
    own_groups = True


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
        reason="nearmetal does not use checkpoints of crun, which Debian 12 builds without CRIU",
        remedy="backend runc",
    )
    options = ("--cgroup-manager=disabled",)
    own_groups = False
    detach_unified = True
