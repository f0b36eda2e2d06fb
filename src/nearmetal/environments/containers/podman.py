"""Backend podman: `podman run --rootfs` on a root directory made by nearmetal. Without root, it runs in
Podman's own user namespace.

Podman is configured to store everything about an instance in directories of this instance. The user's
containers and images are neither read nor changed, and the leftovers of a killed run are removed with these
directories.

A checkpoint is restored into a new container in directories of its own, so that it can have another network.
`podman container restore --import` cannot do this: it uses the settings of the checkpointed container, and
accepts only containers made from an image. nearmetal therefore creates a new container, initializes and stops
it, and then adds the files of the checkpoint to its directory."""

from __future__ import annotations

import os
import resource
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...errors import RunError
from ...host import Host, cgroups, runtime
from ...host.outside import SHORT_PARENT, short_directory
from ...host.processes import labelled as processes
from ...host.processes.birth import stat_fields
from ...lifecycle import Method
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment, Environment
from .. import criu as criu_of
from ..contract import Bind, Instance, InstanceRequest, Tools, Unavailable
from ..criu_connections import connection_options, freezing_options, write_configuration
from ..criu_restoring import restorer, restoring_from
from ..instance import CONTROLLERS, all_binds, control_groups, require_fitting, seconds
from ..moving import Criu, Dump, Restore
from ..program import (
    FirstReport,
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    in_groups,
    program_instance,
    read_pid,
    running,
    shared_memory_size,
    write_script,
)
from .wrapped import ProgramBackend, mount_words, own_network_path, state_of

TMPFS = {"/tmp": "1777", "/run": "0755"}
"""Directories that are a new tmpfs in every instance, with their octal modes."""
PREPARE_TIMEOUT = 60.0
"""Time limit in seconds for the commands that make a new container for a checkpoint."""
_RUNTIME = "runc"
"""The OCI runtime that makes checkpoints."""
_MEMORY = "devshm-checkpoint.tar"
_WRITTEN = {criu_of.DUMP_LOG: criu_of.DUMP_LOG, "stats-dump": "stats-dump", _MEMORY: f"{_MEMORY}.img"}
"""Files that a checkpoint writes to the directory of the container -> names in the directory of the images.
The content of /dev/shm ends in .img, like CRIU's images, so that its size counts as well."""
_READ = {criu_of.RESTORE_LOG: criu_of.RESTORE_LOG, _MEMORY: f"{_MEMORY}.img"}
"""Files that a restore uses in the directory of the container, as in _WRITTEN."""
_SPACES = {"mount": "mnt", "net": "net"}
"""The namespaces that nm-box makes for Podman: names of nsenter's options, and of files in /proc/<pid>/ns."""


class Podman(ProgramBackend, criu_of.RestoresConnections):
    """Backend podman. It supports the attachments host, none and loopback and, as root, networks built by
    nearmetal. Of CRIU's methods, `podman container checkpoint` supports only the plain dump."""

    name = program = "podman"
    remedy = "apt-get install podman uidmap"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="Podman")
    checkpoints_by = (Method.CRIU,)
    writes_after_end = True  # the content of /dev/shm

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        begin = time.monotonic_ns()
        with _prepared(host, tools, request) as ready, ExitStack() as stack:
            store = ready.store
            # A checkpoint of a container with --rm removes it, unless it is exported.
            removed = [] if store.checkpoints else ["--rm"]
            run_words = store.command("run", *removed, *ready.options)
            argv = [*ready.around(), *run_words, *ready.report.argv]
            run = stack.enter_context(
                running(
                    host,
                    replace(request, scratch=store.directory),
                    ready.report,
                    argv,
                    env=store.environment(),
                    pid_of=lambda: read_pid(store.pid_file),
                )
            )
            stack.enter_context(end_payload(run))
            yield program_instance(request, run.pid, run.phases(begin), ready.groups, ready.enter())

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        if host.which(_RUNTIME) is None:
            return Unavailable(
                reason="Podman makes checkpoints by runc, which is not installed",
                remedy=f"apt-get install {_RUNTIME}",
            )
        return super().refuses_checkpoint(host, environment)

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        store = Store.of(request)
        freezer = cgroups.freezer(instance.pid, request.place)
        freezing = freezing_options(tools, freezer, store.directory, dump.images)
        store.write_criu(tools, criu, request, freezing)
        store.link(dump.images, _WRITTEN)
        # Podman saves /dev/shm, which is mounted only where `podman run` was started.
        inside = [f"--{kind}=/proc/{_monitor(instance.pid)}/ns/{file}" for kind, file in _SPACES.items()]
        words = ["checkpoint", "--keep", *_common_options(request), request.label]
        words = store.command("container", *words)
        return ["nsenter", *inside, "--", "env", *store.assignments(), *words]

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with _prepared(host, tools, request) as ready:
            store, label = ready.store, request.label
            made = store.script(
                tools,
                "make",
                store.command("create", *ready.options, *ready.report.argv),
                store.command("init", label),
                store.command("stop", "--time", "0", label),
            )
            # The layer is not mounted here, because it is complete only when the instance has stopped.
            done = host.run(
                [*ready.around(layered=False), str(made)],
                timeout=PREPARE_TIMEOUT,
                env=store.environment(),
                cwd=Path("/"),
            )
            done.require(f"no container for {label} can be made")
            yield partial(_restored, host, tools, criu, ready)


