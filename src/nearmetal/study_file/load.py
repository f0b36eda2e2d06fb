"""A study file -> Study, or StudyError with every mistake at its place. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..model.network import NetworkSettings
from ..model.study import (
    CommandWorkload,
    Companion,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Limits,
    MetricSpec,
    NodeLink,
    Placement,
    Storage,
    Study,
    VerifySpec,
    Workload,
)
from .catalog import Catalog
from .checks import (
    baselines_of,
    check_arms,
    check_beside,
    check_command,
    check_design,
    check_environment,
    check_images,
    check_kernel,
    check_named_workloads,
    check_placement,
    check_programs,
    check_told_storage,
    reach_memory,
    usable,
)
from .images import read_images
from .kernels import read_params
from .npb import Program, find_program, npb_command
from .problems import Mark, Path, Problems
from .sweep import Piece, expand
from .tree import MAX_BYTES, TOO_LARGE, MapNode, Node, mark_of, read_tree
from .validate import broken, validate

if TYPE_CHECKING:
    from .sections import (
        BesideSection,
        DesignSection,
        EnvironmentSection,
        LimitsSection,
        NetworkSection,
        PlacementSection,
        StorageSection,
    )


def load_study(path: FilePath, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """The study in a file. catalog: what it may name; None for the frozen study of a results directory, which
    may come from a machine with other backends: its names are taken as they stand. seed: used where the file
    gives none. Raises StudyError (mistakes in the file), UsageError (no such file)."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as e:
        raise UsageError(
            f"cannot read the study: {e.strerror or e}",
            where=str(path),
            remedy="name a study file; nearmetal init writes one to start from",
        ) from e
    problems = Problems(str(path))
    if len(raw) > MAX_BYTES:
        problems.stop(Mark(1, 1), TOO_LARGE)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        before = raw[: e.start].decode("utf-8-sig", errors="replace")
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        problems.stop(mark, f"not UTF-8 (byte 0x{raw[e.start]:02x}); save the file as UTF-8")
    return load_text(text, str(path), catalog, seed=seed)


