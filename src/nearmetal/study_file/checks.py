"""Checks that concern several keys: names that must exist, and combinations that must fit. Mistakes are added
to problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model.design import Estimand
from ..model.environments.image import HOST
from ..model.environments.placement import NodeKind
from ..model.keys import alternatives, did_you_mean
from ..model.study import (
    Attachment,
    Companion,
    Design,
    Environment,
    Limits,
    Mode,
    Pinning,
    Placement,
    Reach,
    Shared,
    TransportWish,
    Workload,
)
from .catalog import Catalog
from .environments.attachments import check_attachment
from .environments.backends import backends_that, capabilities_of, is_bare
from .environments.guest import check_guest
from .environments.storage import check_storage
from .problems import Path
from .tree import Located, MapNode


def usable(section: Environment, place: Placement) -> bool:
    """Return whether the instances of an environment on a placement can reach each other.

    On the host's own network they would all have the same address, and without a network they have none.
    One guest holds all instances inside it, so it is on one node. Each emulated node has a network of its
    own, and can hold one instance of a bare backend. A machine that is reached by ssh has one instance
    (check_placement).
    """
    if place.node.remote:
        return usable_on_machines(section)
    if place.nodes > 1 and section.inside is not None:
        return False
    if place.nodes > 1:
        bare = is_bare(section.backend) and place.instances == 1 and section.attachment is Attachment.HOST
        return bare or section.attachment.across_nodes(section.network.mode)
    return section.attachment.most_instances is None or place.instances <= section.attachment.most_instances


def on_machines(place: Placement | None, top: Located) -> Placement | None:
    """Return a placement, whose nodes are real machines if the design of the study has the key `nodes`."""
    design = top.get("design")
    nodes = None if design is None else design.get("nodes")
    named = nodes is not None and isinstance(nodes.node, MapNode)
    return replace(place, node_kind=NodeKind.MACHINE) if place is not None and named else place


BETWEEN_MACHINES = (
    Attachment.MACVLAN,
    Attachment.VXLAN,
    Attachment.VETH_BRIDGE,
    Attachment.VETH_ROUTED,
)
"""Attachments by which containers on different machines reach each other, in addition to the machines' own
network."""
NETWORK_OF_MACHINES = ("subnet", "mtu", "rto_min", "congestion_control")


def usable_on_machines(section: Environment) -> bool:
    """Return whether instances of an environment can be started on machines that are reached by ssh, and can
    reach each other there by its attachment."""
    can = capabilities_of(section.backend)
    able = can is None or can.stands_inside or can.bare
    joined = section.attachment in (Attachment.HOST, *BETWEEN_MACHINES)
    return able and joined and section.image == HOST and section.inside is None and section.guest is None


def check_real_nodes(
    design: Design,
    top: Located,
    placements: Mapping[str, Placement | None],
    environments: Mapping[str, Environment | None],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
) -> None:
    """Report the keys that a study cannot have if its nodes are machines that are reached by ssh.

    catalog: None for a frozen study, which may be older than some of these checks.
    """
    if design.nodes is None:
        return
    if design.reach is Reach.SSH:
        top.mistake(("design", "reach"), "the instances on machines are reached by an agent only")
    if design.instance_counters:
        what = "no counters are read on machines that are reached by ssh"
        top.mistake(("design", "instance_counters"), what)
    if catalog is not None and design.estimand is Estimand.ALIKE:
        top.mistake(("design", "estimand"), "results of placements over machines hold for these machines")
    for key, found in top.each("placements"):
        if placements[key] is not None and "link" in found.entries:
            found.mistake(("link",), "machines have links of their own", key=True)
    for key, section in environments.items():
        if section is None:
            continue
        at: Path = ("environments", key)
        what = ""
        if not usable_on_machines(section):
            bare = alternatives(backends_that(lambda c: c.bare))
            enclosed = alternatives(backends_that(lambda c: c.stands_inside))
            what = (
                f"has image: host, and backend {bare} with attachment: host, or "
                f"{enclosed} with attachment: host, {', '.join(BETWEEN_MACHINES)}"
            )
        elif unknown := sorted(set(section.network.requested()) - set(NETWORK_OF_MACHINES)):
            only = f"on machines, a network has {', '.join(NETWORK_OF_MACHINES)} only, not {unknown[0]}"
            top.mistake((*at, "network"), only, key=True)
        elif section.beside is not None or section.storage is not None or section.movable:
            what = "has neither beside nor storage nor movable"
        elif section.limits != Limits() or section.share:
            what = "has neither limits nor share"
        if what:
            top.mistake(at, f"on machines, an environment {what}", key=True)
    for key, workload in workloads.items():
        if workload is not None and (workload.event or workload.own_directory):
            what = "on machines, only kernels, and programs without a directory of their own, are measured"
            top.mistake(("workloads", key), what, key=True)


def reach_memory(section: Environment, place: Placement) -> bool:
    """Return whether the ranks on a placement can use the requested transport. Shared memory needs one
    instance, or several on one node that share the machine's PID and IPC namespaces."""
    alone = place.nodes * place.instances == 1
    shares = place.nodes == 1 and set(section.share).issuperset(Shared)
    return section.transport is not TransportWish.SHM or alone or shares


