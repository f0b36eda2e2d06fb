"""Code shared by the backends runc and crun. nearmetal writes an OCI bundle; the runtime starts it in the
foreground by its command `run`, and runs commands inside by `exec`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any

from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment
from .. import criu as criu_of
from ..contract import Bind, Instance, InstanceRequest, Tools
from ..criu_connections import connection_options, freezing_options, waiting_options, write_configuration
from ..criu_images import made
from ..criu_restoring import EarlyRestore, restorer
from ..instance import CONTROLLERS, all_binds, control_groups, require_fitting, require_root
from ..moving import Criu, Dump, Restore
from ..program import (
    FirstReport,
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    program_instance,
    running,
)
from .wrapped import ProgramBackend, own_network_path, state_of

DELETE_TIMEOUT = 60.0

CAPABILITIES = tuple(
    f"CAP_{name}"
    for name in (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
"""The capabilities that Docker and containerd give to a container. `runc spec` writes only three, with which
root in the container cannot write files of other users."""

MASKED = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list")),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
)
_MASKED = "masked"
"""Name that stands for the mount over each masked directory in the images of a checkpoint."""
_GROUP_MOUNTS = "group-mounts"
"""Name of a file in the directory of a checkpoint. It lists the mount points of control groups."""
READ_ONLY = tuple(f"/proc/{name}" for name in ["bus", "fs", "irq", "sys", "sysrq-trigger"])
"""Paths that are read-only in a container, as in the output of `runc spec`."""

NO_DEVICES = ("nosuid", "nodev")
INERT = (*NO_DEVICES, "noexec")


class Groups(Enum):
    """Where the control groups of a container are, and who puts its processes there.

    BELOW_OURS: the runtime, in groups below nearmetal's own.
    AT_THE_TOP: the runtime, in groups at the top of each hierarchy.
    AROUND: nearmetal, which starts the runtime in groups below its own. The runtime must not change them.
    """

    BELOW_OURS = auto()
    AT_THE_TOP = auto()
    AROUND = auto()


class OciBackend(ProgramBackend, criu_of.RestoresConnections):
    """A backend that uses an OCI runtime. It supports the attachments host, none and loopback, and networks
    built by nearmetal.

    detach_unified: whether the runtime fails if control groups of both versions are mounted. If so, the
        mount of version 2 is hidden from it.
    criu_by_path: whether the runtime looks for `criu` in PATH, instead of having an option for its path.
    """

    detach_unified = False
    criu_by_path = False
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS)

    def groups_of(self, request: InstanceRequest) -> Groups:
        return Groups.BELOW_OURS

    def options(self, request: InstanceRequest) -> tuple[str, ...]:
        """Return the options between the name of the runtime and its command."""
        return ()

    def run_options(self, host: Host, request: InstanceRequest) -> tuple[str, ...]:
        """Return further options of the command `run`."""
        return ()

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        begin = time.monotonic_ns()
        with _prepared(self, host, tools, request) as ready:
            where = ("--bundle", str(ready.inner.scratch))
            run_words = ready.placed.command("run", *self.run_options(host, request), *where, request.label)
            argv = [*ready.around, *run_words]
            with running(host, ready.inner, ready.report, argv) as run, end_payload(run):
                yield program_instance(request, run.pid, run.phases(begin), ready.groups, ready.enter())

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        state = state_of(request)
        placed = _placed(self, tools, request, state, instance.cgroups)
        freezer = cgroups.freezer(instance.pid, request.place)
        groups = criu_of.external_options(_group_mounts(instance.pid, dump.images))
        freezing = freezing_options(tools, freezer, state, dump.images)
        _write_criu_options(tools, request, state, (*freezing, *_masked(), *groups))
        if (network := own_network_path(request)) is not None:
            network.unlink()
            network.symlink_to(f"/proc/{instance.pid}/ns/net")
            # CRIU looks for connections that a firewall tracks in every namespace but its own, which takes
            # 20 ms of the standstill where the kernel tracks none.
            criu = replace(criu, argv=("nsenter", f"--net=/proc/{instance.pid}/ns/net", "--", *criu.argv))
        options, server = criu_of.runtime_options(dump), criu_of.server_options(dump)
        checkpoint = placed.checkpointing(criu, "checkpoint", dump.images, *options, further=server)
        return [*placed.wrap(), *checkpoint, request.label]

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with ExitStack() as last, _prepared(self, host, tools, request) as ready, ExitStack() as first:
            if self.groups_of(request) is Groups.BELOW_OURS:
                last.callback(_remove_groups, request)

            def instance(pid: int, phases: Mapping[str, float]) -> ProgramInstance:
                return program_instance(request, pid, phases, ready.groups, ready.enter())

            argv = partial(_restore_argv, criu, ready)
            # The start of a runtime and its check of CRIU's version take 20 to 50 ms: with lazy pages too.
            yield EarlyRestore(host, request, argv, instance, first, lazily=True)


def bundle(
    request: InstanceRequest,
    report: FirstReport,
    root: Path,
    binds: Sequence[Bind],
    groups: str | None,
    network: Path | None = None,
    criu: Path | None = None,
) -> dict[str, Any]:
    """Return the configuration of a container, which its OCI bundle holds as config.json.

    report: contains the command line of the first process.
    root: root directory of the instance.
    binds: from all_binds().
    groups: path of the container's control group in each hierarchy; None if the runtime must make none.
    network: path from own_network_path(); None if nearmetal makes no network namespace for the container.
    criu: file with further options of CRIU; None if there are none.
    """
    namespaces: list[dict[str, str]] = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    if request.seat is not None:
        namespaces.append({"type": "network", "path": request.seat.netns})
    elif network is not None:
        namespaces.append({"type": "network", "path": str(network)})
    elif request.environment.attachment is not Attachment.HOST:
        namespaces.append({"type": "network"})
    linux: dict[str, Any] = {
        "namespaces": namespaces,
        "maskedPaths": list(MASKED),
        "readonlyPaths": list(READ_ONLY),
    }
    if groups is not None:
        linux["cgroupsPath"] = groups
        linux["resources"] = {"devices": [{"allow": False, "access": "rwm"}]}
    sets = ("bounding", "effective", "permitted")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(report.argv),
            "env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                f"{processes.LABEL_VARIABLE}={request.label}",
            ],
            "cwd": "/",
            "capabilities": {kind: list(CAPABILITIES) for kind in sets},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": False},
        "hostname": request.hostname,
        **({} if criu is None else {"annotations": {"org.criu.config": str(criu)}}),
        "mounts": [
            _mount("/proc", "proc", "proc"),
            _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
            # No size: half of the memory, as on the machine. MPI needs more than the 64 MiB of `runc spec`.
            _mount("/dev/shm", "tmpfs", "shm", *INERT, "mode=1777"),
            _mount("/dev/mqueue", "mqueue", "mqueue", *INERT),
            _mount("/sys", "sysfs", "sysfs", *INERT, "ro"),
            _mount("/sys/fs/cgroup", "bind", "/sys/fs/cgroup", *INERT, "rbind", "ro"),
            _mount("/tmp", "tmpfs", "tmpfs", *NO_DEVICES, "mode=1777"),
            _mount("/run", "tmpfs", "tmpfs", *NO_DEVICES, "mode=0755"),
            *(
                _mount(str(b.target), "bind", str(b.source), "rbind", "rw" if b.writable else "ro")
                for b in binds
            ),
        ],
        "linux": linux,
    }


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """Builds the command lines of the runtime for one instance.

    state: directory for the files of the runtime.
    detached, joined: options of `nm-box wrap` that hide control groups of version 2, and that enter groups.
    group_path: `groups` of bundle().
    """

    backend: OciBackend
    tools: Tools
    request: InstanceRequest
    state: Path
    detached: tuple[str, ...]
    joined: tuple[str, ...]
    group_path: str | None

    def wrap(self, *more: str) -> list[str]:
        return [self.tools / "nm-box", "wrap", *self.detached, *self.joined, *more, "--"]

    def command(self, *words: str) -> list[str]:
        backend, state = self.backend, self.state / "runtime"
        return [backend.program, "--root", str(state), *backend.options(self.request), *words]

    def checkpointing(
        self,
        criu: Criu,
        command: str,
        images: Path,
        *more: str,
        further: Sequence[str] = (),
        hold: Path | None = None,
    ) -> list[str]:
        """Return the command line of checkpoint or restore, to which the container's name must be appended.

        more, further: further options of the runtime, and of CRIU.
        hold: as in criu.script().
        """
        where = ["--image-path", str(images), "--work-path", str(images), "--file-locks"]
        where += ["--tcp-established"] if self.request.connections else []
        name, by_path = f"criu-{command}", self.backend.criu_by_path
        script = criu_of.script(
            self.tools,
            criu_of.bound_to_tool(self.tools, self.request.label, criu.argv),
            made(self.state / name) if by_path else images,
            name="criu" if by_path else name,
            more=further,
            restores=images if command == "restore" else None,
            hold=hold,
        )
        if by_path:
            path = f"PATH={script.parent}:{os.environ.get('PATH', os.defpath)}"
            return ["env", path, *self.command(command), *where, *more]
        return [*self.command("--criu", str(script), command), *where, *more]

    def enter(self) -> list[str]:
        around = self.wrap() if self.detached or self.joined else []
        return [*around, *self.command("exec", self.request.label)]

    def delete(self) -> list[str]:
        return [*self.wrap(), *self.command("delete", "--force", self.request.label)]


def _placed(
    backend: OciBackend, tools: Tools, request: InstanceRequest, state: Path, groups: Mapping[str, Path]
) -> _Placed:
    unified = cgroups.unified_beside_version1() if backend.detach_unified else None
    by = backend.groups_of(request)
    joined = cgroups.unique(groups) if by is Groups.AROUND else ()
    paths = {Groups.BELOW_OURS: cgroups.path_for_runtime, Groups.AT_THE_TOP: cgroups.path_from_top}
    return _Placed(
        backend=backend,
        tools=tools,
        request=request,
        state=state,
        detached=() if unified is None else ("--detach", str(unified)),
        joined=tuple(word for group in joined for word in ("--cgroup", str(group))),
        group_path=paths[by](groups, request.place) if by in paths else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything that an instance needs before the runtime is started.

    inner: the request, with scratch set to the directory of the runtime's files.
    groups: control groups of the instance: directory by controller.
    around: command prefix that runs the runtime with the root directory of the instance.
    """

    placed: _Placed
    inner: InstanceRequest
    report: FirstReport
    groups: Mapping[str, Path]
    around: tuple[str, ...]

    def enter(self) -> tuple[str, ...]:
        placed = self.placed
        return entered_by_call(placed.tools, placed.request, self.report.directory, placed.enter())


