"""Backend docker: `docker run` by the daemon at DOCKER_HOST or at the default socket.

The root directory of an instance consists of overlays over the directories of a tree (docker_image.py). So no
tree is copied into Docker's store, and all backends run the same files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...model.capabilities import CONTAINER_ATTACHMENTS, OWN_ALL, Capabilities
from ...model.study import Attachment
from ..contract import InstanceRequest, Tools, Unavailable
from ..instance import CONTROLLERS, VERSION_TIMEOUT, control_groups, require_fitting, require_root
from ..program import (
    ProgramInstance,
    entered_by_call,
    first_report,
    program_instance,
    shared_memory_size,
)
from .docker_daemon import COMMAND_TIMEOUT, cgroup_driver, container, remove, socket_is_there
from .docker_image import FRESH, look_at, overlays, skeleton_image
from .docker_seat import in_seat, taken
from .wrapped import ProgramBackend, all_binds


class Docker(ProgramBackend):
    """Backend docker. It supports the attachments host, none and loopback, and networks built by nearmetal.

    An instance joins a network of nearmetal by joining the network of another container, which runs in the
    namespace of the seat (docker_seat.py). That container exists for the whole run if seated() was called for
    the seat, and otherwise only for the one instance.
    """

    name = program = "docker"
    remedy = "apt-get install docker.io"
    capabilities = Capabilities(own=OWN_ALL, attachments=CONTAINER_ATTACHMENTS, title="Docker")
    immovable = Unavailable(
        reason="nearmetal does not use Docker's checkpoints, which need an experimental daemon",
        remedy="backend runc, which Docker runs",
    )

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
        require_root(host, request)
        require_fitting(request)
        binds = all_binds(tools, request)
        by_parent = cgroup_driver(host) == "cgroupfs"
        tree = look_at(request.tree)
        with ExitStack() as stack:
            groups: dict[str, Path] = {}
            if by_parent:
                groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
                stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.label)))
            seat = stack.enter_context(_seat(host, tools, request))
            # Not below request.scratch, which may be inside a bind: mounts there would be visible inside.
            state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
            inner = replace(request, scratch=state)
            report = stack.enter_context(first_report(tools, inner))
            image = skeleton_image(host, tree, state)
            words = run_words(
                request,
                {**binds, report.directory: True},
                image=image,
                mounts=overlays(tree, state),
                seat=seat,
                groups=cgroups.path_from_top(groups, request.label) if groups else None,
            )
            words += report.argv
            run = stack.enter_context(container(host, tools, inner, report, words, groups.values()))
            enter = entered_by_call(
                tools, request, report.directory, ["docker", "exec", "--interactive", request.label]
            )
            own = groups or cgroups.of_process(run.pid)
            yield program_instance(request, run.pid, run.phases(begin), own, enter)

    seated = staticmethod(in_seat)
    remove_instance = staticmethod(remove)

    def instance_names(self, host: Host) -> tuple[str, ...]:
        """Return the names of all containers of the daemon; empty if no daemon answers."""
        if host.which("docker") is None or not socket_is_there():
            return ()
        answer = host.run(["docker", "ps", "--all", "--format", "{{.Names}}"], timeout=COMMAND_TIMEOUT)
        return tuple(answer.stdout.split()) if answer.ok else ()


def run_words(
    request: InstanceRequest,
    binds: Mapping[Path, bool],
    *,
    image: str,
    mounts: Sequence[str],
    groups: str | None,
    seat: str | None,
) -> list[str]:
    """Return the arguments of `docker run` up to the payload.

    binds: paths that are mounted at the same path inside -> whether they are writable.
    image: name of the skeleton image.
    mounts: further arguments, from docker_image.overlays().
    groups: path of the parent control group; None if the daemon's cgroup driver accepts none. The limits are
        then passed to Docker.
    seat: name of the container that runs in the namespace of the seat; None without a seat.
    """
    words = ["run", "--rm", "--pull", "never", "--name", request.label, "--ipc", "private"]
    if seat is not None:  # the host name comes with the seat; Docker does not accept another one
        words += ["--network", f"container:{seat}"]
    else:
        host = request.environment.attachment is Attachment.HOST
        words += ["--hostname", request.hostname, "--network", "host" if host else "none"]
    words += ["--shm-size", str(shared_memory_size())]
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
    for path, writable in binds.items():
        words += ["--mount", f'type=bind,"src={path}","dst={path}"{"" if writable else ",readonly"}']
    return [*words, *mounts, image]


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