def check_environment(
    section: Environment,
    found: Located,
    placements: Mapping[str, Placement | None],
    catalog: Catalog | None,
) -> None:
    """Check the backend, the placements and all other keys of one environment that depend on them."""
    if catalog is not None and section.backend not in catalog.backends:
        what = f'unknown backend "{section.backend}"{did_you_mean(section.backend, catalog.backends)}'
        found.mistake(("backend",), what)
    can = capabilities_of(section.backend)
    unsure = found.unread("attachment")
    if not unsure:
        check_attachment(section, found)
    if section.extra_work and can is not None and not can.plants_work:
        planters = alternatives(backends_that(lambda c: c.plants_work))
        what = f'only the backend {planters} plants extra work, and this is "{section.backend}"'
        found.mistake(("extra_work",), what)
    if section.storage is not None:
        check_storage(section.storage, found)
    _check_share(section, found)
    if catalog is None or section.backend in catalog.backends:
        check_guest(section, found)
    seen: set[str] = set()
    for number, name in enumerate(section.placements):
        what = ""
        place = placements.get(name)
        if name not in placements:
            what = f'unknown placement "{name}"{did_you_mean(name, placements)}'
        elif name in seen:
            what = f'placement "{name}" given twice'
        elif place is not None and not unsure and not usable(section, place):
            what = (
                f'"{name}" has {place.nodes * place.instances} instances, which cannot reach each other by '
                f"attachment {section.attachment}; "
            )
            what += (
                "one guest holds them all, so it has one node"
                if section.inside is not None and place.nodes > 1
                else f"{section.backend} is the machine itself, which is one instance, on each emulated node "
                f"by attachment: {Attachment.HOST}"
                if is_bare(section.backend)
                else f"write attachment: {Attachment.HOST if place.node.remote else Attachment.VETH_BRIDGE}"
            )
        elif place is not None and not unsure and not reach_memory(section, place):
            what = (
                f'"{name}" has {place.nodes * place.instances} instances, and only those of one node, with '
                f"share: [{', '.join(Shared)}], share memory"
            )
        seen.add(name)
        if what:
            found.mistake(("placements", number), what)


def _check_share(section: Environment, found: Located) -> None:
    if section.share and is_bare(section.backend):
        found.mistake(
            ("share",), f"{section.backend} is the machine itself, and has no namespaces of its own"
        )
    elif len(set(section.share)) < len(section.share):
        found.mistake(("share",), "a namespace given twice")


def check_placement(section: Placement, found: Located) -> None:
    """Check that a placement names no CPUs or equally many for each rank, and that its other keys fit
    together."""
    ranks = section.nodes * section.instances * section.tasks
    nodes = f"{section.nodes} x " if section.nodes > 1 else ""
    if section.nodes == 1 and "link" in found.entries:
        found.mistake(
            ("link",), "one node has no link to others; write nodes: 2, or leave link out", key=True
        )
    if section.node.remote and section.instances > 1:
        what = "a machine holds one instance, because all on it would have its address; write instances: 1"
        found.mistake(("instances",), what)
    each = section.cpus_per_task
    if section.cpus and (len(section.cpus) % ranks or (each and len(section.cpus) != ranks * each)):
        of = f"of {each} CPUs " if each else ""
        what = (
            f"{len(section.cpus)} CPUs for {ranks} ranks {of}({nodes}{section.instances} x {section.tasks})"
        )
        found.mistake(("cpus",), what)
    elif (section.cpus or each) and section.pinning is Pinning.NONE:
        name = "cpus" if section.cpus else "cpus_per_task"
        what = f"pinning: none lets every rank use all CPUs; take {name} out, or write another pinning"
        found.mistake((name,), what, key=True)
    elif _cpu_twice(section) and not section.oversubscribe:
        found.mistake(
            ("cpus",),
            "a CPU given twice; two ranks on one CPU take turns, and MPI waits by spinning: "
            "write oversubscribe: true if that is what you want",
        )


def _cpu_twice(section: Placement) -> bool:
    """Return whether two ranks have the same CPU. Each of several machines has CPUs of its own."""
    own = max(1, len(section.cpus) // (section.nodes if section.node.remote else 1))
    parts = [section.cpus[first : first + own] for first in range(0, len(section.cpus), own)]
    return any(len(set(part)) < len(part) for part in parts)


def check_named_workloads(section: Environment, found: Located, workloads: Sequence[str]) -> None:
    for number, name in enumerate(section.workloads):
        at: Path = ("workloads", number)
        if name not in workloads:
            found.mistake(at, f'unknown workload "{name}"{did_you_mean(name, workloads)}')
        elif name in section.workloads[:number]:
            found.mistake(at, f'workload "{name}" given twice')


def check_beside(section: Environment, found: Located, mode: Mode, catalog: Catalog | None) -> None:
    """Check that the backend of a companion is known, and that the study uses mode plain, in which no other
    environment runs beside it."""
    if section.beside is None:
        return
    backend = section.beside.backend
    if backend is None:
        _check_lodger(section.beside, found)
    elif catalog is not None and backend not in catalog.backends:
        what = f'unknown backend "{backend}"{did_you_mean(backend, catalog.backends)}'
        found.mistake(("beside", "backend"), what)
    if mode is not Mode.PLAIN:
        what = (
            "in mode slices all environments run at once, and it would disturb the others; write mode: plain"
        )
        found.mistake(("beside",), what, key=True)


def _check_lodger(section: Companion, found: Located) -> None:
    """Check that a companion in an instance of the arm has neither limits nor CPUs of its own: those of the
    instance apply."""
    for key, given in (("limits", section.limits != Limits()), ("cpus", section.cpus)):
        if given:
            what = "without a backend of its own it runs in the environment's first instance; write backend"
            found.mistake(("beside", key), what, key=True)