def load_text(text: str, name: str, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """The study in a text; name: what messages call it. Otherwise as load_study. Raises StudyError."""
    from .sections import DesignSection, EnvironmentSection, PlacementSection, TopSection

    problems = Problems(name)
    root = read_tree(text, problems)
    top = validate(TopSection, root, (), problems)
    placements = {
        key: validate(PlacementSection, node, ("placements", key), problems)
        for key, (_, node) in _entries(root, "placements").items()
    }
    environments = {
        key: validate(EnvironmentSection, node, ("environments", key), problems)
        for key, (_, node) in _entries(root, "environments").items()
    }
    images = read_images(root, problems)
    pieces = _pieces(root, problems)
    programs: dict[str, Program] = {}
    workloads = {p.name: _workload(p, catalog, programs, problems) for p in pieces}
    _check_sections(root, placements, environments, catalog, problems)
    check_images(root, environments, images, catalog, problems)
    for key, (_, node) in _entries(root, "environments").items():
        environment = environments[key]
        if environment is not None:
            check_named_workloads(environment, node, ("environments", key), tuple(workloads), problems)
            check_told_storage(environment, node, ("environments", key), workloads.values(), problems)
    design_node = root.get("design")
    design = (
        validate(DesignSection, design_node, ("design",), problems)
        if isinstance(design_node, MapNode)
        else None
    )
    if design is not None and design_node is not None:
        for key, (_, node) in _entries(root, "environments").items():
            environment = environments[key]
            if environment is not None:
                check_beside(environment, node, ("environments", key), design.mode, catalog, problems)
        check_design(design, design_node, environments, workloads, catalog, problems)
        if design.seed is None and seed is None and not broken(design, design_node, "seed"):
            problems.add(design_node.mark, ("design",), "no seed; write seed: 1, or let the command draw one")
    frame = _frame(root, top.name if top else "", placements, environments, design, seed, problems)
    if frame is not None and catalog is not None:
        check_arms(frame, root, problems)
    if frame is not None:
        check_programs(frame, pieces, programs, problems)
    if problems.found or frame is None or top is None:
        raise problems.error()
    return Study(
        name=top.name,
        question=top.question,
        environments=frame.environments,
        placements=frame.placements,
        workloads=tuple(w for w in workloads.values() if w is not None),
        design=frame.design,
        images=tuple(images.values()),
    )


def _entries(root: MapNode, section: str) -> Mapping[str, tuple[Mark, Node]]:
    node = root.get(section)
    return node.entries if isinstance(node, MapNode) else {}


def _check_sections(
    root: MapNode,
    placements: Mapping[str, PlacementSection | None],
    environments: Mapping[str, EnvironmentSection | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    for key, (_, node) in _entries(root, "placements").items():
        place = placements[key]
        if place is not None:
            check_placement(place, node, ("placements", key), problems)
    for key, (_, node) in _entries(root, "environments").items():
        environment = environments[key]
        if environment is not None:
            check_environment(environment, node, ("environments", key), placements, catalog, problems)


def _pieces(root: MapNode, problems: Problems) -> tuple[Piece, ...]:
    """All workloads, sweeps written out; of two with one name the first."""
    out: dict[str, Piece] = {}
    for name, (mark, node) in _entries(root, "workloads").items():
        for piece in expand(name, mark, node, problems):
            if piece.name in out:
                problems.add(mark, ("workloads", name), f'the sweep makes a second workload "{piece.name}"')
            else:
                out[piece.name] = piece
    return tuple(out.values())


_KINDS = ("kernel", "command", "npb", "subject")


def _workload(
    piece: Piece, catalog: Catalog | None, programs: dict[str, Program], problems: Problems
) -> Workload | None:
    """None, and its mistakes in problems, where it does not fit; programs: takes the binary of an npb."""
    from .sections import EventSection

    here = [k for k in piece.node.entries if k in _KINDS] if isinstance(piece.node, MapNode) else []
    if not here:
        what = "a workload has one of kernel: stream, command: [program], npb: {bin: …} or subject: start"
        problems.add(piece.mark, piece.path, what)
        return None
    if len(here) > 1:
        mark = mark_of(piece.node, (here[1],), key=True)
        problems.add(mark, piece.path, f"{' and '.join(here)}: a workload is one of them")
        return None
    if here[0] == "kernel":
        return _kernel(piece, catalog, problems)
    if here[0] == "command":
        return _command(piece, problems)
    if here[0] == "npb":
        return _npb(piece, programs, problems)
    section = validate(EventSection, piece.node, piece.path, problems)
    if section is None:
        return None
    return EventSubject(name=piece.name, event=section.subject, count=section.count)


def _kernel(piece: Piece, catalog: Catalog | None, problems: Problems) -> KernelWorkload | None:
    from .sections import KernelSection

    before = len(problems.found)
    section = validate(KernelSection, piece.node, piece.path, problems)
    if section is None or not isinstance(piece.node, MapNode):
        return None
    if catalog is not None:
        check_kernel(section.kernel, section.metrics or (), piece, catalog, problems)
    names = tuple(section.model_extra or ())
    params = read_params(section.kernel, piece.node, names, piece.path, catalog, problems)
    if len(problems.found) > before:
        return None
    return KernelWorkload(
        name=piece.name,
        kernel=section.kernel,
        params=params,
        pages=section.pages,
        metrics=tuple(section.metrics or ()),
    )


def _command(piece: Piece, problems: Problems) -> CommandWorkload | None:
    from .sections import CommandSection

    before = len(problems.found)
    section = validate(CommandSection, piece.node, piece.path, problems)
    if section is None:
        return None
    check_command(section, piece, problems)
    if len(problems.found) > before:
        return None
    verify = section.verify
    return CommandWorkload(
        name=piece.name,
        argv=tuple(section.command),
        mpi=section.mpi,
        per_task=section.per_task,
        env=dict(section.env),
        metrics=tuple(
            MetricSpec(
                name=name,
                unit=m.unit,
                better=m.better,
                regex=m.regex,
                json_path=m.json_path,
                scale=m.scale,
            )
            for name, m in section.metrics.items()
        ),
        verify=VerifySpec(regex=verify.regex, expected=verify.expected) if verify is not None else None,
        time_limit=section.time_limit,
    )


def _npb(piece: Piece, programs: dict[str, Program], problems: Problems) -> CommandWorkload | None:
    from .sections import NpbWorkloadSection

    before = len(problems.found)
    section = validate(NpbWorkloadSection, piece.node, piece.path, problems)
    if section is None or len(problems.found) > before:
        return None
    npb = section.npb
    at: Path = ("npb", "bin")
    directory = FilePath(npb.bin).absolute()  # a run may be resumed from elsewhere
    try:
        program = find_program(directory, npb.benchmark, npb.size)
    except OSError as e:
        what = f"{directory} cannot be read: {e.strerror or e}"
        problems.add(mark_of(piece.node, at), piece.path + at, what)
        return None
    if program is None:
        at = ("npb", "benchmark")
        name = f"{npb.benchmark}.{npb.size}"
        what = f"neither {name}.x nor {name}.<number of ranks> is in {directory}"
        problems.add(mark_of(piece.node, at), piece.path + at, what)
        return None
    programs[piece.name] = program
    return npb_command(piece.name, program, env=dict(section.env), time_limit=section.time_limit)


def _frame(
    root: MapNode,
    name: str,
    placements: Mapping[str, PlacementSection | None],
    environments: Mapping[str, EnvironmentSection | None],
    design: DesignSection | None,
    seed: int | None,
    problems: Problems,
) -> Study | None:
    """The study without its workloads; None as long as a name in it leads nowhere."""
    known = {k: v for k, v in placements.items() if v is not None}
    sound = {k: v for k, v in environments.items() if v is not None}
    if (
        design is None
        or len(known) < len(placements)
        or len(sound) < len(environments)
        or not known
        or not sound
    ):
        return None
    names = tuple(n for _, n in baselines_of(design))
    if not names or any(n not in sound for n in names):
        return None
    built = []
    for key, section in sound.items():
        usual = tuple(n for n, p in known.items() if usable(section, p) and reach_memory(section, p))
        used = tuple(section.placements) if section.placements is not None else usual
        if not used:
            at: Path = ("environments", key)
            what = f"attachment {section.attachment} can serve no placement; write attachment: veth-bridge"
            problems.add(mark_of(root, at, key=True), at, what)
        if not used or any(n not in known for n in used):
            return None
        built.append(_environment(key, section, used))
    final = design.seed if design.seed is not None else seed
    return Study(
        name=name,
        question="",
        environments=tuple(built),
        placements=tuple(
            Placement(
                name=key,
                nodes=p.nodes,
                instances=p.instances,
                tasks=p.tasks,
                cpus=tuple(p.cpus),
                link=NodeLink(rate=p.link.rate, delay=p.link.delay, queue=p.link.queue),
                pinning=p.pinning,
                oversubscribe=p.oversubscribe,
            )
            for key, p in known.items()
        ),
        workloads=(),
        design=_design(design, names, final if final is not None else 0),
    )


def _environment(name: str, section: EnvironmentSection, placements: tuple[str, ...]) -> Environment:
    return Environment(
        name=name,
        backend=section.backend,
        image=section.image,
        attachment=section.attachment,
        network=_network(section.network),
        limits=_limits(section.limits),
        storage=_storage(section.storage),
        beside=_beside(section.beside),
        placements=placements,
        workloads=tuple(section.workloads),
        transport=section.transport,
        share=tuple(section.share),
        extra_work=section.extra_work,
    )


def _limits(section: LimitsSection) -> Limits:
    return Limits(cpu_quota=section.cpu, cpu_shares=section.cpu_shares, memory=section.memory)


def _beside(section: BesideSection | None) -> Companion | None:
    if section is None:
        return None
    return Companion(
        backend=section.backend,
        argv=tuple(section.command),
        limits=_limits(section.limits),
        cpus=tuple(section.cpus),
    )


def _storage(section: StorageSection | None) -> Storage | None:
    if section is None:
        return None
    return Storage(kind=section.kind, path=section.path, size=section.size, overwrite=section.overwrite)


def _network(section: NetworkSection) -> NetworkSettings:
    offloads = section.offloads
    return NetworkSettings(
        mode=section.mode,
        devices=tuple(section.devices),
        subnet=section.subnet,
        mtu=section.mtu,
        rto_min=section.rto_min,
        congestion_control=section.congestion_control,
        rate=section.rate,
        queue_length=section.queue_length,
        tso=offloads.tso,
        gso=offloads.gso,
        gro=offloads.gro,
    )


def _design(section: DesignSection, baselines: tuple[str, ...], seed: int) -> Design:
    return Design(
        baselines=baselines,
        margin=section.margin,
        confidence=section.confidence,
        seed=seed,
        mode=section.mode,
        min_blocks=section.min_blocks,
        expected_blocks=section.expected_blocks,
        max_blocks=section.max_blocks,
        max_time=section.max_time,
        target_width=section.target_width,
        slices=section.slices,
        runs=section.runs,
        warm_up=section.warm_up,
        profile=section.profile,
        starts=section.starts,
        mpi=section.mpi,
        reach=section.reach,
        single_copy=section.single_copy,
        primary=tuple(section.primary),
    )
