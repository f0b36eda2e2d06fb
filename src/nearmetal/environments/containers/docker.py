"""Backend docker: `docker run` by the daemon at DOCKER_HOST or at the default socket.

The root directory of an instance consists of overlays over the directories of a tree (docker_image.py). So no
tree is copied into Docker's store, and all backends run the same files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...host import Completed, Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...lifecycle import Method
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment, Environment
from .. import criu as criu_of
from ..contract import Bind, Instance, InstanceRequest, Tools, Unavailable
from ..criu_restoring import restorer, restoring_from
from ..instance import (
    CONTROLLERS,
    VERSION_TIMEOUT,
    all_binds,
    control_groups,
    require_fitting,
    require_root,
    seconds,
)
from ..moving import Criu, Dump, Restore
from ..program import (
    FirstReport,
    ProgramInstance,
    entered_by_call,
    first_report,
    program_instance,
    shared_memory_size,
)
from .docker_checkpoints import (
    COSTS,
    PASSES,
    Created,
    checkpoints_unavailable,
    created,
    dump_words,
    hand_over,
    restore_words,
    watch_dump,
)
from .docker_daemon import COMMAND_TIMEOUT, cgroup_driver, container, remove, socket_is_there
from .docker_image import FRESH, look_at, overlays, skeleton_image
from .docker_runc import identity_of
from .docker_seat import in_seat, taken
from .wrapped import ProgramBackend, mount_words, state_of


class Docker(ProgramBackend, criu_of.RestoresByCriu):
    """Backend docker. It supports the attachments host, none and loopback, and networks built by nearmetal.

    An instance joins a network of nearmetal by joining the network of another container, which runs in the
    namespace of the seat (docker_seat.py). That container exists for the whole run if seated() was called for
    the seat, and otherwise only for the one instance. Of CRIU's methods, Docker supports only the plain dump,
    and it passes no options to CRIU, so TCP connections are not restored.
    """

    name = program = "docker"
    remedy = "apt-get install docker.io"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="Docker")
    checkpoints_by = (Method.CRIU,)
    writes_after_end = True
    has_statistics = False
    note = ""
    costs = COSTS
    passes = PASSES

    def _version(self, host: Host) -> str | Unavailable:
        """Return the version of the daemon, which may differ from the client's, or that none answers."""
        answer = host.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=VERSION_TIMEOUT)
        if not answer.ok:
            reason = f"no Docker daemon answers: {answer.failure()}"
            return Unavailable(reason=reason, remedy="systemctl start docker")
        return f"docker {answer.stdout.strip()}"

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
        begin = time.monotonic_ns()
        with _prepared(host, tools, request) as ready, ExitStack() as stack:
            # A checkpoint ends the container, and Docker must then still have it: its clean-up is ours.
            kept = request.layer is not None
            words = ["run", *([] if kept else ["--rm"]), *ready.words]
            groups = ready.groups
            run = stack.enter_context(
                container(host, tools, ready.inner, ready.report, words, groups.values(), kept=kept)
            )
            own = groups or cgroups.of_process(run.pid)
            yield program_instance(request, run.pid, run.phases(begin), own, ready.enter())

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        return super().refuses_checkpoint(host, environment) or checkpoints_unavailable(host)

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        return dump_words(request.place, dump.images)

    def watch_dump(self, instance: Instance, images: Path) -> Callable[[int], str]:
        return watch_dump(instance.pid)

    def thaw(self, host: Host, tools: Tools, request: InstanceRequest, instance: Instance) -> None:
        """See moving.Checkpoints. The path of the group contains the ID of the container."""
        cgroups.thaw(instance.pid, identity_of(instance.pid) or request.place)

    @contextmanager
    def restoring(self, host: Host, tools: Tools, criu: Criu, request: InstanceRequest) -> Iterator[Restore]:
        with _prepared(host, tools, request) as ready, created(host, request.place, ready.words) as made:
            yield partial(_restored, host, tools, ready, made)

    seated = staticmethod(in_seat)
    remove_instance = staticmethod(remove)

    def instance_names(self, host: Host) -> tuple[str, ...]:
        """Return the names of all containers of the daemon; empty if no daemon answers."""
        answer = _list_containers(host)
        return tuple(answer.stdout.split()) if answer is not None and answer.ok else ()

    def not_searched(self, host: Host) -> tuple[str, ...]:
        """See leftovers.ReportsSilence. Instances of Docker need root."""
        answer = _list_containers(host) if host.is_root() else None
        if answer is None or answer.ok:
            return ()
        return (f"docker does not answer: its containers were not looked at ({answer.failure()})",)


