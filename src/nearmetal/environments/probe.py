"""Checks whether a backend works: starts one instance and runs a command in it."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from pathlib import Path

from ..errors import NearmetalError, UnavailableError
from ..host import Host, text_of
from ..host.runtime import scratch_directory
from ..model.study import Attachment, Environment
from .contract import Available, Backend, InstanceRequest, Tools, Unavailable
from .holder import user_namespace_holder
from .instance import group_notes, missing_tools

COMMAND_TIMEOUT = 60.0

SYSCTLS = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""Kernel settings by which users without root cannot make user namespaces: file below /proc/sys, value that
forbids it, command that allows it."""


def probe(
    backend: Backend,
    host: Host,
    tools: Tools,
    attachment: Attachment,
    *,
    notes: tuple[str, ...] = (),
    user_namespace: str | None = None,
    own_hostname: bool = False,
    extra_work: float = 0.0,
    version: str | None = None,
) -> Available | Unavailable:
    """Return Available if an instance can run 'cat /proc/sys/kernel/hostname'.

    attachment: attachment of the instance.
    notes: notes for Available.
    user_namespace: path of the user namespace that instances share; None if they need none.
    own_hostname: whether the output must be the instance's own host name.
    extra_work: as Environment.extra_work.
    version: version of the backend's program, for Available; None for the kernel's version.
    """
    missing = missing_tools(host, tools)
    if missing is not None:
        return missing
    label = f"nearmetal-check-{os.getpid()}-{backend.name}"
    hostname = "nm-check"
    try:
        with scratch_directory(label) as scratch:
            request = InstanceRequest(
                label=label,
                hostname=hostname,
                environment=Environment(
                    name="check",
                    backend=backend.name,
                    attachment=attachment,
                    placements=(),
                    extra_work=extra_work,
                ),
                cpus=host.cpus()[:1],
                scratch=scratch,
                user_namespace=user_namespace,
            )
            with backend.start(host, tools, request) as instance:
                argv = instance.command(["cat", "/proc/sys/kernel/hostname"])
                answer = host.run(argv, timeout=COMMAND_TIMEOUT, cwd=Path("/"))
    except NearmetalError as e:
        own = e.remedy if isinstance(e, UnavailableError) else ""  # other remedies are not of a backend
        return Unavailable(reason=e.what, remedy=own or remedy(host))
    if not answer.ok or (own_hostname and answer.stdout.strip() != hostname):
        why = answer.failure() if not answer.ok else f"the host name inside is {answer.stdout.strip()!r}"
        return Unavailable(reason=f"a command in the instance failed: {why}", remedy=remedy(host))
    return Available(version=version or f"Linux {platform.release()}", notes=notes)


def probe_as_user(
    backend: Backend, host: Host, tools: Tools, *, version: str | None = None
) -> Available | Unavailable:
    """Run probe() with a new user namespace if nearmetal runs without root and the backend then needs one.

    The instance gets its own network namespace and host name if the backend supports them. The notes say what
    the lack of control groups means here.
    """
    missing = missing_tools(host, tools)
    if missing is not None:
        return missing
    own, notes = backend.capabilities.own, group_notes()
    with ExitStack() as stack:
        namespace = None
        if backend.capabilities.needs_user_namespace and not host.is_root():
            try:
                label = f"nearmetal-check-{os.getpid()}"
                namespace = stack.enter_context(user_namespace_holder(host, tools, label)).path
            except NearmetalError as e:
                return Unavailable(reason=e.what, remedy=remedy(host))
            notes = (*notes, "without root: one user namespace shared by all instances")
        return probe(
            backend,
            host,
            tools,
            Attachment.NONE if "net" in own else Attachment.HOST,
            notes=notes,
            user_namespace=namespace,
            own_hostname="uts" in own,
            version=version,
        )


def remedy(host: Host) -> str:
    """Return the command or instruction that most likely allows this user to start instances."""
    if host.is_root():
        return "give this root CAP_SYS_ADMIN, CAP_NET_ADMIN and mounts (in a container: --privileged)"
    for name, forbidding, line in SYSCTLS:
        if text_of(host, f"/proc/sys/{name}").strip() == forbidding:
            return line
    return "run as root, or let this user make user namespaces"
