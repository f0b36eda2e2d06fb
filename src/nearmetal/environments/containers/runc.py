"""Backend runc: the runtime used by Docker, containerd and Podman, used directly. Needs root."""

from __future__ import annotations

from .oci import CheckpointingOciBackend, OciRuntime


class Runc(CheckpointingOciBackend):
    """Backend runc. runc makes the control groups of a container, below those of nearmetal unless they are
    elsewhere."""

    name = "runc"
    runtime = OciRuntime(program="runc", package="runc", own_groups=True)