def _list_containers(host: Host) -> Completed | None:
    """List the names of the daemon's containers; None if Docker does not run here."""
    if host.which("docker") is None or not socket_is_there():
        return None
    return host.run(["docker", "ps", "--all", "--format", "{{.Names}}"], timeout=COMMAND_TIMEOUT)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Everything that an instance needs before Docker makes its container.

    inner: the request, with scratch set to the directory of the instance's files.
    words: arguments of `docker run` and `docker create`, including the payload.
    groups: control groups of the instance: directory by controller; empty if nearmetal makes none.
    """

    tools: Tools
    request: InstanceRequest
    inner: InstanceRequest
    report: FirstReport
    words: Sequence[str]
    groups: Mapping[str, Path]

    def enter(self) -> tuple[str, ...]:
        """Return the command prefix that runs a command inside the instance."""
        inside = ["docker", "exec", "--interactive", self.request.place]
        return entered_by_call(self.tools, self.request, self.report.directory, inside)


@contextmanager
def _prepared(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[_Prepared]:
    """Make the directories, the control groups and the skeleton image of an instance until exit.

    Raises UnavailableError, RunError.
    """
    require_root(host, request)
    require_fitting(request)
    by_parent = cgroup_driver(host) == "cgroupfs"
    tree = look_at(request.tree)
    with ExitStack() as stack:
        groups: dict[str, Path] = {}
        if by_parent:
            groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
            stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.place)))
        seat = stack.enter_context(_seat(host, tools, request))
        # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
        state = stack.enter_context(runtime.scratch_directory(state_of(request).name))
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner, outlives=request.layer is not None))
        words = container_words(
            request,
            all_binds(tools, request, report.directory),
            image=skeleton_image(host, tree, state),
            mounts=overlays(tree, request.layer or state),
            seat=seat,
            groups=cgroups.path_from_top(groups, request.place) if groups else None,
        )
        yield _Prepared(
            tools=tools,
            request=request,
            inner=inner,
            report=report,
            words=[*words, *report.argv],
            groups=groups,
        )


@contextmanager
def _restored(
    host: Host, tools: Tools, ready: _Prepared, made: Created, images: Path
) -> Iterator[ProgramInstance]:
    begin, request = time.monotonic_ns(), ready.request
    hand_over(images, made.files)
    argv = [*restorer(tools, request, {}), *restore_words(request.place, images / criu_of.PID_FILE)]
    with restoring_from(host, request, argv, images, why_stuck=made.why_stuck) as pid:
        groups = ready.groups or cgroups.of_process(pid)
        phases = {"restore": seconds(begin, time.monotonic_ns())}
        yield program_instance(request, pid, phases, groups, ready.enter())


def container_words(
    request: InstanceRequest,
    binds: Sequence[Bind],
    *,
    image: str,
    mounts: Sequence[str],
    groups: str | None,
    seat: str | None,
) -> list[str]:
    """Return the arguments of `docker run` and `docker create` up to the payload.

    binds: from all_binds().
    image: name of the skeleton image.
    mounts: further arguments, from docker_image.overlays().
    groups: path of the parent control group; None if the daemon's cgroup driver accepts none. The limits are
        then passed to Docker.
    seat: name of the container that runs in the namespace of the seat; None without a seat.
    """
    words = ["--pull", "never", "--name", request.place]
    if seat is not None:  # the host name comes with the seat; Docker does not accept another one
        words += ["--network", f"container:{seat}"]
    else:
        host = request.environment.attachment is Attachment.HOST
        words += ["--hostname", request.hostname, "--network", "host" if host else "none"]
    words += shared_memory(request)
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}", "--security-opt", "label=disable"]
    if groups is not None:
        words += ["--cgroup-parent", groups]
    else:
        limits = request.environment.limits
        words += ["--cpuset-cpus", ",".join(map(str, request.cpus))] if request.cpus else []
        words += ["--cpus", f"{limits.cpu_quota:g}"] if limits.cpu_quota else []
        words += ["--cpu-shares", str(limits.cpu_shares)] if limits.cpu_shares else []
        if limits.memory:
            words += ["--memory", str(limits.memory), "--memory-swap", str(limits.memory)]
    for name, mode in FRESH.items():
        words += ["--tmpfs", f"/{name}:rw,exec,nosuid,nodev,mode={mode:o}"]
    for bind in binds:
        words += mount_words(bind)
    return [*words, *mounts, image]


def shared_memory(request: InstanceRequest) -> list[str]:
    """Return the arguments for the /dev/shm of a container.

    Docker makes it outside of the container, so CRIU would not save it. A container that can be checkpointed
    therefore gets a tmpfs of its own there.
    """
    size = str(shared_memory_size())
    if request.layer is None:
        return ["--ipc", "private", "--shm-size", size]
    return ["--ipc", "none", "--tmpfs", f"/dev/shm:rw,noexec,nosuid,nodev,mode=1777,size={size}"]


@contextmanager
def _seat(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[str | None]:
    """Yield the name of the container that runs in the network namespace of the request's seat.

    Yields None if the request has no seat. If there is no such container, one is started until exit.
    """
    if request.seat is None:
        yield None
    elif (name := taken(request.seat, request.hostname)) is not None:
        yield name
    else:
        with in_seat(host, tools, replace(request, label=f"{request.label}-seat")) as own:
            yield own