@contextmanager
def _prepared(backend: OciBackend, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[_Prepared]:
    require_root(host, request)
    require_fitting(request)
    with ExitStack() as stack:
        at_the_top = backend.groups_of(request) is Groups.AT_THE_TOP
        groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=at_the_top))
        if at_the_top:  # also those in hierarchies where nearmetal makes none
            stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.place)))
        # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
        state = stack.enter_context(runtime.scratch_directory(state_of(request).name))
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner))
        overlay = state / "overlay"
        # Its root too is mounted for the runtime alone: runc starts the helper of its exec there.
        (overlay / "root").mkdir(parents=True)
        placed = _placed(backend, tools, request, state, groups)
        further = None if request.layer is None else _criu_options_of(state)
        seen = all_binds(tools, request, report.directory)
        network = own_network_path(request)
        config = bundle(request, report, overlay / "root", seen, placed.group_path, network, further)
        (state / "config.json").write_text(json.dumps(config))
        stack.callback(_delete, placed, host)
        layer = () if request.layer is None else ("--layer", str(request.layer))
        if network is not None:
            network.symlink_to("/proc/self/ns/net")
            layer = (*layer, "--new-net")
        yield _Prepared(
            placed=placed,
            inner=inner,
            report=report,
            groups=groups,
            around=tuple(placed.wrap("--root-overlay", str(overlay), "--tree", str(request.tree), *layer)),
        )


