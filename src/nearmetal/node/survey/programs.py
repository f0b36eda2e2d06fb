"""Determines where an application runs, and whether its programs are installed there: on the machine, or in
the tree of an image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...errors import UnavailableError
from ...host import Host, MissingValue
from ...model.environments.image import HOST
from ...model.study import ApplicationWorkload, Arm, Environment, Study, Workload
from ...workloads.applications.contract import Needs, Place
from ...workloads.applications.registry import application, choices
from ..machine import Hardware

PROBE_SECONDS = 60.0

Find = Callable[[str], str | None]
"""Finds a program by name, or any file by its absolute path. Returns its path, or None."""


def place_of(
    workload: ApplicationWorkload, arm: Arm, study: Study, machine: Hardware, directory: Path
) -> Place:
    """Return the conditions under which an arm runs an application.

    The smallest memory per task of any arm is used for all arms, because all must do the same work, however
    their tasks are divided among instances.

    directory: working directory of the application.
    """
    takers = [a for a in study.arms() if a.environment.takes(workload.name)]
    of_task = [
        min(machine.memory // a.placement.instances, _own_memory(a.environment) or machine.memory)
        // a.placement.tasks
        for a in takers
    ]
    storage = arm.environment.storage
    return Place(
        nodes=arm.placement.nodes,
        instances=arm.placement.instances,
        tasks=arm.placement.tasks,
        directory=directory,
        storage=None if storage is None else directory / "storage",
        memory=min(of_task) * arm.placement.tasks,
        cpu_flags=machine.cpu_flags,
        rdma=machine.rdma,
    )


def two_ranks(machine: Hardware) -> Place:
    """Return a placement that suits most applications, to check whether the machine can run them at all."""
    here = Path("/")
    return Place(
        nodes=1,
        instances=1,
        tasks=2,
        directory=here,
        storage=here,
        memory=machine.memory,
        cpu_flags=machine.cpu_flags,
        rdma=machine.rdma,
    )


def problems_of(workload: ApplicationWorkload, study: Study, machine: Hardware) -> tuple[str, ...]:
    """Return why an application cannot run on arms of the study, one text for each cause."""
    known, given = application(workload.application), choices(workload)
    found: dict[str, dict[str, None]] = {}
    for arm in study.arms():
        if arm.environment.takes(workload.name):
            what = known.problem(given, place_of(workload, arm, study, machine, Path("/")))
            if what is not None:
                found.setdefault(what, {})[arm.placement.name] = None
    return tuple(f"{what} (placement {', '.join(places)})" for what, places in found.items())


def _own_memory(environment: Environment) -> int | None:
    """Return the memory limit of an instance in bytes; None if it is not limited."""
    return environment.limits.memory if environment.guest is None else environment.guest.memory


def runs_mpi(workload: Workload, study: Study) -> bool:
    """Return whether any arm starts the workload by mpirun."""
    if not isinstance(workload, ApplicationWorkload):
        return workload.mpi
    known, given = application(workload.application), choices(workload)
    places = [
        place_of(workload, arm, study, Hardware(memory=1 << 30), Path("/"))
        for arm in study.arms()
        if arm.environment.takes(workload.name)
    ]
    return any(known.command(given, place).mpi for place in places if not known.problem(given, place))


def find_on(host: Host) -> Find:
    """Return a finder of programs on the machine itself. An absolute path may also name a library."""

    def find(name: str) -> str | None:
        there = name.startswith("/") and not isinstance(host.read(name), MissingValue)
        return host.which(name) or (name if there else None)

    return find


def lacking(needs: Needs, find: Find, host: Host | None = None) -> tuple[str, ...]:
    """Return the programs of an application that are missing, or what its probe did not find.

    find: finds programs at the place of the application.
    host: host on which the application's probe is run; None to run nothing.
    """
    missing = tuple(name for name in needs.programs if find(name) is None)
    if missing or not needs.probe or host is None:
        return missing
    return () if host.run(needs.probe, timeout=PROBE_SECONDS).ok else (needs.probed,)


def require_programs(study: Study, image: str, find: Find, host: Host | None = None) -> None:
    """Check that the programs of the applications that run in this image are present.

    find: finds programs in the image.
    host: as in lacking().

    Raises UnavailableError if one is missing.
    """
    takers = [e for e in study.environments if e.image == image]
    for w in study.applications:
        if not any(e.takes(w.name) for e in takers):
            continue
        needs = application(w.application).needs(choices(w))
        missing = lacking(needs, find, host)
        if missing:
            where = "not on this machine" if image == HOST else f"not in image {image}"
            raise UnavailableError(
                f"workload {w.name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} {where}",
                remedy=install_line(needs, image),
            )


def install_line(needs: Needs, image: str) -> str:
    """Return the remedy for a missing program, as a command or an instruction."""
    if needs.remedy:
        return needs.remedy
    if not needs.packages:
        return "name its path in the workload"
    packages = " ".join(needs.packages)
    if image == HOST:
        return f"sudo apt-get install {packages}"
    return f"add {packages} to the packages of image {image} and build it again"
