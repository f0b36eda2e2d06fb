"""Determines what can run on this machine, by starting one instance of each kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import NearmetalError
from ..host import LocalHost
from ..host.facts.provenance import cpu_summary as cpu_summary
from ..host.facts.provenance import provenance

if TYPE_CHECKING:
    from ..environments import Backend, Tools, Unavailable
    from ..host import Host
    from ..model.record import JsonValue
    from ..node.machine import Machine
    from ..node.progress import Progress

WORKS, PARTLY, NOT_HERE = "works", "works partly", "not here"
ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of one check of this machine.

    state: WORKS, PARTLY or NOT_HERE.
    what: name and version of what was checked.
    why: details, or why it does not work.
    remedy: what to do about it; empty if nothing has to be done.
    group: the group of the check, such as ENVIRONMENT or 'attachments'; empty if it belongs to none.
    """

    state: str
    what: str
    why: str = ""
    remedy: str = ""
    group: str = ""


def check(progress: Progress | None = None) -> tuple[Check, ...]:
    """Check everything that nearmetal can use on this machine, in the order of the report.

    progress: receives a message for each slow step.
    """
    return tuple(_checks(progress))


def machine_facts() -> Mapping[str, JsonValue]:
    """Return facts about this machine: hardware, kernel, mitigations, versions."""
    return provenance(LocalHost())


def can_measure(checks: tuple[Check, ...]) -> bool:
    """Return whether the kernels can be built here. Nothing can be measured without them.

    checks: result of check().
    """
    return any(c.what == _KERNELS and c.state == WORKS for c in checks)


_KERNELS = "kernels"


def _checks(progress: Progress | None) -> Iterator[Check]:
    from ..node.machine import prepare_machine
    from ..node.progress import NullProgress
    from ..node.survey.attachments import check_attachments
    from .moves.checking import check_checkpoints, check_moves

    host = LocalHost()
    loaded = _load()
    machine = None
    running: list[Backend] = []
    try:
        machine = prepare_machine(host, progress or NullProgress())
        yield unless(None, _KERNELS, f"{machine.built.compiler}, {machine.built.mpi.partition(' (')[0]}")
    except NearmetalError as e:
        yield unless(e, _KERNELS)
    if machine is not None:
        for backend, one in _backends(loaded, host, machine.tools):
            if one.state != NOT_HERE and not isinstance(backend, NearmetalError):
                running.append(backend)
            yield replace(one, group=ENVIRONMENT)
        yield _kvm(host, machine.tools)
    yield from _grouped("checkpoints", check_checkpoints(host))
    yield from _grouped("moves", check_moves(host, running))
    yield from _grouped("guests", _guest_devices())
    usable = [b for b in loaded.values() if not isinstance(b, NearmetalError)]
    attachments = check_attachments(host, machine.tools, usable) if machine is not None else {}
    for name, found in attachments.items():
        lacks, why = (None, found) if isinstance(found, str) else (found, "")
        yield replace(unless(lacks, f"attachment {name}", why), group="attachments")
    yield from _grouped("storage", _storages(host))
    yield from _grouped("applications", _applications(host))
    yield from _grouped("images", (_builds_images(host), *_in_images()))
    if machine is not None:
        yield from _grouped("counters", _inside(machine))


def _grouped(group: str, checks: Iterable[Check]) -> Iterator[Check]:
    return (replace(c, group=group) for c in checks)


def unless(lacks: Unavailable | NearmetalError | None, what: str, why: str = "") -> Check:
    """Return a check with the state WORKS, or NOT_HERE with reason and remedy if `lacks` is given.

    lacks: why it does not work; None if it works.
    why: details if it works.
    """
    if lacks is None:
        return Check(state=WORKS, what=what, why=why)
    reason = lacks.what if isinstance(lacks, NearmetalError) else lacks.reason
    return Check(state=NOT_HERE, what=what, why=reason, remedy=lacks.remedy)


def _load() -> dict[str, Backend | NearmetalError]:
    """Return every backend by name, or the error in its place if it cannot be loaded."""
    from ..environments.registry import backend_names, get_backend

    found: dict[str, Backend | NearmetalError] = {}
    for name in backend_names():
        try:
            found[name] = get_backend(name)
        except NearmetalError as e:
            found[name] = e
    return found


def _backends(
    loaded: Mapping[str, Backend | NearmetalError], host: Host, tools: Tools
) -> Iterator[tuple[Backend | NearmetalError, Check]]:
    from ..environments import Available

    found: Available | Unavailable | NearmetalError
    for name, backend in loaded.items():
        try:
            found = backend if isinstance(backend, NearmetalError) else backend.check(host, tools)
        except NearmetalError as e:
            found = e
        if isinstance(found, Available):
            notes = (*found.notes, *found.of_moves)
            state = PARTLY if notes else WORKS
            what = f"{name} {found.version}".strip()
            yield backend, Check(state=state, what=what, why="; ".join(notes))
        else:
            yield backend, unless(found, name)


