"""Backend podman: `podman run --rootfs` on a root directory that we make, as root or as a user in a user
namespace of its own. All that Podman keeps of an instance lies in the instance's own directory: the user's
containers and images are neither seen nor touched, and what a kill leaves goes with that directory."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import UnavailableError
from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment
from ..contract import Available, InstanceRequest, Tools, Unavailable
from ..instance import CONTROLLERS, START_TIMEOUT, control_groups, require_fitting
from ..program import (
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    read_pid,
    running,
    shared_memory_size,
    started_instance,
)
from .wrapped import all_binds, check_program

TMPFS = {"/tmp": "1777", "/run": "0755"}
"""Fresh in every instance, by mode."""


class Podman:
    """Attachment host, none, loopback, or (as root) a seat."""

    name = "podman"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS)

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        return check_program(self, host, tools, program="podman", remedy="apt-get install podman uidmap")

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[ProgramInstance]:
        return _start(host, tools, request)


@dataclass(frozen=True, kw_only=True)
class Store:
    """Where Podman keeps all of an instance: below directory, and below short what must have a path of at
    most 50 characters. rootless: it runs as this user."""

    directory: Path
    short: Path
    rootless: bool

    def environment(self) -> dict[str, str]:
        """What differs from the user's own Podman; as a user, its pause process too is the instance's own."""
        own = {"CONTAINERS_CONF": str(self.directory / "containers.conf")}
        return own | ({"XDG_RUNTIME_DIR": str(self.directory)} if self.rootless else {})

    def command(self, *words: str) -> list[str]:
        """Tokens of a Podman command."""
        where = ["--root", str(self.directory / "root"), "--tmpdir", str(self.directory / "tmp")]
        where += ["--runroot", str(self.short / "run"), "--storage-driver", "vfs"]
        return ["podman", *where, "--log-level", "error", *words]

    def prepare(self, label: str) -> None:
        """Write the settings."""
        (self.directory / "containers.conf").write_text(
            settings(label, two_versions=cgroups.unified_beside_version1() is not None)
        )


def settings(label: str, *, two_versions: bool) -> str:
    """containers.conf of an instance. two_versions: control groups of both versions are mounted, which crun
    refuses.

    Limits of resources: Podman's own are above the hard limits of those who lack CAP_SYS_RESOURCE; of
    processes it lowers its own to the highest pid, above which nothing can be set any more. Locks: in shared
    memory, of which there are 2048, they would outlive a killed run.
    """
    limits = []
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        soft, hard = resource.getrlimit(number)
        if resource.RLIM_INFINITY not in (soft, hard):
            most = highest if name == "nproc" else hard
            limits.append(f'"{name}={min(soft, most)}:{min(hard, most)}"')
    path = os.environ.get("PATH", os.defpath)
    runtime = ['runtime = "runc"'] if two_versions else []
    lines = [
        "[containers]",
        f"default_ulimits = [{', '.join(limits)}]",
        "[engine]",
        'cgroup_manager = "cgroupfs"',
        'events_logger = "none"',
        'lock_type = "file"',
        f'conmon_env_vars = ["PATH={path}", "{processes.LABEL_VARIABLE}={label}"]',
        *runtime,
    ]
    return "\n".join(lines) + "\n"


def run_words(
    request: InstanceRequest, root: Path, binds: Mapping[Path, bool], *, pid_file: Path, groups: str | None
) -> list[str]:
    """Words of `podman run` up to the payload. root: the instance's root directory; binds: writable by path;
    groups: path of the control group to make its own below, None where there is none."""
    attachment = request.environment.attachment
    if request.seat is not None:
        network = f"ns:{request.seat.netns}"
    else:
        network = "host" if attachment is Attachment.HOST else "none"
    words = ["run", "--rm", "--name", request.label, "--hostname", request.hostname, "--network", network]
    words += ["--no-hosts", "--pidfile", str(pid_file), "--security-opt", "label=disable"]
    # Its own default of 64 MB is too little for the segments of MPI ranks, and 0 leaves it at that.
    words += ["--shm-size", str(shared_memory_size())]
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}"]
    if groups is not None:
        words += ["--cgroups", "no-conmon", "--cgroup-parent", groups]
    for target, mode in TMPFS.items():
        words += ["--mount", f"type=tmpfs,destination={target},tmpfs-mode={mode},notmpcopyup"]
    for path, writable in binds.items():
        words += ["--volume", f"{path}:{path}:rbind,{'rw' if writable else 'ro'}"]
    return [*words, "--rootfs", str(root)]


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
    begin = time.monotonic_ns()
    require_fitting(request)
    rootless = not host.is_root()
    if rootless and request.seat is not None:
        raise UnavailableError(
            f"environment {request.environment.name}: without root podman has a user namespace of its own, "
            "which cannot join a network of another",
            remedy="run as root, or attachment: host, none or loopback",
        )
    binds = all_binds(tools, request)
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
        # Not below request.scratch, which may lie in a bind: what is mounted there would be seen inside.
        state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
        short = stack.enter_context(runtime.short_directory(f"{request.label}-podman", state))
        # In those hierarchies too of which we count nothing.
        stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.label)))
        # Podman's monitor, clean-up and pause processes stand in no group of ours.
        stack.callback(processes.kill_labelled, request.label)
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner))
        overlay, pid_file = state / "overlay", state / "pid"
        (overlay / "root").mkdir(parents=True)
        store = Store(directory=state, short=short, rootless=rootless)
        store.prepare(request.label)
        parent = cgroups.path_from_top(groups, request.label) if groups else None
        words = run_words(
            request, overlay / "root", {**binds, report.directory: True}, pid_file=pid_file, groups=parent
        )
        wrap = [tools / "nm-box", "wrap", "--root-overlay", str(overlay), "--tree", str(request.tree)]
        # In the user namespace first: an overlay made outside would not be ours in there.
        around = [*store.command("unshare"), *wrap, "--rootless"] if rootless else wrap
        run = stack.enter_context(
            running(
                host,
                inner,
                report,
                [*around, "--", *store.command(*words), *report.argv],
                timeout=START_TIMEOUT,
                env=store.environment(),
                pid_of=lambda: read_pid(pid_file),
            )
        )
        stack.enter_context(end_payload(run))
        variables = [f"{name}={value}" for name, value in store.environment().items()]
        enter = entered_by_call(
            tools,
            request,
            report.directory,
            ["env", *variables, *store.command("exec", "--interactive", request.label)],
        )
        yield started_instance(request, run, begin, groups, enter)
