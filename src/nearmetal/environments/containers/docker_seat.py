"""Lets Docker containers join a network namespace that nearmetal has made.

Docker can join only the network namespace of another container. Therefore a container without work is
started, which enters nearmetal's namespace, like the pause container of a Kubernetes pod. Other containers
then join the network of this container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ...host import Host, cgroups, runtime
from ...host.processes import labelled as processes
from ...model.environments.network import Seat
from ..contract import Bind, InstanceRequest, Tools
from ..program import FirstReport, first_report
from .docker_daemon import cgroup_driver, container
from .docker_image import look_at, skeleton_image
from .wrapped import mount_words

INSIDE = "/seat"
"""Path at which the container sees the network namespace that it enters."""


def taken(seat: Seat, hostname: str) -> str | None:
    """Return the name of the container that in_seat() runs for a seat and a host name; None if there is
    none."""
    return _taken.get((seat.netns, hostname))


@contextmanager
def in_seat(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[str]:
    """Run a container in the network namespace of a seat until exit. Yields its name, which is the label of
    the request.

    request: contains the seat, and the host name, which Docker gives to all containers in this network.

    Raises RunError, UnavailableError.
    """
    label, seat = request.label, request.seat
    assert seat is not None
    with ExitStack() as stack:
        parent = None
        if cgroup_driver(host) == "cgroupfs":
            parent = f"/{label}"
            stack.callback(lambda: cgroups.remove(cgroups.of_every_hierarchy(label)))
        state = stack.enter_context(runtime.scratch_directory(f"{label}-state"))
        inner = replace(request, scratch=state)
        report = stack.enter_context(first_report(tools, inner))
        image = skeleton_image(host, look_at(Path("/")), state)
        words = run_words(tools, request, report, image=image, parent=parent)
        stack.enter_context(container(host, tools, inner, report, words))
        _taken[seat.netns, request.hostname] = label
        stack.callback(_taken.pop, (seat.netns, request.hostname))
        yield label


def run_words(
    tools: Tools, request: InstanceRequest, report: FirstReport, *, image: str, parent: str | None
) -> list[str]:
    """Return the arguments of `docker run`, including the command inside, which enters the seat's network.

    image: name of the skeleton image.
    parent: path of the parent control group; None if the daemon's cgroup driver accepts none.
    """
    assert request.seat is not None
    words = ["run", "--rm", "--pull", "never", "--name", request.label]
    words += ["--hostname", request.hostname, "--network", "none"]
    # setns(2) needs this capability, and so does mounting a /sys of that network, which AppArmor's profile
    # forbids.
    words += ["--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"]
    words += ["--security-opt", "label=disable"]
    words += ["--env", f"{processes.LABEL_VARIABLE}={request.label}"]
    words += ["--cgroup-parent", parent] if parent is not None else []
    own = tools.directory.resolve()
    for bind in (
        Bind(own, own, writable=False),
        Bind(report.directory, report.directory),
        Bind(Path(request.seat.netns), Path(INSIDE), writable=False),
    ):
        words += mount_words(bind)
    return [*words, image, str(own / "nm-box"), "wrap", "--netns", INSIDE, "--", *report.argv]


_taken: dict[tuple[str, str], str] = {}
"""Names of the containers that in_seat() runs, by (path of the network namespace, host name)."""
