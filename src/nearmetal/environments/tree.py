"""Instances that use the machine's own namespaces, except that their root directory is the tree of an image.

They are used for the native baseline in an image, to compile the kernels for an image, and to run an image's
mpirun for ranks in several instances. They have their own mount namespace, so that no mount remains if they
are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host, cgroups
from .contract import InstanceRequest, Tools
from .instance import BoxInstance, all_binds, box, box_argv, box_phases, make_instance, seconds


@contextmanager
def in_tree(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    *,
    netns: str | None = None,
) -> Iterator[BoxInstance]:
    """Start an instance whose root directory is the tree of the request, until exit.

    groups: control groups of the instance: directory by controller.
    netns: path of the network namespace in which it runs; None for the machine's own.
    Raises UnavailableError if there is neither root nor a shared user namespace.
    Raises RunError if it does not start.
    """
    if request.user_namespace is None and not host.is_root():
        raise UnavailableError(
            "without root, an image needs a shared user namespace", remedy="run as root, or image: host"
        )
    options = ["--mounts-only", *(("--netns", netns) if netns is not None else ())]
    spawning = time.monotonic_ns()
    argv = box_argv(tools, request, all_binds(tools, request), options, cgroups.unique(groups))
    with box(host, request.label, argv, groups) as facts:
        yield make_instance(
            tools,
            request,
            hostname=os.uname().nodename,
            pid=facts["pid"],
            namespaces_of=facts["pid"],
            groups=groups,
            phases={
                "spawn": seconds(spawning, facts["spawn"]),
                **box_phases(facts),
                "first_instruction": seconds(spawning, facts["first"]),
            },
        )