def _criu_options_of(state: Path) -> Path:
    """Return the path of the file with further options of CRIU, written before each dump and each restore."""
    return state / "criu.conf"


def _write_criu_options(tools: Tools, request: InstanceRequest, state: Path, more: Sequence[str]) -> None:
    options = connection_options(tools, request, state)
    # CRIU runs in the groups of the container before its processes are restored; see _restore_argv().
    write_configuration((*options, criu_of.NO_GROUPS, *more), _criu_options_of(state))


def _masked() -> tuple[str, ...]:
    """Return the CRIU options by which the file systems that mask directories are not dumped. CRIU would run
    tar for each of them, which lengthens the standstill by 6 ms."""
    masked = (path for path in MASKED if Path(path).is_dir())
    return tuple(word for path in masked for word in ("--external", f"mnt[{path}]:{_MASKED}"))


def _group_mounts(pid: int, images: Path) -> Sequence[str]:
    """Return the mount points of control groups in an instance, and write them to a file beside its images.
    CRIU must not mount them again, which would take 12 ms of the standstill for version 2.

    Raises RunError if the instance has ended.
    """
    mounts = criu_of.mounts_of(pid).splitlines()
    kinds = ((line.split(), line.partition(" - ")[2].split()) for line in mounts)
    points = [words[4] for words, (kind, *_) in kinds if kind.startswith("cgroup")]
    (images / _GROUP_MOUNTS).write_text("\n".join(points))
    return points


