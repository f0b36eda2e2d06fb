"""The machine itself, its root changed to the tree of an image: what the native baseline runs in, what
builds the kernels for an image, and from where its mpirun reaches several instances. A mount namespace of its
own, so that no mount outlives a kill, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host
from .contract import InstanceRequest, Tools
from .instance import (
    BoxInstance,
    box,
    box_argv,
    box_phases,
    make_instance,
    seconds,
)


@contextmanager
def in_tree(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    *,
    netns: str | None = None,
) -> Iterator[BoxInstance]:
    """An instance in the tree of the request, everything else the machine's own. groups: of the instance;
    netns: a network namespace to stand in, None: the machine's.

    Raises UnavailableError, RunError.
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
