"""Instances of the backend namespaces inside a running guest.

The guest's agent starts the instance by nm-box. Its root directory is an overlay over the root of the guest.
So it runs on the guest's kernel and sees the files of the guest's image. It is in no control group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...host import REPORT_FD, Launched
from ...host.processes import labelled as processes
from ...model.environments.image import HOST
from ..contract import InstanceRequest, Tools
from ..instance import BOX_REPORTS, all_binds, box_argv, box_phases, require_seat, seconds
from .guest import EnclosedBox, GuestInstance

IN_GUEST_TIMEOUT = 120.0
"""Time limit of a start, in seconds. In an emulated guest a start normally takes tenths of a second."""
END_SECONDS = 60.0
STDOUT = 1
"""Descriptor to which nm-box in the guest writes its report. The agent forwards only standard output and
error."""


@contextmanager
def started_in_guest(
    guest: GuestInstance, tools: Tools, request: InstanceRequest, options: Sequence[str], *, alone: bool
) -> Iterator[EnclosedBox]:
    """Start an instance inside a guest until exit. If the request has a seat, its network namespace is a
    namespace of the guest.

    options: options of `nm-box start` that select the namespaces of the instance.
    alone: as in contract.Enclosed.
    Raises UnavailableError if the request has limits, which would need a control group, or a seat that does
    not match the attachment.
    Raises RunError.
    """
    _require_fitting(request)
    begin = time.monotonic_ns()
    binds = all_binds(tools, request)
    # Every guest contains the tools, but not the other directories of the machine. The instance's root is
    # mounted at its scratch directory.
    guest.copy_in([request.scratch, *(b.source for b in binds if b.writable)])
    copied = time.monotonic_ns()
    # The instance has the root directory of the guest, whatever image this is, and all CPUs of the guest.
    own = replace(
        request, tree=Path("/"), environment=replace(request.environment, image=HOST), cpus=(), seat=None
    )
    start = box_argv(tools, own, binds, options, (), report_fd=STDOUT)
    *agent, divider = guest.enter
    launched = guest.host.launch(
        [*agent, "--stdout", f"/proc/self/fd/{REPORT_FD}", divider, *start],
        expect=BOX_REPORTS,
        timeout=IN_GUEST_TIMEOUT,
        env={processes.LABEL_VARIABLE: request.label},
    )
    with _ended(launched):
        facts = launched.facts
        enter = (tools / "nm-box", "enter", "--pid", str(facts["pid"]), "--label", request.label, "--")
        yield EnclosedBox(
            guest=guest,
            label=request.label,
            hostname=request.hostname,
            pid=launched.process.pid,
            phases={
                "copy": seconds(begin, copied),
                "spawn": seconds(copied, guest.on_host(facts["spawn"])),
                **box_phases(facts),
                "first_instruction": seconds(begin, guest.on_host(facts["first"])),
            },
            cgroups=guest.cgroups if alone else {},
            enter=(*guest.enter, *enter),
            host=guest.host,
            tools=tools,
            socket=guest.socket,
            scratch=guest.scratch,
            process=guest.process,
            ahead=guest.ahead,
            threads=guest.threads if alone else (),
            rules=guest.rules,
            first=facts["pid"],
            inner=enter,
        )


def _require_fitting(request: InstanceRequest) -> None:
    limits = request.environment.limits
    if (limits.cpu_quota, limits.cpu_shares, limits.memory) != (None, None, None):
        raise request.refused(
            "a guest has no control groups that could limit it",
            "limit the guest, or take limits out of the environment",
        )
    require_seat(request)


@contextmanager
def _ended(launched: Launched) -> Iterator[None]:
    """On exit, end the instance and wait until the guest's agent reports its end, for up to END_SECONDS.

    SIGTERM is forwarded to nm-box in the guest, which ends the instance. The agent kills processes that do
    not end in time.
    """
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            if launched.process.poll() is None:
                os.kill(launched.process.pid, signal.SIGTERM)
                launched.process.wait(END_SECONDS)
        launched.process.kill()
