"""Backend podman: `podman run --rootfs` on a root directory made by nearmetal. Without root, it runs in
Podman's own user namespace.

Podman is configured to store everything about an instance in directories of this instance. The user's
containers and images are neither read nor changed, and the leftovers of a killed run are removed with these
directories.

A checkpoint is restored into a new container in directories of its own, so that it can have another network.
`podman container restore --import` cannot do this: it takes over the settings of the checkpointed container,
and only of one that was made from an image. The new container is therefore made, started without its payload
and stopped, so that its directory contains everything; then it gets the files of the checkpoint."""

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
from ...host.processes import labelled as processes
from ...lifecycle import Method
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment, Environment
from .. import criu as criu_of
from ..contract import Instance, InstanceRequest, Tools, Unavailable
from ..criu_connections import connection_options, freezing_options, write_configuration
from ..criu_restoring import restorer, restoring_from
from ..instance import CONTROLLERS, control_groups, require_fitting, seconds
from ..moving import Criu, Dump, Restore
from ..program import (
    FirstReport,
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    program_instance,
    read_pid,
    running,
    shared_memory_size,
)
from .wrapped import ProgramBackend, all_binds, state_of

TMPFS = {"/tmp": "1777", "/run": "0755"}
"""Directories that are a new tmpfs in every instance, with their octal modes."""
PREPARE_TIMEOUT = 60.0
_RUNTIME = "runc"
_WRITTEN = (criu_of.DUMP_LOG, "stats-dump", "devshm-checkpoint.tar")
"""Files that a checkpoint writes beside the directory of its images."""
_SPACES = {"mount": "mnt", "net": "net"}
"""The namespaces that nm-box makes for Podman: names of nsenter's options, and of files in /proc/<pid>/ns."""
_READ = (criu_of.RESTORE_LOG, "devshm-checkpoint.tar")


class Podman(ProgramBackend, criu_of.RestoresByCriu):
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
            if request.layer is not None:
                stack.callback(_remove, host, store, request)
            run_words = store.command("run", *([] if request.layer else ["--rm"]), *ready.options)
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
        store.write_criu(tools, criu, request, freezing_options(freezer, store.directory, dump.images))
        store.link(dump.images, _WRITTEN)
        # Podman saves /dev/shm, which is mounted only where `podman run` was started.
        inside = [f"--{kind}=/proc/{_monitor(instance.pid)}/ns/{file}" for kind, file in _SPACES.items()]
        words = ["checkpoint", "--keep", *_options_of_both(request), request.label]
        words = store.command("container", *words)
        return ["nsenter", *inside, "--", "env", *store.assignments(), *words]

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with _prepared(host, tools, request) as ready, ExitStack() as stack:
            store, label = ready.store, request.label
            stack.callback(_remove, host, store, request)
            made = store.script(
                "make",
                store.command("create", *ready.options, *ready.report.argv),
                store.command("init", label),
                store.command("stop", "--time", "0", label),
            )
            # Without the layer, which is complete only when the instance has stopped.
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

    directory: directory for most files.
    short: directory for files that need a short path. Podman refuses one of more than 50 characters.
    rootless: whether Podman runs without root.
    checkpoints: whether the instance can be checkpointed.
    """

    directory: Path
    short: Path
    rootless: bool
    checkpoints: bool

    @staticmethod
    def of(request: InstanceRequest, *, rootless: bool = False) -> Store:
        """Return the store of an instance, which need not exist."""
        return Store(
            directory=state_of(request),
            short=runtime.SHORT_PARENT / _short_name(request),
            rootless=rootless,
            checkpoints=request.layer is not None,
        )

    @property
    def label(self) -> str:
        """The label of Podman's own processes. Those inside the instance have the label of the instance,
        and may have been restored elsewhere when Podman's processes are ended."""
        return self.directory.name

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
        own = {"CONTAINERS_CONF": str(self.directory / "containers.conf"), "PATH": self._path()}
        own[processes.LABEL_VARIABLE] = self.label
        return own | ({"XDG_RUNTIME_DIR": str(self.directory)} if self.rootless else {})

    def assignments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.environment().items()]

    def command(self, *words: str) -> list[str]:
        where = ["--root", str(self.directory / "root"), "--tmpdir", str(self.directory / "tmp")]
        where += ["--runroot", str(self.short), "--storage-driver", "vfs"]
        return ["podman", *where, "--log-level", "error", *words]

    def prepare(self) -> None:
        """Make the directories, and write containers.conf."""
        (self.overlay / "root").mkdir(parents=True)
        runc = _RUNTIME if cgroups.unified_beside_version1() is not None else None
        if self.checkpoints:
            # Else the record of a container whose clean-up was killed would stay in the runtime's directory.
            words = [_RUNTIME, "--root", str(self.directory / "runtime")]
            runc = str(self.script(_RUNTIME, words))
        (self.directory / "containers.conf").write_text(settings(self.label, path=self._path(), runc=runc))

    def _path(self) -> str:
        path = os.environ.get("PATH", os.defpath)
        return f"{self._criu}:{path}" if self.checkpoints else path

    def script(self, name: str, *commands: Sequence[str]) -> Path:
        """Write a script that runs these commands until one fails, each with the script's arguments. Return
        its path."""
        lines = ["#!/bin/sh -e", *(f'{shlex.join(words)} "$@"' for words in commands)]
        (file := self.directory / name).write_text("\n".join(lines) + "\n")
        file.chmod(0o755)
        return file

    def write_criu(
        self, tools: Tools, criu: Criu, request: InstanceRequest, more: Sequence[str] = ()
    ) -> None:
        """Write the script by which Podman and runc run CRIU, and CRIU's options."""
        self._criu.mkdir(exist_ok=True)
        criu_of.script(criu_of.bound_to_tool(tools, request.label, criu.argv), self._criu)
        options = (*connection_options(request, self.directory), criu_of.NO_GROUPS, *more)
        write_configuration(options, self.criu_options)

    def link(self, images: Path, names: Sequence[str]) -> None:
        """Let Podman use a directory for the images of a checkpoint, and these files in it. Podman's own
        place for them is the directory of the container."""
        (container,) = (self.directory / "root" / "vfs-containers").glob("*/userdata")
        for file, target in {"checkpoint": images, **{name: images / name for name in names}}.items():
            (container / file).unlink(missing_ok=True)
            (container / file).symlink_to(target)


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
        if _own_network(request, store) is not None:
            wrap.append("--new-net")
        # The user namespace comes first: an overlay mounted outside would not belong to its root.
        words = [*store.command("unshare"), *wrap, "--rootless"] if store.rootless else wrap
        return [*words, "--"]

    def enter(self) -> tuple[str, ...]:
        request, store = self.request, self.store
        inside = ["env", *store.assignments(), *store.command("exec", "--interactive", request.label)]
        return entered_by_call(self.tools, request, self.report.directory, inside)


