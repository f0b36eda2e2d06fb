"""Backend runc: the runtime below Docker, containerd and Podman, by itself. Needs root."""

from __future__ import annotations

from .oci import OciBackend, OciRuntime


class Runc(OciBackend):
    """runc makes the control groups of a container, below our own where they do not lie apart."""

    name = "runc"
    runtime = OciRuntime(program="runc", package="runc", own_groups=True)