@dataclass(frozen=True, kw_only=True)
class Store:
    """The directories in which Podman stores everything about an instance.

    label: label of Podman's own processes. If the instance can be checkpointed, its processes have another
        one, since they may have been restored elsewhere when Podman's processes are ended.
    directory: directory for most files.
    short: directory for files that need a short path. Podman refuses one of more than 50 characters.
    rootless: whether Podman runs without root.
    network: path of the network namespace that nm-box makes (own_network_path()); None if it makes none.
    checkpoints: whether the instance can be checkpointed.
    """

    label: str
    directory: Path
    short: Path
    rootless: bool
    network: Path | None
    checkpoints: bool

    @staticmethod
    def of(request: InstanceRequest, *, rootless: bool = False) -> Store:
        """Return the store of an instance, which need not exist."""
        checkpoints, state = request.layer is not None and not rootless, state_of(request)
        return Store(
            label=state.name if checkpoints else request.label,
            directory=state,
            short=SHORT_PARENT / _short_name(request),
            rootless=rootless,
            network=own_network_path(request) if checkpoints else None,
            checkpoints=checkpoints,
        )

    @property
    def pid_file(self) -> Path:
        """The file to which Podman writes the PID of the payload."""
        return self.directory / "pid"

    @property
    def overlay(self) -> Path:
        """The directory that contains `root`, the root directory of the instance."""
        return self.directory / "overlay"

    @property
    def _criu(self) -> Path:
        """The directory of the script by which Podman and runc run CRIU."""
        return self.directory / "criu"

    @property
    def criu_options(self) -> Path:
        """The file with further options of CRIU."""
        return self.directory / "criu.conf"

    def environment(self) -> dict[str, str]:
        """Return the environment variables of Podman. They separate this Podman from the Podman of the user,
        including the pause process that Podman runs without root."""
        own = {"CONTAINERS_CONF": str(self.directory / "containers.conf")}
        if self.checkpoints:
            own |= {"PATH": self._path(), processes.LABEL_VARIABLE: self.label}
        return own | ({"XDG_RUNTIME_DIR": str(self.directory)} if self.rootless else {})

    def assignments(self) -> list[str]:
        """Return environment() as arguments of `env`."""
        return [f"{name}={value}" for name, value in self.environment().items()]

    def command(self, *words: str) -> list[str]:
        where = ["--root", str(self.directory / "root"), "--tmpdir", str(self.directory / "tmp")]
        where += ["--runroot", str(self.short), "--storage-driver", "vfs"]
        return ["podman", *where, "--log-level", "error", *words]

    def prepare(self, host: Host, tools: Tools) -> None:
        """Make the directories, and write containers.conf."""
        (self.overlay / "root").mkdir(parents=True)
        runc = _RUNTIME if cgroups.unified_beside_version1() is not None else None
        if self.checkpoints and (program := host.which(_RUNTIME)) is not None:
            # Podman gives the runtime neither a label nor, for some commands, a PATH. In the runtime's own
            # directory, the record of a container whose clean-up was killed would stay.
            words = [program, "--root", str(self.directory / "runtime")]
            runc = str(self.script(tools, _RUNTIME, in_groups(tools, {}, self.label, words)))
        (self.directory / "containers.conf").write_text(settings(self.label, path=self._path(), runc=runc))

    def _path(self) -> str:
        path = os.environ.get("PATH", os.defpath)
        return f"{self._criu}:{path}" if self.checkpoints else path

    def script(self, tools: Tools, name: str, *commands: Sequence[str]) -> Path:
        """Write a script that runs commands until one fails, each with the arguments of the script. Return
        the path of the script."""
        *first, last = (f'{shlex.join(words)} "$@"' for words in commands)
        text = "\n".join(["#!/bin/sh", "set -e", *first, f"exec {last}"]) + "\n"
        return write_script(tools, self.directory / name, text)

    def write_criu(
        self,
        tools: Tools,
        criu: Criu,
        request: InstanceRequest,
        more: Sequence[str] = (),
        *,
        restored: Path | None = None,
    ) -> None:
        """Write the script by which Podman and runc run CRIU, and CRIU's options.

        more: further options.
        restored: directory of the images that are restored; None for a dump.
        """
        self._criu.mkdir(exist_ok=True)
        bound = criu_of.bound_to_tool(tools, request.label, criu.argv)
        criu_of.script(tools, bound, self._criu, restores=restored)
        options = (*connection_options(tools, request, self.directory), criu_of.NO_GROUPS, *more)
        write_configuration(options, self.criu_options)

    def link(self, images: Path, files: Mapping[str, str]) -> None:
        """Let Podman use a directory for the images of a checkpoint, instead of the container's directory.

        files: names in the directory of the container -> names in `images`.
        """
        (container,) = (self.directory / "root" / "vfs-containers").glob("*/userdata")
        for name, target in {"checkpoint": images, **{n: images / f for n, f in files.items()}}.items():
            (container / name).unlink(missing_ok=True)
            (container / name).symlink_to(target)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything that an instance needs before Podman makes its container.

    options: arguments of `podman run` and `podman create` up to the payload.
    groups: control groups of the instance: directory by controller.
    """

    tools: Tools
    request: InstanceRequest
    store: Store
    report: FirstReport
    options: Sequence[str]
    groups: Mapping[str, Path]

    def around(self, *, layered: bool = True) -> list[str]:
        """Return the command prefix that runs Podman where the root directory of the instance is mounted.

        layered: whether to mount the layer of the request, if it has one.
        """
        request, store = self.request, self.store
        wrap = [self.tools / "nm-box", "wrap", "--root-overlay", str(store.overlay)]
        wrap += ["--tree", str(request.tree)]
        if layered and request.layer is not None:
            wrap += ["--layer", str(request.layer)]
        if store.network is not None:
            wrap.append("--new-net")
        # The user namespace comes first: an overlay mounted outside would not belong to its root.
        words = [*store.command("unshare"), *wrap, "--rootless"] if store.rootless else wrap
        return [*words, "--"]

    def enter(self) -> tuple[str, ...]:
        """Return the command prefix that runs a command inside the instance."""
        request, store = self.request, self.store
        inside = ["env", *store.assignments(), *store.command("exec", "--interactive", request.label)]
        return entered_by_call(self.tools, request, self.report.directory, inside)


@contextmanager
def _prepared(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[_Prepared]:
    """Make the directories and control groups of an instance until exit.

    Raises UnavailableError, RunError.
    """
    require_fitting(request)
    rootless = not host.is_root()
    if rootless and request.seat is not None:
        raise request.refused(
            "without root podman has a user namespace of its own, which cannot join a network of another",
            "run as root, or attachment: host, none or loopback",
        )
    store = Store.of(request, rootless=rootless)
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
        # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
        state = stack.enter_context(runtime.scratch_directory(store.directory.name))
        stack.enter_context(short_directory(_short_name(request)))
        # Includes hierarchies in which nearmetal counts nothing.
        stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.place)))
        if store.checkpoints and not groups:  # with groups, restored processes may have the same label
            stack.callback(processes.kill_labelled, request.label)
        # Podman's monitor, clean-up and pause processes are in none of nearmetal's groups.
        stack.callback(processes.kill_labelled, store.label)
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner, outlives=store.checkpoints))
        store.prepare(host, tools)
        if store.network is not None:
            store.network.symlink_to("/proc/self/ns/net")
        parent = cgroups.path_from_top(groups, request.place) if groups else None
        options = container_options(
            request, store, all_binds(tools, request, report.directory), groups=parent
        )
        yield _Prepared(
            tools=tools, request=request, store=store, report=report, options=options, groups=groups
        )


def _short_name(request: InstanceRequest) -> str:
    """Return the name of Store.short."""
    return f"{request.place}-p"


def _monitor(pid: int) -> str:
    """Return the PID of conmon, the parent of an instance's first process. Raises RunError if one of the two
    has ended."""
    try:
        parent = stat_fields(pid)[1]
    except OSError as e:
        raise RunError(f"no checkpoint: the first process of the instance has ended: {e.strerror}") from e
    if processes.name_of(int(parent)) != "conmon":
        raise RunError("no checkpoint: Podman's monitor of the instance has ended")
    return parent


def _common_options(request: InstanceRequest) -> list[str]:
    """Return the options that a checkpoint and its restore must both have."""
    return ["--file-locks", *(["--tcp-established"] if request.connections else [])]


@contextmanager
def _restored(
    host: Host, tools: Tools, criu: Criu, ready: _Prepared, images: Path
) -> Iterator[ProgramInstance]:
    begin, request, store = time.monotonic_ns(), ready.request, ready.store
    store.write_criu(tools, criu, request, restored=images)
    store.link(images, _READ)
    store.pid_file.unlink(missing_ok=True)
    words = store.command("container", "restore", "--keep", *_common_options(request), request.label)
    # Podman restores in the background, and nearmetal needs a program that ends with the instance.
    restore = store.script(tools, "restore", words, store.command("wait", request.label))
    argv = [*restorer(tools, request, {}), "env", *store.assignments(), *ready.around(), str(restore)]
    with restoring_from(host, request, argv, images, pid_of=lambda _: read_pid(store.pid_file)) as pid:
        phases = {"restore": seconds(begin, time.monotonic_ns())}
        yield program_instance(request, pid, phases, ready.groups, ready.enter())


def settings(label: str, *, path: str, runc: str | None) -> str:
    """Return the content of containers.conf for an instance.

    The resource limits of this process are used, because Podman's defaults exceed the hard limits of users
    without CAP_SYS_RESOURCE. The limit of processes is at most the highest PID: Podman lowers its own limit
    to this number, and then cannot set a higher one. Locks are files, because each of the 2048 locks in
    shared memory that a killed run holds would stay allocated.

    label: label of Podman's own processes.
    path: PATH of its monitor, and so of the runtime.
    runc: name or path of runc if it must be the runtime; None for Podman's choice. crun fails if control
        groups of both versions are mounted, and may be built without CRIU.
    """
    limits = []
    highest = int(Path("/proc/sys/kernel/pid_max").read_text())
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        soft, hard = resource.getrlimit(number)
        if resource.RLIM_INFINITY not in (soft, hard):
            most = highest if name == "nproc" else hard
            limits.append(f'"{name}={min(soft, most)}:{min(hard, most)}"')
    runtime = [f'runtime = "{runc}"'] if runc else []
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


def container_options(
    request: InstanceRequest, store: Store, binds: Sequence[Bind], *, groups: str | None
) -> list[str]:
    """Return the arguments of `podman run` and `podman create` up to the payload.

    binds: from all_binds().
    groups: path of the parent control group; None if there is none.
    """
    attachment = request.environment.attachment
    if request.seat is not None or store.network is not None:
        network = f"ns:{store.network if request.seat is None else request.seat.netns}"
    else:
        network = "host" if attachment is Attachment.HOST else "none"
    words = ["--name", request.label, "--hostname", request.hostname, "--network", network]
    words += ["--no-hosts", "--pidfile", str(store.pid_file), "--security-opt", "label=disable"]
    # Podman's default of 64 MB is too little for the segments of MPI ranks, and 0 keeps that default.
    words += ["--shm-size", str(shared_memory_size())]
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}"]
    if groups is not None:
        words += ["--cgroups", "no-conmon", "--cgroup-parent", groups]
    for target, mode in TMPFS.items():
        words += ["--mount", f"type=tmpfs,destination={target},tmpfs-mode={mode},notmpcopyup"]
    for bind in binds:
        words += mount_words(bind)
    if store.checkpoints:
        words += ["--annotation", f"org.criu.config={store.criu_options}"]
    return [*words, "--rootfs", str(store.overlay / "root")]