@contextmanager
def _prepared(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[_Prepared]:
    require_fitting(request)
    rootless = not host.is_root()
    if rootless and request.seat is not None:
        raise request.refused(
            "without root podman has a user namespace of its own, which cannot join a network of another",
            "run as root, or attachment: host, none or loopback",
        )
    binds = all_binds(tools, request)
    store = Store.of(request, rootless=rootless)
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
        # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
        state = stack.enter_context(runtime.scratch_directory(store.directory.name))
        stack.enter_context(runtime.short_directory(_short_name(request), state))
        # Includes hierarchies in which nearmetal counts nothing.
        stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.place)))
        # Podman's monitor, clean-up and pause processes are in none of nearmetal's groups.
        stack.callback(processes.kill_labelled, store.label)
        if request.layer is None or not groups:  # else those restored from it have the same label
            stack.callback(processes.kill_labelled, request.label)
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner, lone=store.checkpoints))
        store.prepare()
        if (network := _own_network(request, store)) is not None:
            network.symlink_to("/proc/self/ns/net")
        parent = cgroups.path_from_top(groups, request.place) if groups else None
        options = container_options(request, store, {**binds, report.directory: True}, groups=parent)
        yield _Prepared(
            tools=tools, request=request, store=store, report=report, options=options, groups=groups
        )


def _own_network(request: InstanceRequest, store: Store) -> Path | None:
    """Return the path of the network namespace that nm-box makes for an instance that can be checkpointed;
    None if the instance cannot, or has the network of a seat or of the machine.

    CRIU then does not have to save the namespace. Podman would make an empty one for the restored instance.
    The path is a symbolic link to the namespace of the process that opens it.
    """
    attached = request.seat is not None or request.environment.attachment is Attachment.HOST
    return store.directory / "net" if store.checkpoints and not attached else None


def _short_name(request: InstanceRequest) -> str:
    return f"{request.place}-p"


def _monitor(pid: int) -> str:
    """Return the PID of conmon, the parent of an instance's first process. Raises RunError if the instance
    has ended."""
    try:
        return processes.stat_fields(pid)[1]
    except OSError as e:
        raise RunError(f"no checkpoint: the first process of the instance has ended: {e.strerror}") from e


def _options_of_both(request: InstanceRequest) -> list[str]:
    """Return the options that a checkpoint and its restore must both have."""
    return ["--file-locks", *(["--tcp-established"] if request.connections else [])]


@contextmanager
def _restored(
    host: Host, tools: Tools, criu: Criu, ready: _Prepared, images: Path
) -> Iterator[ProgramInstance]:
    begin, request, store = time.monotonic_ns(), ready.request, ready.store
    store.write_criu(tools, criu, request)
    store.link(images, _READ)
    store.pid_file.unlink(missing_ok=True)
    words = store.command("container", "restore", "--keep", *_options_of_both(request), request.label)
    # Podman restores in the background, and nearmetal needs a program that ends with the instance.
    restore = store.script("restore", words, store.command("wait", request.label))
    argv = [*restorer(tools, request, {}), "env", *store.assignments(), *ready.around(), str(restore)]
    with restoring_from(host, request, argv, images, pid_of=lambda _: read_pid(store.pid_file)) as pid:
        phases = {"restore": seconds(begin, time.monotonic_ns())}
        yield program_instance(request, pid, phases, ready.groups, ready.enter())


def _remove(host: Host, store: Store, request: InstanceRequest) -> None:
    """Remove a container that can be checkpointed, with the runtime's record of it. `podman run --rm` cannot
    be used for it."""
    words = store.command("rm", "--force", "--ignore", "--time", "0", request.label)
    host.run(words, timeout=PREPARE_TIMEOUT, env=store.environment(), cwd=Path("/"))


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
    request: InstanceRequest, store: Store, binds: Mapping[Path, bool], *, groups: str | None
) -> list[str]:
    """Return the arguments of `podman run` and `podman create` up to the payload.

    binds: paths that are mounted at the same path inside -> whether they are writable.
    groups: path of the parent control group; None if there is none.
    """
    attachment = request.environment.attachment
    own = _own_network(request, store)
    if request.seat is not None or own is not None:
        network = f"ns:{own if request.seat is None else request.seat.netns}"
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
    for path, writable in binds.items():
        words += ["--volume", f"{path}:{path}:rbind,{'rw' if writable else 'ro'}"]
    if store.checkpoints:
        words += ["--annotation", f"org.criu.config={store.criu_options}"]
    return [*words, "--rootfs", str(store.overlay / "root")]
