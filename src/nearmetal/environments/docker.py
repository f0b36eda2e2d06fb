"""Backend docker: `docker run` by the daemon that DOCKER_HOST or the default socket leads to, on overlays of
the directories of a tree (docker_image.py): no tree is copied, and all backends run the same files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import Host, Process, cgroups, processes, runtime
from ..model.study import Attachment
from .contract import OWN_ALL, Available, InstanceRequest, Tools, Unavailable
from .docker_image import COMMAND_TIMEOUT, FRESH, look_at, overlays, skeleton_image
from .instance import (
    CONTROLLERS,
    START_TIMEOUT,
    control_groups,
    missing_tools,
    require_fitting,
    require_root,
)
from .program import (
    ProgramInstance,
    end_payload,
    entered_by_call,
    first_report,
    in_groups,
    running,
    shared_memory_size,
    started_instance,
)
from .wrapped import all_binds, check_program


class Docker:
    """Attachment host, none or loopback."""

    name = "docker"
    own = OWN_ALL
    needs_user_namespace = False

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        missing = missing_tools(host, tools)
        if missing is not None:
            return missing
        if host.which("docker") is None:
            return Unavailable(reason="docker is not installed", remedy="apt-get install docker.io")
        answer = host.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=5)
        if not answer.ok:
            reason = f"no Docker daemon answers: {answer.last_words()}"
            return Unavailable(reason=reason, remedy="systemctl start docker")
        found = check_program(self, host, tools, program="docker", remedy="apt-get install docker.io")
        # Of the daemon, which may be of another version than the client.
        version = f"docker {answer.stdout.strip()}"
        return replace(found, version=version) if isinstance(found, Available) else found

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[ProgramInstance]:
        return _start(host, tools, request)

    def kept(self, host: Host) -> tuple[str, ...]:
        """Names of all containers that the daemon keeps; empty where none answers."""
        if host.which("docker") is None or not _socket_is_there():
            return ()
        answer = host.run(["docker", "ps", "--all", "--format", "{{.Names}}"], timeout=COMMAND_TIMEOUT)
        return tuple(answer.stdout.split()) if answer.ok else ()

    def remove_kept(self, host: Host, name: str) -> None:
        _remove(host, name)


def _socket_is_there() -> bool:
    """False where asking the daemon would only fail, and take its time for that."""
    kind, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    return kind != "unix" or Path(path).exists()


def run_words(
    request: InstanceRequest,
    binds: Mapping[Path, bool],
    *,
    image: str,
    mounts: Sequence[str],
    groups: str | None,
) -> list[str]:
    """Words of `docker run` up to the payload. mounts: words that mount the tree; groups: path of the
    control group to make its own below, None where the daemon's driver takes none."""
    host = request.environment.attachment is Attachment.HOST
    words = ["run", "--rm", "--pull", "never", "--name", request.label, "--hostname", request.hostname]
    words += ["--network", "host" if host else "none", "--ipc", "private"]
    words += ["--shm-size", str(shared_memory_size())]
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}", "--security-opt", "label=disable"]
    if groups is not None:
        words += ["--cgroup-parent", groups]
    else:
        limits = request.environment.limits
        words += ["--cpuset-cpus", ",".join(map(str, request.cpus))] if request.cpus else []
        words += ["--cpus", f"{limits.cpu_quota:g}"] if limits.cpu_quota else []
        words += ["--memory", str(limits.memory)] if limits.memory else []
    for name, mode in FRESH.items():
        words += ["--tmpfs", f"/{name}:rw,exec,nosuid,nodev,mode={mode:o}"]
    for path, writable in binds.items():
        words += ["--mount", f'type=bind,"src={path}","dst={path}"{"" if writable else ",readonly"}']
    return [*words, *mounts, image]


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[ProgramInstance]:
    begin = time.monotonic_ns()
    require_root(host, request)
    require_fitting(request)
    if request.seat is not None:
        raise UnavailableError(
            f"environment {request.environment.name}: docker joins no network that it has not made",
            remedy="attachment: host, none or loopback; or backend: podman, which joins any",
        )
    binds = all_binds(tools, request)
    by_parent = _cgroup_driver(host) == "cgroupfs"
    tree = look_at(request.tree)
    with ExitStack() as stack:
        groups: dict[str, Path] = {}
        if by_parent:
            groups = stack.enter_context(control_groups(request, CONTROLLERS, from_top=True))
            stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(request.label)))
        # Not below request.scratch, which may lie in a bind: what is mounted there would be seen inside.
        state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner))
        image = skeleton_image(host, tree, state)
        words = run_words(
            request,
            {**binds, report.directory: True},
            image=image,
            mounts=overlays(tree, state),
            groups=cgroups.path_from_top(groups, request.label) if groups else None,
        )
        clients: list[Process] = []
        stack.callback(_put_away, host, request.label, clients)
        run = stack.enter_context(
            running(
                host,
                inner,
                report,
                in_groups(tools, {}, request.label, ["docker", *words, *report.argv]),
                timeout=START_TIMEOUT,
                pid_of=lambda: _pid(host, request.label, groups),
            )
        )
        clients.append(run.program)
        stack.enter_context(end_payload(run))
        enter = entered_by_call(
            tools, request, report.directory, ["docker", "exec", "--interactive", request.label]
        )
        yield started_instance(request, run, begin, groups or cgroups.of_process(run.pid), enter)


def _pid(host: Host, label: str, groups: Mapping[str, Path]) -> int | None:
    """Of the first process, which is no child of the client: from its control group, else from the daemon,
    which takes longer."""
    for pid in cgroups.members(cgroups.with_children(groups.values())):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "nm-init\n":
                return pid
    answer = host.run(["docker", "inspect", "--format", "{{.State.Pid}}", label], timeout=COMMAND_TIMEOUT)
    return int(answer.stdout) if answer.ok and answer.stdout.strip().isdigit() else None


def _put_away(host: Host, label: str, clients: Sequence[Process]) -> None:
    """A client that ends by itself has seen its container removed; for one that was killed, or that never
    came so far, we see to it: the overlays must be unmounted before their directories go."""
    if not clients or (clients[0].poll() or 0) < 0:
        _remove(host, label)


def _remove(host: Host, name: str) -> None:
    done = host.run(["docker", "rm", "--force", "--volumes", name], timeout=COMMAND_TIMEOUT)
    if not done.ok and "No such container" not in done.stderr and "already in progress" not in done.stderr:
        raise RunError(f"docker rm {name}: {done.last_words()}", remedy="nearmetal clean")


def _cgroup_driver(host: Host) -> str:
    """'cgroupfs' or 'systemd'; each daemon is asked once. Raises UnavailableError where none answers."""
    daemon = os.environ.get("DOCKER_HOST", "")
    if daemon not in _drivers:
        answer = host.run(["docker", "info", "--format", "{{.CgroupDriver}}"], timeout=COMMAND_TIMEOUT)
        if not answer.ok:
            raise UnavailableError(
                f"no Docker daemon answers: {answer.last_words()}", remedy="systemctl start docker"
            )
        _drivers[daemon] = answer.stdout.strip()
    return _drivers[daemon]


_drivers: dict[str, str] = {}
"""By address of the daemon."""
