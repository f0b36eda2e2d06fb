"""Reads the entries of workloads, expands sweeps, and checks combinations of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath

from ...model.keys import did_you_mean, keys_of
from ...model.study import (
    ApplicationWorkload,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    Study,
    SubjectFacts,
    Workload,
)
from ...model.workloads.programs import INSTANCE_WALL
from ..catalog import COMMAND, FACTS, Catalog
from ..problems import Path
from ..tree import Located, mark_of
from ..validate import validate
from .applications import read_application
from .kernels import read_params
from .methods import with_methods_apart
from .npb import NasProgram, NpbEntry, find_program, misfits, npb_command
from .programs import read_program
from .sweep import ExpandedWorkload, expand


def workload_pieces(top: Located) -> tuple[ExpandedWorkload, ...]:
    """Return all workloads with sweeps expanded. If two have the same name, the first is kept."""
    out: dict[str, ExpandedWorkload] = {}
    for name, entry in top.each("workloads"):
        mark = mark_of(top.node, entry.path, key=True)
        for piece in expand(name, mark, with_methods_apart(entry)):
            if piece.name in out:
                what = f'the sweep makes a second workload "{piece.name}"'
                top.mistake(entry.path, what, key=True)
            else:
                out[piece.name] = piece
    return tuple(out.values())


_KINDS = ("kernel", "application", "command", "script", "npb", "subject")


def read_workload(
    piece: ExpandedWorkload, catalog: Catalog | None, programs: dict[str, NasProgram]
) -> Workload | None:
    """Return the workload of an entry; None if the entry has mistakes.

    programs: filled with the binary of each `npb` workload, by name.
    """
    here = [k for k in piece.entries if k in _KINDS]
    if not here:
        what = (
            "a workload has one of kernel: stream, application: hpcc, command: [program], script: text, "
            "npb: {bin: …} or subject: start"
        )
        piece.problems.add(piece.mark, piece.path, what)
        return None
    if len(here) > 1:
        mark = mark_of(piece.node, (here[1],), key=True)
        piece.problems.add(mark, piece.path, f"{' and '.join(here)}: a workload is one of them")
        return None
    if here[0] == "kernel":
        return _kernel(piece, catalog)
    if here[0] == "application":
        return read_application(piece, catalog)
    if here[0] in ("command", "script"):
        return read_program(piece, catalog)
    if here[0] == "npb":
        return _npb(piece, programs)
    return _event(piece)


def _event(piece: ExpandedWorkload) -> EventSubject | None:
    from ..sections import event_section, made

    section = validate(event_section(), piece)
    if section is None:
        return None
    facts: SubjectFacts = getattr(section, FACTS)
    event: EventSubject = made(section, facts.workload, name=piece.name)

    def mistake(key: str, what: str) -> None:
        piece.mistake((key,), what, key=True)

    own = {f.name for f, _ in keys_of(facts.workload)}
    for name in sorted(section.model_fields_set - own):
        key = type(section).model_fields[name].alias or name
        mistake(key, f"subject {facts.name} has no such key; leave it out")
    if (what := event.misfit) is not None:
        mistake(*what)
    return event


def _kernel(piece: ExpandedWorkload, catalog: Catalog | None) -> KernelWorkload | None:
    from ..sections import KernelSection, made

    before = piece.problems.added
    section = validate(KernelSection, piece)
    if section is None:
        return None
    workload: KernelWorkload = made(section, name=piece.name, params={})
    kernel = workload.kernel
    if catalog is not None:
        check_kernel(kernel, workload.metrics, piece, catalog)
    if piece.problems.added > before:
        return None
    names = tuple(section.model_extra or ())
    known = None if catalog is None else catalog.kernels[kernel]
    misfit = (lambda _name, _value: None) if catalog is None else partial(catalog.misfit, kernel)
    params = read_params(kernel, piece, names, known, misfit)
    return None if piece.problems.added > before else replace(workload, params=params)


def _npb(piece: ExpandedWorkload, programs: dict[str, NasProgram]) -> CommandWorkload | None:
    from ..sections import NpbWorkloadSection, made

    before = piece.problems.added
    section = validate(NpbWorkloadSection, piece)
    if section is None or piece.problems.added > before:
        return None
    entry: NpbEntry = made(section)
    npb = entry.npb
    directory = FilePath(npb.bin).absolute()  # a run may be resumed from elsewhere
    try:
        program = find_program(directory, npb.benchmark, npb.size)
    except OSError as e:
        piece.mistake(("npb", "bin"), f"{directory} cannot be read: {e.strerror or e}")
        return None
    if program is None:
        name = f"{npb.benchmark}.{npb.size}"
        what = f"neither {name}.x nor {name}.<number of ranks> is in {directory}"
        piece.mistake(("npb", "benchmark"), what)
        return None
    programs[piece.name] = program
    return npb_command(piece.name, program, env=entry.env, time_limit=entry.time_limit)


def metrics_of(workload: Workload, catalog: Catalog | None) -> tuple[str, ...]:
    """Return the metrics that a workload will have; empty if they are not known."""
    known = catalog.metrics if catalog is not None else {}
    match workload:
        case KernelWorkload():
            return workload.metrics or known.get(workload.kernel, ())
        case ApplicationWorkload():
            entry = catalog.applications.get(workload.application) if catalog is not None else None
            return entry.metrics(workload) if entry is not None else ()
        case CommandWorkload():
            always = known.get(COMMAND)
            if always is None:
                return ()
            more = (INSTANCE_WALL,) if workload.per_task else ()
            return (*always, *more, *(m.name for m in workload.metrics))
        case EventSubject():
            return workload.facts.metrics


def check_kernel(kernel: str, metrics: Iterable[str], piece: ExpandedWorkload, catalog: Catalog) -> None:
    if kernel not in catalog.kernels:
        piece.mistake(("kernel",), f'unknown kernel "{kernel}"{did_you_mean(kernel, catalog.kernels)}')
        return
    known = catalog.metrics.get(kernel)
    seen: set[str] = set()
    for number, metric in enumerate(metrics):
        at: Path = ("metrics", number)
        if known is not None and metric not in known:
            piece.mistake(at, f'{kernel} has no metric "{metric}"{did_you_mean(metric, known)}')
        elif metric in seen:
            piece.mistake(at, f'"{metric}" given twice')
        seen.add(metric)


def check_programs(
    frame: Study, pieces: Iterable[ExpandedWorkload], programs: Mapping[str, NasProgram]
) -> None:
    """Check that every NAS benchmark can run on the numbers of ranks of its placements."""
    for piece in pieces:
        program = programs.get(piece.name)
        for what in misfits(piece.name, program, frame.arms()) if program is not None else ():
            piece.mistake(("npb", "benchmark"), what)
