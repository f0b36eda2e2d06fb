"""Instances that are identical to the machine, except that their root is the tree of an image.

They are used for the native baseline in an image, to build the kernels for an image, and for an image's
mpirun that reaches several instances. Their only separate namespace is a mount namespace, so that no mount
remains if they are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host
from .contract import InstanceRequest, Tools
from .instance import BoxInstance, box, box_argv, box_phases, make_instance, seconds


@contextmanager
def in_tree(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    *,
    netns: str | None = None,
) -> Iterator[BoxInstance]:
    """Start an instance in the tree of the request; everything else in it is the machine's own.

    groups: control groups of the instance, by controller.
    netns: network namespace that it runs in; None for the machine's own.
    Raises UnavailableError if there is neither root nor a shared user namespace.
    Raises RunError if it does not start.
    """
    if request.user_namespace is None and not host.is_root():
        raise UnavailableError(
            "without root, an image needs a shared user namespace", remedy="run as root, or image: host"
        )
    options = ["--mounts-only", *(("--netns", netns) if netns is not None else ())]
    spawning = time.monotonic_ns()
    argv = box_argv(tools, request, options, tuple(dict.fromkeys(groups.values())))
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
