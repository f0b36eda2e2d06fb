"""Load a study file as a Study, or raise StudyError with the position of every mistake. No program is
started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from ..errors import Mark, UsageError
from ..lifecycle import Method
from ..model.study import Environment, Placement, Study
from .catalog import Catalog
from .checks import (
    check_beside,
    check_environment,
    check_named_workloads,
    check_placement,
    check_real_nodes,
    on_machines,
)
from .design import check_arms, check_design, read_design
from .environments.images import check_images, read_images
from .environments.inside import check_inside
from .environments.own_settings import check_own, move_keys, settings_for
from .environments.storage import check_storage_references
from .made import frame_of
from .problems import Problems
from .tree import MAX_BYTES, TOO_LARGE, MapNode, entries_of, read_tree
from .validate import read, validate
from .workloads.applications import check_applications
from .workloads.entries import check_programs, read_workload, workload_pieces
from .workloads.methods import by_method, check_methods
from .workloads.npb import NasProgram


def load_study(path: FilePath, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """Return the study in a file.

    catalog: names that it may use; None for the frozen study of a results directory. Its names are not
        checked, since it may come from a machine with other backends.
    seed: seed if the file gives none.
    Raises StudyError if the file has mistakes.
    Raises UsageError if the file cannot be read.
    """
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
        problems.stop(Mark.after(before), f"not UTF-8 (byte 0x{raw[e.start]:02x}); save the file as UTF-8")
    return load_text(text, str(path), catalog, seed=seed)


def load_text(text: str, name: str, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """Return the study in a text, as load_study.

    name: name of the file in messages.
    Raises StudyError if the text has mistakes.
    """
    from .sections import TopSection

    problems = Problems(name)
    root = read_tree(text, problems)
    move_keys(root)
    top = validate(TopSection, root, (), problems)
    placements = {
        key: on_machines(read(Placement, node, ("placements", key), problems, name=key), root)
        for key, (_, node) in entries_of(root, "placements").items()
    }
    environments = {
        key: read(Environment, node, ("environments", key), problems, own=settings_for(node), name=key)
        for key, (_, node) in entries_of(root, "environments").items()
    }
    check_inside(root, environments, problems)
    images = read_images(root, problems)
    pieces = workload_pieces(root, problems)
    programs: dict[str, NasProgram] = {}
    methods: dict[str, tuple[Method, ...]] = {}
    workloads = {p.name: read_workload(p, catalog, programs, methods, problems) for p in pieces}
    _check_sections(root, placements, environments, catalog, problems)
    check_images(root, environments, images, catalog, problems)
    writers = frozenset[str]() if catalog is None else catalog.writers
    for key, (_, node) in entries_of(root, "environments").items():
        environment = environments[key]
        if environment is not None:
            check_named_workloads(environment, node, ("environments", key), tuple(workloads), problems)
            check_storage_references(
                environment, node, ("environments", key), workloads.values(), writers, problems
            )
    design_node = root.get("design")
    design = read_design(design_node, seed, problems)
    if design is not None and isinstance(design_node, MapNode):
        for key, (_, node) in entries_of(root, "environments").items():
            environment = environments[key]
            if environment is not None:
                check_beside(environment, node, ("environments", key), design.mode, catalog, problems)
        check_design(design, design_node, environments, workloads, catalog, problems)
        check_real_nodes(design, root, placements, environments, workloads, problems)
    frame = frame_of(root, top.name if top else "", placements, environments, design, problems)
    known = tuple(w for w in workloads.values() if w is not None)
    if frame is not None and catalog is not None:
        check_arms(frame, by_method(replace(frame, workloads=known), methods), root, problems)
    if frame is not None:
        check_programs(frame, pieces, programs, problems)
    if frame is not None and catalog is not None:
        check_applications(frame, pieces, workloads, catalog, problems)
    if problems.found or frame is None or top is None:
        raise problems.error()
    study = Study(
        name=top.name,
        question=top.question,
        environments=frame.environments,
        placements=frame.placements,
        workloads=known,
        design=frame.design,
        images=tuple(images.values()),
    )
    check_methods(study, methods, root, problems)
    if problems.found:
        raise problems.error()
    return by_method(study, methods)


def _check_sections(
    root: MapNode,
    placements: Mapping[str, Placement | None],
    environments: Mapping[str, Environment | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    for key, (_, node) in entries_of(root, "placements").items():
        place = placements[key]
        if place is not None:
            check_placement(place, node, ("placements", key), problems)
    for key, (_, node) in entries_of(root, "environments").items():
        environment = environments[key]
        if environment is not None:
            check_environment(environment, node, ("environments", key), placements, catalog, problems)
            if catalog is None or environment.backend in catalog.backends:
                check_own(environment, node, ("environments", key), problems)
