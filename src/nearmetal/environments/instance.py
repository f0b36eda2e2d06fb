"""What the backends share: control groups and limits of a request, the running instance, its end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import REPORT_FD, Host, Launched, cgroups
from ..host import Unavailable as NoGroups
from ..host.processes import labelled as processes
from ..model.environments.image import HOST
from ..model.study import Limits
from .contract import InstanceRequest, Tools, Unavailable

START_TIMEOUT = 60.0
"""Seconds after which a start has failed; a good one takes milliseconds."""
VERSION_TIMEOUT = 60.0
"""Seconds after which a program that prints its version has failed."""

LONGEST_HOSTNAME = 63

CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "blkio"})
"""What an instance is held to and accounted by."""

BOX_REPORTS = frozenset({"pid", "spawn", "namespaces", "root", "first"})
"""What nm-box start reports, and nm-init after it."""


@dataclass(frozen=True, kw_only=True)
class BoxInstance:
    """An instance that is entered by nm-box. enter: tokens before the command; see contract.Instance."""

    label: str
    hostname: str
    pid: int
    phases: Mapping[str, float]
    cgroups: Mapping[str, Path]
    agent_line: str
    enter: tuple[str, ...]

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*self.enter, "--", *argv]


def make_instance(
    tools: Tools,
    request: InstanceRequest,
    *,
    pid: int,
    namespaces_of: int,
    groups: Mapping[str, Path],
    phases: Mapping[str, float],
    hostname: str | None = None,
) -> BoxInstance:
    """namespaces_of: the process whose namespaces a command joins; 0 = none, the command stays on the
    host. hostname: that its ranks report, where it is not the one of the request."""
    hostname = hostname or request.hostname
    user = namespaces_of != 0 and request.user_namespace is not None
    cpus = ",".join(map(str, request.cpus))
    directories = [str(d) for d in cgroups.unique(groups)]
    enter = [tools / "nm-box", "enter", "--pid", str(namespaces_of), "--label", request.label]
    if user:
        enter.append("--user-namespace")
    if cpus:
        enter += ["--cpus", cpus]
    for directory in directories:
        enter += ["--cgroup", directory]
    words = [hostname, str(namespaces_of), "user" if user else "-", cpus or "-", request.label]
    return BoxInstance(
        label=request.label,
        hostname=hostname,
        pid=pid,
        phases=phases,
        cgroups=groups,
        agent_line=" ".join([*words, *directories]),
        enter=tuple(enter),
    )


@contextmanager
def control_groups(
    request: InstanceRequest,
    wanted: Set[str],
    *,
    period_us: int = cgroups.DEFAULT_PERIOD_US,
    from_top: bool = False,
) -> Iterator[dict[str, Path]]:
    """The instance's groups, removed with all their processes on leaving; empty where none can be made.
    from_top: in version 1 at the top of each hierarchy, where some programs look for a group, instead of
    below our own.

    Raises UnavailableError when a limit is asked for that only a group can hold.
    """
    limits = request.environment.limits
    needed = {"cpu"} if limits.cpu_quota or limits.cpu_shares else set()
    needed |= {"memory"} if limits.memory else set()
    parents = cgroups.machine_parents()
    if from_top and isinstance(parents, cgroups.Parents):
        parents = cgroups.at_the_top(parents)
    usable = frozenset[str]() if isinstance(parents, NoGroups) else parents.controllers
    if not needed <= usable:
        reason = parents.reason if isinstance(parents, NoGroups) else "no such controller here"
        raise UnavailableError(
            f"environment {request.environment.name} limits {' and '.join(sorted(needed))}: {reason}",
            remedy="run as root, or take the limits out of the environment",
        )
    if isinstance(parents, NoGroups):
        yield {}
        return
    made = cgroups.directories(parents, request.label, wanted | needed)
    try:
        cgroups.create(
            made,
            cgroups.GroupLimits(
                cpus=request.cpus if "cpuset" in wanted & usable else (),
                cpu_share=limits.cpu_quota,
                period_us=period_us,
                memory=limits.memory,
                weight=limits.cpu_shares,
            ),
        )
        if needed:
            require_limits(limits, cgroups.read_back(made))
        yield made
    finally:
        cgroups.remove(cgroups.unique(made))


@contextmanager
def occupied(groups: Mapping[str, Path]) -> Iterator[Mapping[str, Path]]:
    """Groups that stand longer than the instance in them: on leaving all its processes end, not they."""
    try:
        yield groups
    finally:
        cgroups.kill_members(cgroups.unique(groups))


def group_notes() -> tuple[str, ...]:
    """What differs here for want of control groups."""
    parents = cgroups.machine_parents()
    if isinstance(parents, NoGroups):
        return (f"affinity instead of cpuset, no accounts per instance: {parents.reason}",)
    lacking = sorted(CONTROLLERS - parents.controllers)
    return (f"no control group of {', '.join(lacking)}",) if lacking else ()


def require_limits(limits: Limits, found: Mapping[str, float | None]) -> None:
    """found: what the kernel says (cgroups.read_back), which rounds: memory to pages, a weight of version 2
    to whole hundredths. Raises RunError where it holds a group to something else than was asked for."""
    asked = {"cpu_quota": limits.cpu_quota, "cpu_shares": limits.cpu_shares, "memory": limits.memory}
    for name, wanted in asked.items():
        if wanted is None:
            continue
        got = found.get(name)
        slack = {"cpu_quota": 1e-3 * wanted, "cpu_shares": 0.05 * wanted + 10, "memory": 65_536}[name]
        if got is None or abs(got - wanted) > slack:
            raise RunError(f"limit {name}: {wanted:g} was asked for, the kernel holds to {got}")


def end(launched: Launched, pid: int) -> None:
    """Kill the first process; await_end() is to follow."""
    if launched.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def await_end(launched: Launched, label: str, groups: Mapping[str, Path]) -> None:
    """Wait until the first process is gone; where no control group holds the others, find them by their
    label."""
    try:
        launched.process.wait(30)
    except TimeoutError as e:
        raise RunError(f"{label} does not end: {e}", remedy="nearmetal clean") from e
    if not groups:
        processes.kill_labelled(label)


@contextmanager
def ended(launched: Launched, pid: int, label: str, groups: Mapping[str, Path]) -> Iterator[None]:
    """On leaving: end() and await_end()."""
    try:
        yield
    finally:
        end(launched, pid)
        await_end(launched, label, groups)


@contextmanager
def box(
    host: Host, label: str, argv: Sequence[str], groups: Mapping[str, Path]
) -> Iterator[Mapping[str, int]]:
    """A launch of nm-box start (box_argv) until the body is left: what it reports (BOX_REPORTS)."""
    launched = host.launch(
        argv,
        expect=BOX_REPORTS,
        timeout=START_TIMEOUT,
        env={processes.LABEL_VARIABLE: label},
        inherit=False,
    )
    with ended(launched, launched.facts["pid"], label, groups):
        yield launched.facts


def require_host_image(request: InstanceRequest) -> None:
    """Raises UnavailableError for any image but the machine's own."""
    if request.environment.image != HOST:
        raise UnavailableError(
            f"environment {request.environment.name}: backend {request.environment.backend} has image host "
            f"only, not {request.environment.image}",
            remedy="image: host",
        )


