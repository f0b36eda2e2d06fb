"""Code shared by the backends: control groups and limits of a request, the running instance, and its end."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import REPORT_FD, Host, Launched, MissingValue, cgroups
from ..host.processes import labelled as processes
from ..host.runtime import rebuild_remedy
from ..host.untrusted import UntrustedDirectory
from ..model.environments.image import HOST
from ..model.study import Limits
from .contract import Bind, InstanceRequest, Tools, Unavailable

START_TIMEOUT = 60.0
"""Time limit of a start, in seconds. A start normally takes milliseconds."""
VERSION_TIMEOUT = 60.0
"""Time limit of a program that prints its version, in seconds."""

LONGEST_HOSTNAME = 63

CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "blkio"})
"""Controllers of control groups that nearmetal uses to limit an instance and to count its resources."""

BOX_REPORTS = frozenset({"pid", "spawn", "namespaces", "root", "first"})
"""Names of the values that `nm-box start` reports, followed by nm-init: PIDs, and times of steps of the start
(CLOCK_MONOTONIC, ns)."""


_SECRET = secrets.token_bytes(16)


@dataclass(frozen=True, kw_only=True)
class BoxInstance:
    """An instance in which commands are run by `nm-box enter`; see contract.Instance.

    enter: command prefix that runs a command inside, without the final '--'.
    """

    label: str
    hostname: str
    pid: int
    phases: Mapping[str, float]
    cgroups: Mapping[str, Path]
    agent_line: str
    enter: tuple[str, ...]

    def command(self, argv: Sequence[str]) -> list[str]:
        return [*self.enter, "--", *argv]


def init_name(label: str) -> str:
    """Return the name of the socket at which nm-init takes commands in an instance with a label.

    Other users of the machine see the labels of a run. They could take a name that they can predict.
    """
    key = hmac.new(_SECRET, label.encode(), "sha256").hexdigest()
    return f"{label}/{key[:16]}"


def make_instance(
    tools: Tools,
    request: InstanceRequest,
    *,
    pid: int,
    namespaces_of: int,
    groups: Mapping[str, Path],
    phases: Mapping[str, float],
    hostname: str | None = None,
    by_init: bool = True,
) -> BoxInstance:
    """Return the object for an instance that has been started.

    pid, groups, phases: as pid, cgroups and phases of contract.Instance.
    namespaces_of: PID of the process whose namespaces a command joins; 0 if commands run on the host.
    hostname: host name that MPI ranks in the instance report; None for that of the request.
    by_init: whether the first process of the instance starts the commands.
    """
    hostname = hostname or request.hostname
    user = namespaces_of != 0 and request.user_namespace is not None
    cpus = ",".join(map(str, request.cpus))
    directories = [str(d) for d in cgroups.unique(groups)]
    enter = [tools / "nm-box", "enter", "--pid", str(namespaces_of), "--label", request.label]
    if by_init:
        enter += ["--by-init", init_name(request.label)]
    elif namespaces_of == 0:
        enter += view_words(request)
    if user:
        enter.append("--user-namespace")
    if cpus:
        enter += ["--cpus", cpus]
    for directory in directories:
        enter += ["--cgroup", directory]
    init = init_name(request.label) if by_init else "-"
    words = [hostname, str(namespaces_of), "user" if user else "-", cpus or "-", request.label, init]
    return BoxInstance(
        label=request.label,
        hostname=hostname,
        pid=pid,
        phases=phases,
        cgroups=groups,
        agent_line=" ".join([*words, *directories]),
        enter=tuple(enter),
    )


def view_words(request: InstanceRequest) -> list[str]:
    """Return the options of nm-box by which a command on bare metal sees the views of a request."""
    return [word for v in request.views for word in ("--bind", str(v.source), "--at", str(v.target))]


@contextmanager
def control_groups(
    request: InstanceRequest,
    wanted: Set[str],
    *,
    period_us: int = cgroups.DEFAULT_PERIOD_US,
    from_top: bool = False,
) -> Iterator[dict[str, Path]]:
    """Make the control groups of an instance and set its limits. On exit, all processes in the groups are
    killed and the groups are removed.

    wanted: controllers for which groups are made, in addition to those that the limits need.
    period_us: period of the CPU quota in microseconds.
    from_top: in version 1, make the groups at the top of each hierarchy, where some programs look for a
        group, instead of below nearmetal's own group.
    Yields the directories by controller; empty if this machine lets nearmetal make no groups.
    Raises UnavailableError if a limit needs a control group that cannot be made.
    Raises RunError if the kernel does not apply a limit.
    """
    limits = request.environment.limits
    needed = {"cpu"} if limits.cpu_quota or limits.cpu_shares else set()
    needed |= {"memory"} if limits.memory else set()
    parents = cgroups.machine_parents()
    if from_top and isinstance(parents, cgroups.Parents):
        parents = cgroups.at_the_top(parents)
    usable = frozenset[str]() if isinstance(parents, MissingValue) else parents.controllers
    if not needed <= usable:
        reason = parents.reason if isinstance(parents, MissingValue) else "no such controller here"
        raise UnavailableError(
            f"environment {request.environment.name} limits {' and '.join(sorted(needed))}: {reason}",
            remedy="run as root, or take the limits out of the environment",
        )
    if isinstance(parents, MissingValue):
        yield {}
        return
    made = cgroups.directories(parents, request.place, wanted | needed)
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
    """Use existing control groups for an instance. On exit, all processes in them are killed, but the groups
    remain."""
    try:
        yield groups
    finally:
        cgroups.kill_members(cgroups.unique(groups))


def group_notes() -> tuple[str, ...]:
    """Return notes for the user: what is not limited or not counted here because control groups are
    missing."""
    parents = cgroups.machine_parents()
    if isinstance(parents, MissingValue):
        return (f"affinity instead of cpuset, no accounts per instance: {parents.reason}",)
    lacking = sorted(CONTROLLERS - parents.controllers)
    return (f"no control group of {', '.join(lacking)}",) if lacking else ()


def require_limits(limits: Limits, found: Mapping[str, float | None]) -> None:
    """Check that the kernel enforces the requested limits.

    found: limits by name, as read from the kernel (cgroups.read_back). They may differ a little from the
        requested ones: the kernel rounds memory to pages and CPU shares to the weights of version 2.

    Raises RunError if the kernel enforces other limits.
    """
    requested = {"cpu_quota": limits.cpu_quota, "cpu_shares": limits.cpu_shares, "memory": limits.memory}
    for name, wanted in requested.items():
        if wanted is None:
            continue
        got = found.get(name)
        slack = {"cpu_quota": 1e-3 * wanted, "cpu_shares": 0.05 * wanted + 10, "memory": 65_536}[name]
        if got is None or abs(got - wanted) > slack:
            raise RunError(f"limit {name}: {wanted:g} was requested, the kernel applies {got}")


def end(launched: Launched, pid: int) -> None:
    """Kill the first process of an instance, unless the launched process has ended. Call await_end() after
    it."""
    if launched.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def await_end(launched: Launched, label: str, groups: Mapping[str, Path]) -> None:
    """Wait until the launched process has ended. If the instance has no control groups, which would end its
    other processes, kill them by their label.

    Raises RunError if the process does not end within 30 s.
    """
    try:
        launched.process.wait(30)
    except TimeoutError as e:
        raise RunError(f"{label} does not end: {e}", remedy="nearmetal clean") from e
    if not groups:
        processes.kill_labelled(label)


@contextmanager
def box(
    host: Host, label: str, argv: Sequence[str], groups: Mapping[str, Path]
) -> Iterator[Mapping[str, int]]:
    """Run a command line from box_argv() until exit: an instance. Yields the values of BOX_REPORTS by
    name."""
    launched = host.launch(
        argv,
        expect=BOX_REPORTS,
        timeout=START_TIMEOUT,
        env={processes.LABEL_VARIABLE: label},
        inherit=False,
    )
    try:
        yield launched.facts
    finally:
        end(launched, launched.facts["pid"])
        await_end(launched, label, groups)


def require_host_image(request: InstanceRequest) -> None:
    """Check that the image is host.

    Raises UnavailableError for any other image.
    """
    if request.environment.image != HOST:
        raise request.refused(
            f"backend {request.environment.backend} has image host only, not {request.environment.image}",
            "image: host",
        )


def require_fitting(request: InstanceRequest) -> None:
    """Check that the image has a tree, that the seat matches the attachment (require_seat()), and that the
    host name is not too long (RFC 1035).

    Raises UnavailableError if one of these checks fails.
    """
    if request.tree == Path("/"):
        require_host_image(request)
    require_seat(request)
    if len(request.hostname) > LONGEST_HOSTNAME:
        raise UnavailableError(
            f"host name {request.hostname} is longer than {LONGEST_HOSTNAME} characters",
            remedy="give the environment a shorter name",
        )


def require_root(host: Host, request: InstanceRequest) -> None:
    """Check that nearmetal runs as root.

    Raises UnavailableError if it does not.
    """
    if not host.is_root():
        raise request.refused(
            f"backend {request.environment.backend} needs root",
            "run as root, or take namespaces or bubblewrap",
        )


def require_seat(request: InstanceRequest) -> None:
    """Check that the request has a seat exactly if its attachment needs one. Otherwise a network would be
    measured that is not the one of the study.

    Raises UnavailableError if it does not, or if the attachment is for virtual machines only.
    """
    attachment = request.environment.attachment
    if attachment.of_guests:
        raise request.refused(
            f"attachment {attachment.value} is for virtual machines only", "attachment: macvlan, or none"
        )
    if attachment.seated != (request.seat is not None):
        needs = "needs an address on a network" if request.seat is None else "takes no address on a network"
        raise request.refused(
            f"attachment {attachment.value} {needs}",
            "host, loopback and none take no address; all others need one for each instance",
        )


def all_binds(tools: Tools, request: InstanceRequest, *own: Path) -> tuple[Bind, ...]:
    """Return everything that is to be mounted in an instance, in the order of mounting: the binds and the
    views of the request, the directory of the tools, which is read-only, and further directories at the same
    path. Links are followed on the machine, because they may lead elsewhere inside.

    Of two with the same target the later one counts. A directory whose target lies inside another one's is
    mounted after it. Its mount point is made in the other's source if it is missing.

    Raises RunError if a source does not exist, or a mount point cannot be made. Some container programs would
    create the source.
    """
    binds: dict[Path, Bind] = {}
    for bind in (*(Bind(p, p) for p in (*request.binds, *own)), *request.views):
        target = bind.target.resolve()
        binds[target] = Bind(bind.source.resolve(), target)
    # The machine runs the tools too, so they are read-only inside.
    directory = tools.directory.resolve()
    binds.pop(directory, None)
    around = innermost(binds.values(), directory)
    if around is None or around.source != around.target:
        binds[directory] = Bind(directory, directory, writable=False)
    ordered = [binds[target] for target in sorted(binds)]
    for number, bind in enumerate(ordered):
        if not bind.source.exists():
            raise RunError(f"bind {bind.source}: No such file or directory")
        if (outer := innermost(ordered[:number], bind.target)) is not None:
            # An instance may have planted links in the other's source before.
            inside, point = UntrustedDirectory(outer.source), bind.target.relative_to(outer.target)
            for path in (*reversed(point.parents), point):
                try:
                    inside.make_directory(path)
                except OSError as e:
                    raise RunError(f"bind {bind.target}: {inside.path_to(path)}: {e.strerror}") from e
    return tuple(ordered)


def innermost(binds: Iterable[Bind], path: Path) -> Bind | None:
    """Return the bind through which an instance sees a path; None if it is below no target."""
    around = (b for b in binds if path.is_relative_to(b.target))
    return max(around, key=lambda b: len(b.target.parts), default=None)


def source_of(binds: Iterable[Bind], path: Path) -> Path:
    """Return the path on the machine of what an instance sees at a path."""
    around = innermost(binds, path)
    return path if around is None else around.source / path.relative_to(around.target)


def box_argv(
    tools: Tools,
    request: InstanceRequest,
    binds: Sequence[Bind],
    options: Sequence[str],
    groups: Sequence[Path],
    *,
    report_fd: int = REPORT_FD,
) -> list[str]:
    """Return the `nm-box start` command line of an instance: nm-init runs with an overlay over the tree of
    the request as its root directory.

    binds: from all_binds(). They replace those of the request.
    options: further options, which select its namespaces.
    groups: directories of its control groups.
    report_fd: descriptor on which nm-box and nm-init report (BOX_REPORTS).
    Raises UnavailableError if the image is not built, so that the request has no tree for it.
    """
    image = request.environment.image
    argv = [tools / "nm-box", "start", "--root-overlay", str(request.scratch), *options]
    if request.tree != Path("/"):
        argv += ["--tree", str(request.tree)]
    elif image != HOST:
        raise request.refused(f"image {image} is not built", f"nearmetal image build {image}")
    if request.user_namespace is not None:
        argv += ["--user-namespace", request.user_namespace]
    if request.layer is not None:
        argv += ["--layer", str(request.layer)]
    for group in groups:
        argv += ["--cgroup", str(group)]
    for bind in binds:
        argv += ["--bind" if bind.writable else "--bind-read-only", str(bind.source)]
        argv += ["--at", str(bind.target)] if bind.target != bind.source else []
    if request.cpus:
        argv += ["--cpus", ",".join(map(str, request.cpus))]
    init = [
        str(tools.directory.resolve() / "nm-init"),
        "--first-fd",
        str(report_fd),
        "--socket",
        init_name(request.label),
    ]
    return [*argv, "--report-fd", str(report_fd), "--", *init]


def box_phases(facts: Mapping[str, int]) -> dict[str, float]:
    """Return the duration of each step of a start in seconds, from the values of BOX_REPORTS."""
    return {
        "namespaces": seconds(facts["spawn"], facts["namespaces"]),
        "root": seconds(facts["namespaces"], facts["root"]),
        "exec": seconds(facts["root"], facts["first"]),
    }


def missing_tools(host: Host, tools: Tools) -> Unavailable | None:
    """Return Unavailable if nm-box or nm-init is missing; None if both exist."""
    for name in ("nm-box", "nm-init"):
        if host.which(tools / name) is None:
            return Unavailable(
                reason=f"{tools / name} is missing",
                remedy=rebuild_remedy(),
            )
    return None


def seconds(start: int, end: int) -> float:
    """Return the seconds between two readings of CLOCK_MONOTONIC in nanoseconds."""
    return (end - start) / 1e9
