"""Workloads that are applications: read their entries, and check that they fit the arms that run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...model.keys import did_you_mean
from ...model.study import ApplicationWorkload, Study, Workload
from ..catalog import Catalog
from ..problems import Path, Problems
from ..tree import MapNode, mark_of
from ..validate import validate
from .kernels import read_params
from .sweep import ExpandedWorkload


def read_application(
    piece: ExpandedWorkload, catalog: Catalog | None, problems: Problems
) -> ApplicationWorkload | None:
    """Return the workload of an entry; None if the entry has mistakes, which are added to problems."""
    from ..sections import ApplicationSection, made

    before = problems.added
    section = validate(ApplicationSection, piece.node, piece.path, problems)
    if section is None or not isinstance(piece.node, MapNode):
        return None
    workload: ApplicationWorkload = made(section, name=piece.name)
    application = workload.application
    entry = None if catalog is None else catalog.applications.get(application)
    if catalog is not None and entry is None:
        at: Path = ("application",)
        hint = did_you_mean(application, catalog.applications)
        what = f'unknown application "{application}"{hint}'
        problems.add(mark_of(piece.node, at), piece.path + at, what)
        return None
    params = read_params(
        application,
        piece.node,
        tuple(section.model_extra or ()),
        piece.path,
        None if entry is None else entry.parameters,
        (lambda _name, _value: None) if entry is None else entry.misfit,
        problems,
    )
    return None if problems.added > before else replace(workload, params=params)


def check_applications(
    frame: Study,
    pieces: Iterable[ExpandedWorkload],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog,
    problems: Problems,
) -> None:
    """Check that every application can run on its placements, and has storage if it needs it. Mistakes are
    added to problems.

    frame: the study; its workloads may be missing.
    """
    for piece in pieces:
        w = workloads.get(piece.name)
        if not isinstance(w, ApplicationWorkload):
            continue
        entry = catalog.applications[w.application]
        mark = mark_of(piece.node, ("application",))
        for what in entry.misplaced(w, frame):
            problems.add(mark, piece.path, what)
        bare = [e.name for e in frame.environments if e.takes(w.name) and e.storage is None]
        if bare and entry.needs_storage(w):
            names = ", ".join(bare)
            what = f"{w.application} needs storage; give {names} storage: {{kind: overlay}}, or another"
            problems.add(mark, piece.path, what)
