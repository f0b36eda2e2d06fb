"""Backend namespaces: a container made directly by system calls (nm-box), without a container program.

It has mount, uts, ipc, pid and network namespaces over an overlay of the machine's own root or of an image,
and control groups if they can be made. It runs as root, or inside a user namespace that all instances share
(holder.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, cgroups
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment
from .. import criu as criu_of
from ..contract import Available, Instance, InstanceRequest, Tools, Unavailable
from ..criu_connections import connection_options, waiting_options
from ..criu_restoring import EarlyRestore, restorer
from ..guests.guest import EnclosedBox, GuestInstance
from ..guests.in_guest import started_in_guest
from ..instance import (
    CONTROLLERS,
    BoxInstance,
    all_binds,
    box,
    box_argv,
    box_phases,
    control_groups,
    make_instance,
    require_seat,
    seconds,
)
from ..moving import Criu, Dump, Restore
from ..probe import probe_as_user


class Namespaces(criu_of.RestoresConnections):
    """Backend namespaces. It supports the attachments host, loopback and none (a network with lo only), and
    networks built by nearmetal."""

    name = "namespaces"
    capabilities = Capabilities(
        own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, needs_user_namespace=True, stands_inside=True
    )

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        return probe_as_user(self, host, tools)

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
        begin = time.monotonic_ns()
        if request.user_namespace is None and not host.is_root():
            raise UnavailableError(
                "without root, namespaces need a shared user namespace", remedy="run as root"
            )
        if request.user_namespace is not None and request.environment.share:
            raise request.refused(
                "without root no namespace of the machine can be kept",
                "run as root, or take share out of the environment",
            )
        with control_groups(request, CONTROLLERS) as groups:
            spawning = time.monotonic_ns()
            argv = start_argv(tools, request, cgroups.unique(groups))
            with box(host, request.label, argv, groups) as facts:
                yield make_instance(
                    tools,
                    request,
                    pid=facts["pid"],
                    namespaces_of=facts["pid"],
                    groups=groups,
                    phases={
                        "cgroups": seconds(begin, spawning),
                        "spawn": seconds(spawning, facts["spawn"]),
                        **box_phases(facts),
                        "first_instruction": seconds(begin, facts["first"]),
                    },
                )

    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> AbstractContextManager[EnclosedBox]:
        assert isinstance(guest, GuestInstance)
        return started_in_guest(guest, tools, request, namespace_options(request), alone=alone)

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        mounts = criu_of.mounts_of(instance.pid)
        points = criu_of.external_mounts(mounts, own_network=own_network(request))
        (dump.images / MOUNTS).write_text("\n".join(points))
        more = [*criu_of.external_options(points), *connection_options(tools, request, dump.images)]
        return [*self.network_of_dump(request), *criu_of.dump_argv(criu, instance.pid, dump, more)]

    def network_of_dump(self, request: InstanceRequest) -> tuple[str, ...]:
        """See moving.HoldsConnections. If CRIU runs in the network namespace of the seat, it saves the TCP
        connections of the instance but not its interfaces."""
        return criu_of.network_of_seat(request)

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        if request.layer is None:
            raise RunError("an instance without a layer is not restored")
        with control_groups(request, CONTROLLERS) as groups, ExitStack() as kept:

            def instance(pid: int, phases: Mapping[str, float]) -> BoxInstance:
                return make_instance(tools, request, pid=pid, namespaces_of=pid, groups=groups, phases=phases)

            argv = partial(_restore_argv, tools, criu, request, groups)
            yield EarlyRestore(host, request, argv, instance, kept)


MOUNTS = "mounts"
"""Name of a file in the directory of a checkpoint. It lists the mount points of external_mounts()."""


def own_network(request: InstanceRequest) -> bool:
    return request.seat is not None or request.environment.attachment is not Attachment.HOST


def start_argv(tools: Tools, request: InstanceRequest, groups: tuple[Path, ...]) -> list[str]:
    """Return the command line that starts the instance.

    Raises UnavailableError if attachment and seat do not match, and RunError as all_binds().
    """
    require_seat(request)
    return box_argv(tools, request, all_binds(tools, request), namespace_options(request), groups)


def namespace_options(request: InstanceRequest) -> list[str]:
    """Return the options of `nm-box start` that set the host name and select the namespaces of the
    instance."""
    options = ["--hostname", request.hostname]
    attachment = request.environment.attachment
    if request.seat is not None:
        options += ["--netns", request.seat.netns]
    elif attachment is not Attachment.HOST:
        options.append("--new-net")
    for kind in request.environment.share:
        options += ["--share", kind.value]
    return options


def _restore_argv(
    tools: Tools,
    criu: Criu,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    images: Path,
    hold: Path | None,
) -> list[str]:
    points = (images / MOUNTS).read_text().split("\n")
    wrap = [tools / "nm-box", "wrap", "--root-overlay", str(request.scratch), "--tree", str(request.tree)]
    wrap += ["--layer", str(request.layer)]
    if request.seat is not None:
        wrap += ["--netns", request.seat.netns]
    for point in points:
        if not point.startswith(("/dev", "/sys", "/proc")):
            wrap += ["--place", point]
    more = [
        "--root",
        str(request.scratch / "root"),
        *criu_of.external_options(points, all_binds(tools, request)),
    ]
    if request.lazy:
        more.append("--lazy-pages")
    more += connection_options(tools, request, images)
    if hold is not None:
        more += waiting_options(tools, hold, images)
    return [
        *restorer(tools, request, groups),
        *wrap,
        "--",
        *criu_of.restore_argv(criu, images, more),
    ]