def require_fitting(request: InstanceRequest) -> None:
    """Raises UnavailableError for an image without a tree, a seat that does not fit its attachment, and a
    host name that the kernel or the domain name system refuses (RFC 1035)."""
    if request.tree == Path("/"):
        require_host_image(request)
    require_seat(request)
    if len(request.hostname) > LONGEST_HOSTNAME:
        raise UnavailableError(
            f"host name {request.hostname} is longer than {LONGEST_HOSTNAME} characters",
            remedy="give the environment a shorter name",
        )


def require_root(host: Host, request: InstanceRequest) -> None:
    """Raises UnavailableError without root."""
    if not host.is_root():
        raise UnavailableError(
            f"environment {request.environment.name}: backend {request.environment.backend} needs root",
            remedy="run as root, or take namespaces or bubblewrap",
        )


def require_seat(request: InstanceRequest) -> None:
    """Raises UnavailableError where attachment and seat do not fit: what was not asked for would be
    measured."""
    attachment = request.environment.attachment
    if attachment.of_guests:
        raise UnavailableError(
            f"environment {request.environment.name}: attachment {attachment.value} is of virtual machines",
            remedy="attachment: macvlan, or none",
        )
    if attachment.seated != (request.seat is not None):
        raise UnavailableError(
            f"environment {request.environment.name}: attachment {attachment.value} "
            f"{'without' if request.seat is None else 'with'} a seat on a network",
            remedy="host, loopback and none take no seat; all others need one for each instance",
        )


def box_argv(
    tools: Tools,
    request: InstanceRequest,
    options: Sequence[str],
    groups: Sequence[Path],
    *,
    report_fd: int = REPORT_FD,
) -> list[str]:
    """Tokens of nm-box that start nm-init over the tree of the request. options: which namespaces it gets.

    Raises UnavailableError where the request brings no tree of its image.
    """
    image = request.environment.image
    argv = [tools / "nm-box", "start", "--root-overlay", str(request.scratch), *options]
    if request.tree != Path("/"):
        argv += ["--tree", str(request.tree)]
    elif image != HOST:
        raise UnavailableError(
            f"environment {request.environment.name}: image {image} is not there",
            remedy=f"nearmetal image build {image}",
        )
    if request.user_namespace is not None:
        argv += ["--user-namespace", request.user_namespace]
    for group in groups:
        argv += ["--cgroup", str(group)]
    binds = [p.resolve() for p in request.binds]
    own = tools.directory.resolve()
    if not any(own.is_relative_to(b) for b in binds):
        argv += ["--bind-read-only", str(own)]
    for bind in binds:
        argv += ["--bind", str(bind)]
    if request.cpus:
        argv += ["--cpus", ",".join(map(str, request.cpus))]
    init = [str(own / "nm-init"), "--first-fd", str(report_fd)]
    return [*argv, "--report-fd", str(report_fd), "--", *init]


def box_phases(facts: Mapping[str, int]) -> dict[str, float]:
    """Seconds by step, from what nm-box reports (BOX_REPORTS)."""
    return {
        "namespaces": seconds(facts["spawn"], facts["namespaces"]),
        "root": seconds(facts["namespaces"], facts["root"]),
        "exec": seconds(facts["root"], facts["first"]),
    }


def missing_tools(host: Host, tools: Tools) -> Unavailable | None:
    """Unavailable where nm-box or nm-init cannot be run."""
    for name in ("nm-box", "nm-init"):
        if host.which(tools / name) is None:
            return Unavailable(
                reason=f"{tools / name} is missing",
                remedy="remove the cache, ~/.cache/nearmetal, to have it built again",
            )
    return None


def seconds(start: int, end: int) -> float:
    """Between two readings of CLOCK_MONOTONIC in nanoseconds."""
    return (end - start) / 1e9
