"""Backend crun: the runtime of Podman in C, by itself. Needs root."""

from __future__ import annotations

from .oci import OciBackend, OciRuntime


class Crun(OciBackend):
    """crun takes a path of control groups from the top of each hierarchy, so that it could leave the groups
    that a batch system holds us in: we put its processes in groups of ours instead. It refuses a machine
    with both versions mounted."""

    name = "crun"
    runtime = OciRuntime(
        program="crun",
        package="crun",
        options=("--cgroup-manager=disabled",),
        own_groups=False,
        detach_unified=True,
    )
