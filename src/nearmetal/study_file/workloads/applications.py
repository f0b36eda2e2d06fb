"""Workloads that are applications: read their entries, and check that they fit the arms that run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...model.keys import did_you_mean
from ...model.study import ApplicationWorkload, Study, Workload
from ..catalog import Catalog
from ..tree import mark_of
from ..validate import validate
from .kernels import read_params
from .sweep import ExpandedWorkload


def read_application(piece: ExpandedWorkload, catalog: Catalog | None) -> ApplicationWorkload | None:
    """Return the workload of an entry; None if the entry has mistakes."""
    from ..sections import ApplicationSection, made

    before = piece.problems.added
    section = validate(ApplicationSection, piece)
    if section is None:
        return None
    workload: ApplicationWorkload = made(section, name=piece.name)
    application = workload.application
    entry = None if catalog is None else catalog.applications.get(application)
    if catalog is not None and entry is None:
        hint = did_you_mean(application, catalog.applications)
        piece.mistake(("application",), f'unknown application "{application}"{hint}')
        return None
    params = read_params(
        application,
        piece,
        tuple(section.model_extra or ()),
        None if entry is None else entry.parameters,
        (lambda _name, _value: None) if entry is None else entry.misfit,
    )
    return None if piece.problems.added > before else replace(workload, params=params)


def check_applications(
    frame: Study,
    pieces: Iterable[ExpandedWorkload],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog,
) -> None:
    """Check that every application can run on its placements, and has storage if it needs it.

    frame: the study; its workloads may be missing.
    """
    for piece in pieces:
        w = workloads.get(piece.name)
        if not isinstance(w, ApplicationWorkload):
            continue
        entry = catalog.applications[w.application]
        mark = mark_of(piece.node, ("application",))
        for what in entry.misplaced(w, frame):
            piece.problems.add(mark, piece.path, what)
        bare = [e.name for e in frame.environments if e.takes(w.name) and e.storage is None]
        if bare and entry.needs_storage(w):
            names = ", ".join(bare)
            what = f"{w.application} needs storage; give {names} storage: {{kind: overlay}}, or another"
            piece.problems.add(mark, piece.path, what)