def _unmasked(state: Path) -> tuple[str, ...]:
    """Return the CRIU options for a restore that mount a new empty directory over each masked directory."""
    (empty := state / "empty").mkdir()
    return ("--external", f"mnt[{_MASKED}]:{empty}")


def _restore_argv(criu: Criu, ready: _Prepared, images: Path, hold: Path | None) -> list[str]:
    placed, state = ready.placed, ready.inner.scratch
    request = placed.request
    groups = criu_of.external_options((images / _GROUP_MOUNTS).read_text().split())
    waits = waiting_options(placed.tools, hold, state) if hold is not None and not request.lazy else ()
    _write_criu_options(placed.tools, request, state, (*_unmasked(state), *groups, *waits))
    more = ["--bundle", str(state), "--pid-file", str(images / criu_of.PID_FILE)]
    if request.lazy:
        more.append("--lazy-pages")
    # runc puts CRIU into the groups of the container; another runtime leaves it in its own.
    joined = {} if placed.backend.groups_of(request) is Groups.BELOW_OURS else ready.groups
    return [
        *restorer(placed.tools, request, joined),
        *ready.around,
        *placed.checkpointing(criu, "restore", images, *more, hold=None if waits else hold),
        request.label,
    ]


def _remove_groups(request: InstanceRequest) -> None:
    """Remove the control groups that the runtime has made. They remain if its CRIU was killed."""
    cgroups.remove(tuple(own / request.place for own in cgroups.own_everywhere()))


def _delete(placed: _Placed, host: Host) -> None:
    """Delete the runtime's record of a container, which remains if the runtime was killed. Raises
    RunError."""
    if (placed.state / "runtime" / placed.request.label).exists():
        host.run(placed.delete(), timeout=DELETE_TIMEOUT, cwd=Path("/")).require(
            f"{placed.request.label} cannot be deleted", remedy="nearmetal clean"
        )
