"""Backends runc and crun: OCI runtimes, used without Docker, containerd or Podman. They need root."""

from __future__ import annotations

import re

from ...host import Host
from ...lifecycle import Method
from ...model.study import Environment
from ..contract import InstanceRequest, Unavailable
from ..instance import VERSION_TIMEOUT
from .oci import Groups, OciBackend


class Runc(OciBackend):
    """Backend runc. runc makes the control groups of a container: at the paths of the groups that nearmetal
    has made for the instance, and below nearmetal's own group in all other hierarchies."""

    name = program = "runc"
    remedy = "apt-get install runc"


_LEAST = (1, 26)
"""First version of crun that gives CRIU the options that an annotation names."""


class Crun(OciBackend):
    """Backend crun.

    crun takes the path of a control group as relative to the top of each hierarchy, so a container could
    leave the group to which a batch system has restricted nearmetal. Therefore crun makes no groups: its
    processes are put in groups made by nearmetal. Only a container with a layer, which may be checkpointed,
    has groups at the top, since crun freezes it by them. crun also does not work if control groups of both
    versions are mounted. Of CRIU's methods, it supports only the plain dump here.
    """

    name = program = "crun"
    remedy = "apt-get install crun"
    checkpoints_by = (Method.CRIU,)
    detach_unified = True
    criu_by_path = True

    def groups_of(self, request: InstanceRequest) -> Groups:
        return Groups.AROUND if request.layer is None else Groups.AT_THE_TOP

    def options(self, request: InstanceRequest) -> tuple[str, ...]:
        manager = "disabled" if self.groups_of(request) is Groups.AROUND else "cgroupfs"
        return (f"--cgroup-manager={manager}",)

    def run_options(self, host: Host, request: InstanceRequest) -> tuple[str, ...]:
        # Without this option, crun deletes its record of a container when that has ended. It would interfere
        # with its command `checkpoint`, which deletes the record as well.
        return ("--keep",) if request.layer is not None and self._unable(host) is None else ()

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        return super().refuses_checkpoint(host, environment) or self._unable(host)

    def _unable(self, host: Host) -> Unavailable | None:
        """Return why the installed crun cannot write checkpoints; None if it can."""
        if host.which(self.program) is None:
            return Unavailable(reason="crun is not installed", remedy=self.remedy)
        said = host.run([self.program, "--version"], timeout=VERSION_TIMEOUT).stdout
        remedy = "crun 1.26 or later whose --version lists +CRIU, or backend runc"
        if "+CRIU" not in said.split():
            return Unavailable(reason="this crun is built without CRIU, as in Debian 12", remedy=remedy)
        number = re.search(r"(\d+)\.(\d+)", said)
        if number is None or tuple(map(int, number.groups())) < _LEAST:
            return Unavailable(reason="this crun gives CRIU no further options", remedy=remedy)
        return None