def _kvm(host: Host, tools: Tools) -> Check:
    """Check step by step whether KVM can actually run guests."""
    from ..environments.guests.kvm import kvm_answer

    answer = kvm_answer(host, tools)
    steps = ", ".join(f"{step}: {text}" for step, text in answer.steps)
    if answer.works:
        why = f"{answer.nanoseconds} ns for an instruction; {steps}"
        return Check(state=WORKS, what="kvm", why=why)
    why = f"{answer.reason}; {steps}" if steps else answer.reason
    return Check(state=NOT_HERE, what="kvm", why=why, remedy=answer.remedy)


def _guest_devices() -> Iterator[Check]:
    from ..environments.guests.needs import device_helps

    for what, lacks in device_helps().items():
        yield unless(lacks, what)


def _builds_images(host: Host) -> Check:
    """Check whether images can be built here. Existing images can be used in any case."""
    from ..images.build import require_builder

    try:
        require_builder(host)
    except NearmetalError as e:
        return unless(e, "image builder")
    return unless(None, "image builder", "nearmetal image list names them")


def _inside(machine: Machine) -> Iterator[Check]:
    """Check which counters can be read inside a run."""
    from ..host import MissingValue
    from ..host.counters.energy import energy_domains
    from ..meters.inside import offered_events
    from ..report.tables.inside import events_words

    offered = offered_events(machine.host, machine.tools)
    given: list[JsonValue] = [name for name, why in offered.items() if not why]
    absent: dict[str, JsonValue] = {name: why for name, why in offered.items() if why}
    state = NOT_HERE if not given else PARTLY if absent else WORKS
    text = events_words({"perf_events": given, "perf_events_absent": absent})
    forbidden = any("ermi" in why for why in offered.values())
    remedy = "sysctl kernel.perf_event_paranoid=2" if forbidden else ""
    yield Check(state=state, what="perf events", why=text, remedy=remedy)
    energy = energy_domains()
    if isinstance(energy, MissingValue):
        yield Check(state=NOT_HERE, what="energy", why=energy.reason)
    else:
        yield Check(state=WORKS, what="energy", why=f"RAPL: {', '.join(d.name for d in energy)}")


def _storages(host: Host) -> Iterator[Check]:
    """Check each kind of storage. For a kind that needs a device or an NFS export of the user's, only check
    what else it needs."""
    from ..environments.storage import check_storage
    from ..model.study import StorageKind

    for kind in StorageKind:
        lacks = check_storage(host, kind, f"nearmetal-check-{os.getpid()}-storage")
        yield unless(lacks, f"storage {kind}")


def _applications(host: Host) -> Iterator[Check]:
    """Check for each application, with default keys on two ranks, whether this machine has what it needs."""
    from ..model.environments.image import HOST
    from ..model.study import ApplicationWorkload
    from ..node.machine import hardware_of
    from ..node.survey.programs import find_on, install_line, lacking, two_ranks
    from ..workloads.applications.registry import application, application_names, choices

    place = two_ranks(hardware_of(host))
    for name in application_names():
        known, given = application(name), choices(ApplicationWorkload(name=name, application=name))
        needs, problem = known.needs(given), known.problem(given, place)
        missing = lacking(needs, find_on(host), host)
        if missing:
            why = f"{' and '.join(missing)} not found"
            remedy = install_line(needs, HOST)
            yield Check(state=NOT_HERE, what=f"application {name}", why=why, remedy=remedy)
        elif problem is not None:
            yield Check(state=NOT_HERE, what=f"application {name}", why=problem)
        else:
            yield Check(state=WORKS, what=f"application {name}")


def _in_images() -> Iterator[Check]:
    """List for each existing image the applications that it contains, and the packages that the other
    applications need."""
    from ..model.study import ApplicationWorkload
    from ..node.machine import image_store
    from ..node.software import find_program
    from ..node.survey.programs import lacking
    from ..workloads.applications.registry import application, application_names, choices

    named = {
        name: application(name).needs(choices(ApplicationWorkload(name=name, application=name)))
        for name in application_names()
    }
    for image in image_store().all():
        absent = {n: w for n, w in named.items() if w.packages and lacking(w, partial(find_program, image))}
        there = [n for n, w in named.items() if w.packages and n not in absent]
        more = "; ".join(f"{' '.join(w.packages)} for {n}" for n, w in absent.items())
        holds = f"holds {', '.join(there) or 'none of the applications'}"
        remedy = f"add to its packages: {more}" if more else ""
        yield Check(state=WORKS, what=f"image {image.name}", why=holds, remedy=remedy)
