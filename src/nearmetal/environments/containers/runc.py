"""Backend runc: the runtime used by Docker, containerd and Podman, used directly. Needs root."""

from __future__ import annotations

from .oci import CheckpointingOciBackend


class Runc(CheckpointingOciBackend):
    """Backend runc. runc makes the control groups of a container: at the paths of the groups that nearmetal
    has made for the instance, and below nearmetal's own group in all other hierarchies."""

    name = program = "runc"
    remedy = "apt-get install runc"
    own_groups = True
