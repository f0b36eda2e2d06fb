"""Backend fixed-layout: the bare machine without address-space randomisation (setarch of util-linux)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from nearmetal.environments import Available, Capabilities, InstanceRequest, Tools, Unavailable
from nearmetal.environments.instance import (
    START_TIMEOUT,
    BoxInstance,
    await_end,
    control_groups,
    end,
    init_name,
    make_instance,
    missing_tools,
    require_host_image,
    seconds,
)
from nearmetal.environments.probe import probe
from nearmetal.errors import UnavailableError
from nearmetal.host import REPORT_FD, Host
from nearmetal.host.processes import labelled as processes
from nearmetal.model.study import Attachment

REMEDY = "apt-get install util-linux"


def wrapped(host: Host) -> tuple[str, ...]:
    """Tokens before a command. Raises UnavailableError where setarch is missing."""
    setarch = host.which("setarch")
    if setarch is None:
        raise UnavailableError("setarch is not installed", remedy=REMEDY)
    return (setarch, "--addr-no-randomize")


class FixedLayout:
    """Native, every program loaded at the same addresses in every run."""

    name = "fixed-layout"
    capabilities = Capabilities(own=frozenset(), attachments=frozenset({Attachment.HOST}))

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Start one for real: a file that is there proves nothing (seccomp may forbid personality(2))."""
        missing = missing_tools(host, tools)
        if missing is not None:
            return missing
        if host.which("setarch") is None:
            return Unavailable(reason="setarch is not installed", remedy=REMEDY)
        return probe(self, host, tools, Attachment.HOST)

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[BoxInstance]:
        return _start(host, tools, request)


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[BoxInstance]:
    begin = time.monotonic_ns()
    require_host_image(request)
    if request.seat is not None or request.environment.attachment is not Attachment.HOST:
        raise UnavailableError(
            f"environment {request.environment.name}: fixed-layout has the machine's own network",
            remedy="attachment: host",
        )
    prefix = wrapped(host)
    # What a step makes is removed on leaving, also if a later step fails: first the groups, then the process.
    with control_groups(request, {"cpuacct", "memory", "blkio"}) as groups:
        spawning = time.monotonic_ns()
        launched = host.launch(
            [
                *prefix,
                "--",
                tools / "nm-init",
                "--first-fd",
                str(REPORT_FD),
                "--socket",
                init_name(request.label),
            ],
            expect={"first"},
            timeout=START_TIMEOUT,
            env={processes.LABEL_VARIABLE: request.label},
        )
        first, pid = launched.facts["first"], launched.process.pid
        try:
            instance = make_instance(
                tools,
                replace(request, hostname=os.uname().nodename),  # what a rank in here will report
                pid=pid,
                namespaces_of=0,
                groups=groups,
                phases={
                    "cgroups": seconds(begin, spawning),
                    "spawn": seconds(spawning, first),
                    "first_instruction": seconds(begin, first),
                },
            )
            yield replace(instance, enter=(*instance.enter, "--", *prefix))
        finally:
            end(launched, pid)
            await_end(launched, request.label, groups)
