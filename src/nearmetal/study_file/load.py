"""Load a study file as a Study, or raise StudyError with the position of every mistake. No program is
started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from ..model.study import Design, Environment, Placement, Study
from .catalog import Catalog
from .checks import (
    check_beside,
    check_environment,
    check_named_workloads,
    check_placement,
    check_real_nodes,
    on_machines,
    reach_memory,
    usable,
)
from .design import check_arms, check_design, read_design
from .environments.images import check_images, read_images
from .environments.inside import check_inside, check_reach
from .environments.own_settings import check_own, move_keys, settings_for
from .environments.storage import check_storage_references
from .problems import Problems, read_text
from .tree import Located, MapNode, read_tree
from .validate import Kind, read, validate
from .workloads.applications import check_applications
from .workloads.entries import check_programs, read_workload, workload_pieces
from .workloads.methods import by_method, check_methods
from .workloads.npb import NasProgram


def load_study(path: FilePath, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """Return the study in a file.

    catalog: names that the study may use; None for the frozen study of a results directory, whose names are
        not checked, since it may come from a machine with other backends.
    seed: seed if the file gives none.

    Raises StudyError if the file has mistakes.
    Raises UsageError if the file cannot be read.
    """
    remedy = "name a study file; nearmetal init writes one to start from"
    text = read_text(path, Problems(str(path)), what="the study", remedy=remedy)
    return load_text(text, str(path), catalog, seed=seed)


def load_text(text: str, name: str, catalog: Catalog | None, *, seed: int | None = None) -> Study:
    """Return the study in a text. See load_study() for the other arguments.

    name: name of the file in messages.

    Raises StudyError if the text has mistakes.
    """
    from .sections import TopSection

    problems = Problems(name)
    root = read_tree(text, problems)
    top = Located(node=root, path=(), problems=problems)
    move_keys(top)
    head = validate(TopSection, top)
    placements = {
        key: on_machines(read(Placement, found, name=key), top) for key, found in top.each("placements")
    }
    environments = {
        key: read(Environment, found, own=settings_for(found.node), name=key)
        for key, found in top.each("environments")
    }
    check_inside(top, environments)
    images = read_images(top)
    pieces = workload_pieces(top)
    programs: dict[str, NasProgram] = {}
    workloads = {p.name: read_workload(p, catalog, programs) for p in pieces}
    for place, found in _read_entries(top, "placements", placements):
        check_placement(place, found)
    for environment, found in _read_entries(top, "environments", environments):
        check_environment(environment, found, placements, catalog)
        if catalog is None or environment.backend in catalog.backends:
            check_own(environment, found)
    check_images(top, environments, images, catalog)
    writers = frozenset[str]() if catalog is None else catalog.writers
    for environment, found in _read_entries(top, "environments", environments):
        check_named_workloads(environment, found, tuple(workloads))
        check_storage_references(environment, found, workloads.values(), writers)
    design_entry = top.get("design")
    design = None
    if design_entry is not None and isinstance(design_entry.node, MapNode):
        design = read_design(design_entry, seed)
    if design is not None and design_entry is not None:
        for environment, found in _read_entries(top, "environments", environments):
            check_beside(environment, found, design.mode, catalog)
        check_design(design, design_entry, environments, workloads, catalog)
        check_real_nodes(design, top, placements, environments, workloads, catalog)
        check_reach(design, top, environments)
    frame = _frame_of(top, head.name if head else "", placements, environments, design)
    known = tuple(w for w in workloads.values() if w is not None)
    if frame is not None:
        if catalog is not None:
            check_arms(frame, by_method(replace(frame, workloads=known)), top)
            check_applications(frame, pieces, workloads, catalog)
        check_programs(frame, pieces, programs)
    if problems.found or frame is None or head is None:
        raise problems.error()
    study = Study(
        name=head.name,
        question=head.question,
        environments=frame.environments,
        placements=frame.placements,
        workloads=known,
        design=frame.design,
        images=tuple(images.values()),
    )
    check_methods(study, top)
    problems.check()
    return by_method(study)


def _read_entries(
    top: Located, section: str, values: Mapping[str, Kind | None]
) -> Iterator[tuple[Kind, Located]]:
    """Yield the entries of a section that could be read, each with its value.

    values: of all entries, by key; None if an entry could not be read.
    """
    for key, found in top.each(section):
        value = values[key]
        if value is not None:
            yield value, found


def _frame_of(
    top: Located,
    name: str,
    placements: Mapping[str, Placement | None],
    environments: Mapping[str, Environment | None],
    design: Design | None,
) -> Study | None:
    """Return the study without its workloads; None if another section has mistakes or names something that
    does not exist."""
    known = {k: v for k, v in placements.items() if v is not None}
    sound = {k: v for k, v in environments.items() if v is not None}
    complete = len(known) == len(placements) and len(sound) == len(environments) and known and sound
    if design is None or not complete:
        return None
    if not design.baselines or any(n not in sound for n in design.baselines):
        return None
    built = []
    for key, section in sound.items():
        usual = tuple(n for n, p in known.items() if usable(section, p) and reach_memory(section, p))
        used = section.placements or usual
        if not used:
            what = f"attachment {section.attachment} can serve no placement; write attachment: veth-bridge"
            top.mistake(("environments", key), what, key=True)
        if not used or any(n not in known for n in used):
            return None
        around = section if section.inside is None else sound.get(section.inside, section)
        built.append(replace(section, image=around.image, guest=around.guest, placements=used))
    return Study(
        name=name,
        question="",
        environments=tuple(built),
        placements=tuple(known.values()),
        workloads=(),
        design=design,
    )
