"""What no key can tell by itself: names that must exist, combinations that must fit. Adds to problems."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..model.image import HOST, ImageDefinition
from ..model.study import (
    STORAGE,
    Attachment,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    Mode,
    Pinning,
    Shared,
    StorageKind,
    Study,
    TransportWish,
    Workload,
)
from .attachments import check_network
from .catalog import COMMAND, Catalog, did_you_mean
from .images import SECTION as IMAGES
from .npb import Program, misfits
from .problems import Path, Problems
from .sweep import Piece
from .tree import MapNode, Node, mark_of
from .validate import broken

if TYPE_CHECKING:
    from .sections import (
        CommandSection,
        DesignSection,
        EnvironmentSection,
        MetricSection,
        PlacementSection,
        StorageSection,
    )

#: The backend that plants extra work.
HANDICAP = "handicap"
#: Backends that are the machine itself, with no network but its own.
BARE = ("native", HANDICAP)
#: Fewer blocks have no 95 % interval at all (2/2^n > 5 % for n < 6).
LEAST_BLOCKS = 6


def usable(section: EnvironmentSection, place: PlacementSection) -> bool:
    """Whether the instances of an environment on a placement can reach each other: on the host's own network
    they would share one address, without one they have none. Emulated nodes have a network each, and a bare
    one is one instance."""
    if place.nodes > 1:
        bare = section.backend in BARE and place.instances == 1 and section.attachment is Attachment.HOST
        return bare or section.attachment is Attachment.VETH_BRIDGE
    return section.attachment.most_instances is None or place.instances <= section.attachment.most_instances


def reach_memory(section: EnvironmentSection, place: PlacementSection) -> bool:
    """Whether the ranks on a placement can talk by the transport that was asked for: shared memory takes one
    instance, or several of one node that see each other's processes and segments."""
    alone = place.nodes * place.instances == 1
    shares = place.nodes == 1 and set(section.share).issuperset(Shared)
    return section.transport is not TransportWish.SHM or alone or shares


