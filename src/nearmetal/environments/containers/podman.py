"""Backend podman: `podman run --rootfs` on a root directory made by nearmetal. Without root, it runs in
Podman's own user namespace.

Podman is configured to store everything about an instance in directories of this instance. The user's
containers and images are neither read nor changed, and the leftovers of a killed run are removed with these
directories."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment
from ..contract import InstanceRequest, Tools, Unavailable
from ..instance import CONTROLLERS, control_groups, require_fitting
from ..program import (
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    program_instance,
    read_pid,
    running,
    shared_memory_size,
)
from .wrapped import ProgramBackend, all_binds

TMPFS = {"/tmp": "1777", "/run": "0755"}
"""Directories that are a new tmpfs in every instance, with their octal modes."""


class Podman(ProgramBackend):
    """Backend podman. It supports the attachments host, none and loopback and, as root, networks built by
    nearmetal."""

    name = program = "podman"
    remedy = "apt-get install podman uidmap"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="Podman")
    immovable = Unavailable(
        reason="Podman exports a checkpoint, but imports none of a container without an image of Podman's",
        remedy="backend runc, which Podman runs",
    )

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        begin = time.monotonic_ns()
        require_fitting(request)
        rootless = not host.is_root()
        if rootless and request.seat is not None:
            raise request.refused(
                "without root podman has a user namespace of its own, which cannot join a network of another",
                "run as root, or attachment: host, none or loopback",
            )
        binds = all_binds(tools, request)
        with ExitStack() as stack:
            groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
            # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
            state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
            short = stack.enter_context(runtime.short_directory(f"{request.label}-podman", state))
            # Includes hierarchies in which nearmetal counts nothing.
            stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.label)))
            # Podman's monitor, clean-up and pause processes are in none of nearmetal's groups.
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
            # The user namespace comes first: an overlay mounted outside would not belong to its root.
            around = [*store.command("unshare"), *wrap, "--rootless"] if rootless else wrap
            run = stack.enter_context(
                running(
                    host,
                    inner,
                    report,
                    [*around, "--", *store.command(*words), *report.argv],
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
            yield program_instance(request, run.pid, run.phases(begin), groups, enter)


@dataclass(frozen=True, kw_only=True)
class Store:
    """The directories in which Podman stores everything about an instance.

    directory: directory for most files.
    short: directory with a short path, for files whose path may have at most 50 characters.
    rootless: whether Podman runs without root.
    """

    directory: Path
    short: Path
    rootless: bool

    def environment(self) -> dict[str, str]:
        """Return the environment variables that separate this Podman from the Podman of the user, including
        the pause process that Podman runs without root."""
        own = {"CONTAINERS_CONF": str(self.directory / "containers.conf")}
        return own | ({"XDG_RUNTIME_DIR": str(self.directory)} if self.rootless else {})

    def command(self, *words: str) -> list[str]:
        where = ["--root", str(self.directory / "root"), "--tmpdir", str(self.directory / "tmp")]
        where += ["--runroot", str(self.short / "run"), "--storage-driver", "vfs"]
        return ["podman", *where, "--log-level", "error", *words]

    def prepare(self, label: str) -> None:
        """Write containers.conf."""
        (self.directory / "containers.conf").write_text(
            settings(label, two_versions=cgroups.unified_beside_version1() is not None)
        )


def settings(label: str, *, two_versions: bool) -> str:
    """Return the content of containers.conf for an instance.

    The resource limits of this process are used, because Podman's defaults exceed the hard limits of users
    without CAP_SYS_RESOURCE. The limit of processes is at most the highest PID: Podman lowers its own limit
    to this number, and then cannot set a higher one. Locks are files, because each of the 2048 locks in
    shared memory that a killed run holds would stay allocated.

    two_versions: whether control groups of both versions are mounted. runc is then used, since crun fails.
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
    """Return the arguments of `podman run` up to the payload.

    root: root directory of the instance.
    binds: paths that are mounted at the same path inside -> whether they are writable.
    pid_file: file to which Podman writes the PID of the payload.
    groups: path of the parent control group; None if there is none.
    """
    attachment = request.environment.attachment
    if request.seat is not None:
        network = f"ns:{request.seat.netns}"
    else:
        network = "host" if attachment is Attachment.HOST else "none"
    words = ["run", "--rm", "--name", request.label, "--hostname", request.hostname, "--network", network]
    words += ["--no-hosts", "--pidfile", str(pid_file), "--security-opt", "label=disable"]
    # Podman's default of 64 MB is too little for the segments of MPI ranks, and 0 keeps that default.
    words += ["--shm-size", str(shared_memory_size())]
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}"]
    if groups is not None:
        words += ["--cgroups", "no-conmon", "--cgroup-parent", groups]
    for target, mode in TMPFS.items():
        words += ["--mount", f"type=tmpfs,destination={target},tmpfs-mode={mode},notmpcopyup"]
    for path, writable in binds.items():
        words += ["--volume", f"{path}:{path}:rbind,{'rw' if writable else 'ro'}"]
    return [*words, "--rootfs", str(root)]
