"""Reads the entries of workloads, expands sweeps, and checks combinations of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath

from ...lifecycle import Method
from ...model.keys import did_you_mean
from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload, Study, Workload
from ..catalog import COMMAND, Catalog
from ..problems import Path, Problems
from ..tree import MapNode, entries_of, mark_of
from ..validate import validate
from .applications import read_application
from .kernels import read_params
from .methods import METHOD, METHODS, with_methods_apart
from .npb import NasProgram, NpbEntry, find_program, misfits, npb_command
from .programs import read_program
from .subjects import subject_facts
from .sweep import ExpandedWorkload, expand


def workload_pieces(root: MapNode, problems: Problems) -> tuple[ExpandedWorkload, ...]:
    """Return all workloads with sweeps expanded. If two have the same name, the first is kept."""
    out: dict[str, ExpandedWorkload] = {}
    for name, (mark, node) in entries_of(root, "workloads").items():
        for piece in expand(name, mark, with_methods_apart(name, node, problems), problems):
            if piece.name in out:
                problems.add(mark, ("workloads", name), f'the sweep makes a second workload "{piece.name}"')
            else:
                out[piece.name] = piece
    return tuple(out.values())


SUBJECT = "subject"
_KINDS = ("kernel", "application", "command", "script", "npb", SUBJECT)


def read_workload(
    piece: ExpandedWorkload,
    catalog: Catalog | None,
    programs: dict[str, NasProgram],
    methods: dict[str, tuple[Method, ...]],
    problems: Problems,
) -> Workload | None:
    """Return the workload of an entry; None if the entry has mistakes, which are added to problems.

    programs: filled with the binary of each `npb` workload, by name.
    methods: filled with the methods that workloads compare, by name.
    """
    here = [k for k in piece.node.entries if k in _KINDS] if isinstance(piece.node, MapNode) else []
    if not here:
        what = (
            "a workload has one of kernel: stream, application: hpcc, command: [program], script: text, "
            "npb: {bin: …} or subject: start"
        )
        problems.add(piece.mark, piece.path, what)
        return None
    if len(here) > 1:
        mark = mark_of(piece.node, (here[1],), key=True)
        problems.add(mark, piece.path, f"{' and '.join(here)}: a workload is one of them")
        return None
    if here[0] == "kernel":
        return _kernel(piece, catalog, problems)
    if here[0] == "application":
        return read_application(piece, catalog, problems)
    if here[0] in ("command", "script"):
        return read_program(piece, catalog, problems)
    if here[0] == "npb":
        return _npb(piece, programs, problems)
    return _event(piece, methods, problems)


def _event(
    piece: ExpandedWorkload, methods: dict[str, tuple[Method, ...]], problems: Problems
) -> EventSubject | None:
    from ..sections import EventSection, made

    section = validate(EventSection, piece.node, piece.path, problems)
    if section is None:
        return None
    subject: str = getattr(section, SUBJECT)
    event: EventSubject = made(section, name=piece.name, facts=subject_facts(subject))
    compared: list[Method] | None = getattr(section, METHODS)

    def mistake(key: str, what: str) -> None:
        problems.add(mark_of(piece.node, (key,), key=True), (*piece.path, key), what)

    for key in event.given:
        if key not in event.facts.keys:
            mistake(key, f"subject {subject} has no such key; leave it out")
    if (what := event.misfit) is not None:
        mistake(*what)
    if compared is None:
        return event
    if METHOD not in event.facts.keys:
        mistake(METHODS, f"subject {subject} has no such key; leave it out")
    elif event.method is not None:
        mistake(METHODS, f"{METHOD} and {METHODS}: one of them is enough")
    elif len(set(compared)) < max(len(compared), 1):
        mistake(METHODS, "a method given twice" if compared else "a value is missing here")
    methods[piece.name] = tuple(compared)
    return event


def _kernel(piece: ExpandedWorkload, catalog: Catalog | None, problems: Problems) -> KernelWorkload | None:
    from ..sections import KernelSection, made

    before = problems.added
    section = validate(KernelSection, piece.node, piece.path, problems)
    if section is None or not isinstance(piece.node, MapNode):
        return None
    workload: KernelWorkload = made(section, name=piece.name, params={})
    kernel = workload.kernel
    if catalog is not None:
        check_kernel(kernel, workload.metrics, piece, catalog, problems)
    if problems.added > before:
        return None
    names = tuple(section.model_extra or ())
    known = None if catalog is None else catalog.kernels[kernel]
    misfit = (lambda _name, _value: None) if catalog is None else partial(catalog.misfit, kernel)
    params = read_params(kernel, piece.node, names, piece.path, known, misfit, problems)
    return None if problems.added > before else replace(workload, params=params)


def _npb(
    piece: ExpandedWorkload, programs: dict[str, NasProgram], problems: Problems
) -> CommandWorkload | None:
    from ..sections import NpbWorkloadSection, made

    before = problems.added
    section = validate(NpbWorkloadSection, piece.node, piece.path, problems)
    if section is None or problems.added > before:
        return None
    entry: NpbEntry = made(section)
    npb = entry.npb
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
            more = ("instance_wall",) if workload.per_task else ()
            return (*always, *more, *(m.name for m in workload.metrics))
        case EventSubject():
            return workload.facts.metrics


def check_kernel(
    kernel: str, metrics: Iterable[str], piece: ExpandedWorkload, catalog: Catalog, problems: Problems
) -> None:
    """Check that the kernel exists and has the requested metrics."""
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


def check_programs(
    frame: Study, pieces: Iterable[ExpandedWorkload], programs: Mapping[str, NasProgram], problems: Problems
) -> None:
    """Check that every NAS benchmark can run on the numbers of ranks of its placements."""
    at: Path = ("npb", "benchmark")
    for piece in pieces:
        program = programs.get(piece.name)
        for what in misfits(piece.name, program, frame.arms()) if program is not None else ():
            problems.add(mark_of(piece.node, at), piece.path + at, what)