def check_environment(
    section: EnvironmentSection,
    node: Node,
    path: Path,
    placements: Mapping[str, PlacementSection | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """Backend, placements and planted work of one environment."""
    if catalog is not None and section.backend not in catalog.backends:
        what = f'unknown backend "{section.backend}"{did_you_mean(section.backend, catalog.backends)}'
        problems.add(mark_of(node, ("backend",)), (*path, "backend"), what)
    if section.backend in BARE and section.attachment not in (Attachment.HOST, Attachment.LOOPBACK):
        what = f"{section.backend} is the machine itself; write attachment: host, or loopback for TCP"
        problems.add(mark_of(node, ("attachment",)), (*path, "attachment"), what)
    elif not broken(section, node, "attachment"):
        check_network(section, node, path, problems)
    if section.extra_work and section.backend != HANDICAP:
        what = f'only the backend {HANDICAP} plants extra work, and this is "{section.backend}"'
        problems.add(mark_of(node, ("extra_work",)), (*path, "extra_work"), what)
    if section.storage is not None:
        check_storage(section.storage, node, path, problems)
    _check_share(section, node, path, problems)
    unsure = broken(section, node, "attachment")
    seen: set[str] = set()
    for number, name in enumerate(section.placements or ()):
        at: Path = ("placements", number)
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
                f"{section.backend} is the machine itself, which is one instance, on each emulated node "
                f"by attachment: {Attachment.HOST}"
                if section.backend in BARE
                else f"write attachment: {Attachment.VETH_BRIDGE}"
            )
        elif place is not None and not unsure and not reach_memory(section, place):
            what = (
                f'"{name}" has {place.nodes * place.instances} instances, and only those of one node, with '
                f"share: [{', '.join(Shared)}], share memory"
            )
        seen.add(name)
        if what:
            problems.add(mark_of(node, at), path + at, what)


def _check_share(section: EnvironmentSection, node: Node, path: Path, problems: Problems) -> None:
    at: Path = ("share",)
    if section.share and section.backend in BARE:
        what = f"{section.backend} is the machine itself, and has no namespaces of its own"
        problems.add(mark_of(node, at), path + at, what)
    elif len(set(section.share)) < len(section.share):
        problems.add(mark_of(node, at), path + at, "a namespace given twice")


#: By kind of storage: the keys that it must have, and those that it may have.
_STORAGE_KEYS: Mapping[StorageKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    StorageKind.OVERLAY: ((), ()),
    StorageKind.BIND: (("path",), ()),
    StorageKind.TMPFS: ((), ("size",)),
    StorageKind.LOOP: (("size",), ("path",)),
    StorageKind.BLOCK: (("path",), ("overwrite",)),
    StorageKind.NFS: (("path",), ()),
}


def check_storage(section: StorageSection, node: Node, path: Path, problems: Problems) -> None:
    """The keys that belong to its kind, and a path that can be one."""
    must, may = _STORAGE_KEYS[section.kind]
    storage = node.get("storage") if isinstance(node, MapNode) else None
    given = storage.entries if isinstance(storage, MapNode) else {}
    for key in given:
        if key in ("path", "size", "overwrite") and key not in (*must, *may):
            at: Path = ("storage", key)
            problems.add(mark_of(node, at, key=True), path + at, f"storage {section.kind} has no {key}")
    for key in must:
        if key not in given:
            at = ("storage",)
            problems.add(mark_of(node, at, key=True), path + at, f"storage {section.kind} needs its {key}")
    if section.path is not None and "path" in (*must, *may):
        export = section.kind is StorageKind.NFS
        if not re.fullmatch(r"[^/\s,]+:/[^\s,]*" if export else r"/[^,\n]*", section.path):
            wanted = "server:/directory" if export else "an absolute path without a comma"
            at = ("storage", "path")
            problems.add(mark_of(node, at), path + at, f'"{section.path[:60]}" is not {wanted}')


def check_images(
    root: MapNode,
    environments: Mapping[str, EnvironmentSection | None],
    images: Mapping[str, ImageDefinition],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """The image of every environment is one that stands."""
    node = root.get(IMAGES)
    entries = node.entries if isinstance(node, MapNode) else {}
    if HOST in entries:
        what = f"{HOST} is the machine's own root; call it something else"
        problems.add(mark_of(root, (IMAGES, HOST), key=True), (IMAGES, HOST), what)
    for name, section in environments.items():
        if section is None or section.image == HOST or catalog is None:
            continue
        if section.image in entries and section.image not in images:
            continue  # its mistakes are told where it is defined
        what = catalog.no_image(section.image, images, problems.file) or ""
        if what:
            at: Path = ("environments", name, "image")
            problems.add(mark_of(root, at), at, what)


def check_placement(section: PlacementSection, node: Node, path: Path, problems: Problems) -> None:
    """One CPU for each rank, or none named."""
    ranks = section.nodes * section.instances * section.tasks
    nodes = f"{section.nodes} x " if section.nodes > 1 else ""
    if section.nodes == 1 and isinstance(node, MapNode) and "link" in node.entries:
        what = "one node has no link to others; write nodes: 2, or leave link out"
        problems.add(mark_of(node, ("link",), key=True), (*path, "link"), what)
    if section.cpus and len(section.cpus) != ranks:
        what = f"{len(section.cpus)} CPUs for {ranks} ranks ({nodes}{section.instances} x {section.tasks})"
        problems.add(mark_of(node, ("cpus",)), (*path, "cpus"), what)
    elif section.cpus and section.pinning is Pinning.NONE:
        what = "pinning: none lets every rank use all CPUs; take cpus out, or write another pinning"
        problems.add(mark_of(node, ("cpus",), key=True), (*path, "cpus"), what)
    elif len(set(section.cpus)) < len(section.cpus) and not section.oversubscribe:
        what = (
            "a CPU given twice; two ranks on one CPU take turns, and MPI waits by spinning: "
            "write oversubscribe: true if that is what you want"
        )
        problems.add(mark_of(node, ("cpus",)), (*path, "cpus"), what)


def check_kernel(
    kernel: str, metrics: Iterable[str], piece: Piece, catalog: Catalog, problems: Problems
) -> None:
    """The kernel and the metrics asked of it."""
    if kernel not in catalog.kernels:
        what = f'unknown kernel "{kernel}"{did_you_mean(kernel, catalog.kernels)}'
        problems.add(mark_of(piece.node, ("kernel",)), (*piece.path, "kernel"), what)
        return
    known = catalog.metrics.get(kernel)
    seen: set[str] = set()
    for number, metric in enumerate(metrics):
        at: Path = ("metrics", number)
        if known is not None and metric not in known:
            what = f'{kernel} has no metric "{metric}"{did_you_mean(metric, known)}'
            problems.add(mark_of(piece.node, at), piece.path + at, what)
        elif metric in seen:
            problems.add(mark_of(piece.node, at), piece.path + at, f'"{metric}" given twice')
        seen.add(metric)


def check_command(section: CommandSection, piece: Piece, problems: Problems) -> None:
    """A program, and one way to find each number in its output."""
    if not section.command[0].strip():
        at: Path = ("command", 0)
        problems.add(mark_of(piece.node, at), piece.path + at, "an empty text is no program")
    if section.mpi and section.per_task:
        at = ("per_task",)
        what = "mpi starts a process for each task already; one of mpi and per_task"
        problems.add(mark_of(piece.node, at, key=True), piece.path + at, what)
    for name, metric in section.metrics.items():
        _check_metric(metric, piece.node, piece.path, ("metrics", name), problems)
    if section.verify is not None:
        at = ("verify", "regex")
        one = section.verify.expected is not None
        what = regex_mistake(section.verify.regex, "what is expected" if one else None)
        if what:
            problems.add(mark_of(piece.node, at), piece.path + at, what)


def check_programs(
    frame: Study, pieces: Iterable[Piece], programs: Mapping[str, Program], problems: Problems
) -> None:
    """Every NAS benchmark runs on the ranks of the placements that it is run on."""
    at: Path = ("npb", "benchmark")
    for piece in pieces:
        program = programs.get(piece.name)
        for what in misfits(piece.name, program, frame.arms()) if program is not None else ():
            problems.add(mark_of(piece.node, at), piece.path + at, what)


def _check_metric(metric: MetricSection, node: Node, path: Path, at: Path, problems: Problems) -> None:
    if (metric.regex is None) == (metric.json_path is None):
        many = "both stand here" if metric.regex is not None else "neither stands here"
        mark = mark_of(node, at, key=True)
        problems.add(mark, path + at, f"one of regex and json_path finds the number; {many}")
    if metric.regex is not None:
        what = regex_mistake(metric.regex, "the number")
        if what:
            problems.add(mark_of(node, (*at, "regex")), (*path, *at, "regex"), what)


def regex_mistake(expression: str, held: str | None) -> str:
    """What is wrong with a regular expression; '' where nothing is. held: what its one group must hold, None
    where groups do not matter."""
    if len(expression) > 1000:
        return "longer than 1000 characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Python warns of notations that later versions may read otherwise
            groups = re.compile(expression).groups
    except re.error as e:
        return f"not a regular expression: {e}"
    except (OverflowError, RecursionError) as e:
        return f"not a usable regular expression: {e}"
    if held is None or groups == 1:
        return ""
    return f"{groups} groups; one group ( ) must hold {held}, others are written (?: )"


def check_design(
    section: DesignSection,
    node: Node,
    environments: Iterable[str],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """Baselines, numbers of blocks and primary metrics."""
    path: Path = ("design",)
    names = tuple(environments)
    if section.baseline is not None and section.baselines is not None:
        problems.add(
            mark_of(node, ("baselines",), key=True), path, "baseline and baselines: one of them is enough"
        )
    elif not baselines_of(section) and not any(broken(section, node, k) for k in ("baseline", "baselines")):
        problems.add(node.mark, path, f"no baseline; write baseline: {names[0] if names else 'native'}")
    for at, name in baselines_of(section):
        if name not in names:
            what = f'no environment is called "{name}"{did_you_mean(name, names)}'
            problems.add(mark_of(node, at), path + at, what)
    if section.baselines is not None and len(set(section.baselines)) < len(section.baselines):
        problems.add(mark_of(node, ("baselines",)), (*path, "baselines"), "an environment given twice")
    if catalog is not None:
        _check_blocks(section, node, problems)
    _check_primary(section, node, workloads, catalog, problems)


def baselines_of(section: DesignSection) -> tuple[tuple[Path, str], ...]:
    """Each baseline with where it stands below `design`."""
    if section.baselines is not None:
        return tuple((("baselines", i), name) for i, name in enumerate(section.baselines))
    return ((("baseline",), section.baseline),) if section.baseline is not None else ()


def _check_blocks(section: DesignSection, node: Node, problems: Problems) -> None:
    if any(broken(section, node, key) for key in ("min_blocks", "max_blocks", "expected_blocks")):
        return
    if section.min_blocks < LEAST_BLOCKS:
        what = f"{section.min_blocks} blocks carry no interval; write {LEAST_BLOCKS} or more (12 is usual)"
        problems.add(mark_of(node, ("min_blocks",)), ("design", "min_blocks"), what)
    for key, value, low in (
        ("max_blocks", section.max_blocks, section.min_blocks),
        ("expected_blocks", section.expected_blocks, section.min_blocks),
    ):
        if value is not None and value < low:
            what = f"{value} is less than min_blocks, {low}: there would be no verdict"
            problems.add(mark_of(node, (key,)), ("design", key), what)
    if section.expected_blocks is not None and section.expected_blocks > section.max_blocks:
        what = f"{section.expected_blocks} is more than max_blocks, {section.max_blocks}"
        problems.add(mark_of(node, ("expected_blocks",)), ("design", "expected_blocks"), what)


def check_named_workloads(
    section: EnvironmentSection, node: Node, path: Path, workloads: Sequence[str], problems: Problems
) -> None:
    """The workloads that an environment runs, where it does not run all."""
    for number, name in enumerate(section.workloads):
        at: Path = ("workloads", number)
        what = ""
        if name not in workloads:
            what = f'unknown workload "{name}"{did_you_mean(name, workloads)}'
        elif name in section.workloads[:number]:
            what = f'workload "{name}" given twice'
        if what:
            problems.add(mark_of(node, at), path + at, what)


def check_beside(
    section: EnvironmentSection,
    node: Node,
    path: Path,
    mode: Mode,
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """The backend of a companion, and that its arm has the machine to itself."""
    if section.beside is None:
        return
    at: Path = ("beside", "backend")
    if catalog is not None and section.beside.backend not in catalog.backends:
        what = f'unknown backend "{section.beside.backend}"'
        what += did_you_mean(section.beside.backend, catalog.backends)
        problems.add(mark_of(node, at), path + at, what)
    if mode is not Mode.PLAIN:
        at = ("beside",)
        what = "in mode slices all arms stand at once, and it would disturb the others; write mode: plain"
        problems.add(mark_of(node, at, key=True), path + at, what)


def check_told_storage(
    section: EnvironmentSection,
    node: Node,
    path: Path,
    workloads: Iterable[Workload | None],
    problems: Problems,
) -> None:
    """An environment has storage where a program that it runs is told of some."""
    if section.storage is not None or broken(section, node, "storage"):
        return
    for w in workloads:
        taken = not section.workloads or (w is not None and w.name in section.workloads)
        if taken and isinstance(w, CommandWorkload) and any(STORAGE in token for token in w.argv):
            what = f'"{w.name}" is told of storage ({STORAGE}); write storage: {{kind: overlay}}, or another'
            problems.add(mark_of(node, ()), path, what)
            return


def _check_primary(
    section: DesignSection,
    node: Node,
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    seen: set[str] = set()
    for number, text in enumerate(section.primary):
        at: Path = ("primary", number)
        name, dot, metric = text.partition(".")
        what = ""
        if not dot or not metric:
            what = f'"{text[:60]}": write workload.metric, such as cg.rate'
        elif text in seen:
            what = f'"{text[:60]}" given twice'
        elif name not in workloads:
            what = f'no workload is called "{name[:60]}"{did_you_mean(name, workloads)}'
        else:
            workload = workloads[name]
            known = metrics_of(workload, catalog) if workload is not None else ()
            if known and metric not in known:
                what = f'workload "{name}" has no metric "{metric[:60]}"{did_you_mean(metric, known)}'
        seen.add(text)
        if what:
            problems.add(mark_of(node, at), ("design", *at), what)


def metrics_of(workload: Workload, catalog: Catalog | None) -> tuple[str, ...]:
    """The metrics that a workload will have; empty where that is not known."""
    known = catalog.metrics if catalog is not None else {}
    match workload:
        case KernelWorkload():
            return workload.metrics or known.get(workload.kernel, ())
        case CommandWorkload():
            always = known.get(COMMAND)
            if always is None:
                return ()
            more = ("instance_wall",) if workload.per_task else ()
            return (*always, *more, *(m.name for m in workload.metrics))
        case EventSubject():
            return known.get(str(workload.event), ())


def check_arms(frame: Study, root: MapNode, problems: Problems) -> None:
    """Every arm has something to be compared with, and every baseline something that is compared with it.

    frame: the study, its workloads may be missing.
    """
    first, *further = frame.design.baselines
    for arm in frame.arms():
        if arm.environment.name != first and frame.baseline_arm(first, arm) is None:
            at: Path = ("environments", arm.environment.name, "placements")
            what = (
                f'"{arm.placement.name}" has {arm.placement.ranks} ranks, and the baseline "{first}" '
                "has no placement with as many; there is nothing to compare it with"
            )
            problems.add(mark_of(root, at), at, what)
    used = {c.baseline for c in frame.comparisons()}
    own = {a.name: a.environment.name for a in frame.arms()}
    for number, name in enumerate(further, 1):
        if name not in {own[u] for u in used}:
            at = ("design", "baselines", number)
            what = f'nothing is compared with "{name}": no other arm has as many ranks and the same transport'
            problems.add(mark_of(root, at), at, what)
