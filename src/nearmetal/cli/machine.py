"""Commands about this machine: check, clean, kernel."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import typer

from ..errors import ExitCode, NearmetalError, UsageError
from ..workloads.kernel import CLASSES
from ..workloads.kernels import kernel as kernel_named
from ..workloads.kernels import kernel_names
from .common import catalog, print_json
from .view import View
from .workload_names import read_values

if TYPE_CHECKING:
    from ..environments import Tools
    from ..execute.machine import Machine
    from ..host import Host
    from ..model.record import JsonValue

Json = typer.Option(False, "--json", help="The result as JSON on standard output.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(check)
    app.command()(clean)
    app.command()(kernel)


def check(json: bool = Json) -> int:
    """What can run here, what not, why, and the line that mends it: found by starting one of each."""
    from ..environments import Available, Unavailable
    from ..environments.registry import backend_names, get_backend
    from ..execute.attachments import check_attachments
    from ..execute.session import prepare_machine
    from ..host import LocalHost
    from ..host.provenance import cpu_summary, provenance

    host = LocalHost()
    rows: list[tuple[str, str, str, str]] = []
    machine = None
    try:
        with View(quiet=json) as view:
            machine = prepare_machine(host, view)
        rows.append(("works", "kernels", f"{machine.built.compiler}, {machine.built.mpi}", ""))
    except NearmetalError as e:
        rows.append(("not here", "kernels", e.what, e.remedy))
    for name in backend_names() if machine is not None else ():
        assert machine is not None
        try:
            answer = get_backend(name).check(host, machine.tools)
        except NearmetalError as e:
            answer = Unavailable(reason=e.what, remedy=e.remedy)
        if isinstance(answer, Available):
            state = "works partly" if answer.notes else "works"
            rows.append((state, f"{name} {answer.version}".strip(), "; ".join(answer.notes), ""))
        else:
            rows.append(("not here", name, answer.reason, answer.remedy))
    if machine is not None:
        rows.append(_kvm(host, machine.tools))
    rows += _guest_devices()
    rows.append(_builds_images(host))
    for name, found in check_attachments(host, machine.tools).items() if machine is not None else ():
        state = "works" if found.works else "not here"
        rows.append((state, f"attachment {name}", found.detail or found.reason, found.remedy))
    rows += _storages(host)
    rows += _applications(host)
    rows += _in_images()
    rows += [] if machine is None else _inside(machine)
    facts = provenance(host)
    if json:
        keys = ("state", "what", "why", "remedy")
        print_json({"machine": facts, "checks": [dict(zip(keys, r, strict=True)) for r in rows]})
    else:
        print(cpu_summary(facts))
        width = max(len(r[1]) for r in rows)
        for state, what, why, remedy in rows:
            line = f" {state:<13}{what:<{width}}  {why}".rstrip()
            print(line if not remedy else f"{line}\n{'':<16}next: {remedy}")
    return int(ExitCode.UNAVAILABLE if machine is None else ExitCode.DONE)


def _kvm(host: Host, tools: Tools) -> tuple[str, str, str, str]:
    """Whether the processor really runs guests, step by step."""
    from ..environments.kvm import kvm_answer

    answer = kvm_answer(host, tools)
    steps = ", ".join(f"{step}: {said}" for step, said in answer.steps)
    if answer.works:
        return "works", "kvm", f"{answer.nanoseconds} ns for an instruction; {steps}", ""
    return "not here", "kvm", f"{answer.reason}; {steps}" if steps else answer.reason, answer.remedy


def _guest_devices() -> list[tuple[str, str, str, str]]:
    """What devices of this machine can do for guests."""
    from ..environments.guest_needs import device_helps

    return [
        ("works", what, "", "") if lacks is None else ("not here", what, lacks.reason, lacks.remedy)
        for what, lacks in device_helps().items()
    ]


def _builds_images(host: Host) -> tuple[str, str, str, str]:
    """Whether images can be built here; those that stand can be used all the same."""
    from ..images.build import require_builder

    try:
        require_builder(host)
    except NearmetalError as e:
        return "not here", "images", e.what, e.remedy
    return "works", "images", "nearmetal image list names them", ""


def _inside(machine: Machine) -> list[tuple[str, str, str, str]]:
    """What can be counted inside a run."""
    from ..execute.inside import offered_events
    from ..host import Unavailable
    from ..host.energy import energy_domains
    from ..report.inside import events_words

    offered = offered_events(machine.host, machine.tools)
    given: list[JsonValue] = [name for name, why in offered.items() if not why]
    absent: dict[str, JsonValue] = {name: why for name, why in offered.items() if why}
    state = "not here" if not given else "works partly" if absent else "works"
    said = events_words({"perf_events": given, "perf_events_absent": absent})
    forbidden = any("ermi" in why for why in offered.values())
    remedy = "sysctl kernel.perf_event_paranoid=2" if forbidden else ""
    energy = energy_domains()
    if isinstance(energy, Unavailable):
        row = ("not here", "energy", energy.reason, "")
    else:
        row = ("works", "energy", f"RAPL: {', '.join(d.name for d in energy)}", "")
    return [(state, "perf events", said, remedy), row]


def _storages(host: Host) -> list[tuple[str, str, str, str]]:
    """A row for each kind of storage; what needs a device or an export is asked about all
    else."""
    from ..environments.storage import check_storage
    from ..model.study import StorageKind

    answers = {k: check_storage(host, k, f"nearmetal-check-{os.getpid()}-storage") for k in StorageKind}
    return [
        ("works", f"storage {kind}", "", "")
        if answer is None
        else ("not here", f"storage {kind}", answer.reason, answer.remedy)
        for kind, answer in answers.items()
    ]


def _applications(host: Host) -> list[tuple[str, str, str, str]]:
    """A row for each application with its usual keys on two ranks: whether this machine has what it needs."""
    from ..execute.application_place import find_on, install_line, lacking, two_ranks
    from ..execute.hardware import hardware_of
    from ..model.image import HOST
    from ..model.study import ApplicationWorkload
    from ..workloads.applications import application, application_names, choices

    rows, place = [], two_ranks(hardware_of(host))
    for name in application_names():
        known, given = application(name), choices(ApplicationWorkload(name=name, application=name))
        needs, problem = known.needs(given), known.problem(given, place)
        missing = lacking(needs, find_on(host), host)
        if missing:
            why = f"{' and '.join(missing)} not found"
            rows.append(("not here", f"application {name}", why, install_line(needs, HOST)))
        elif problem is not None:
            rows.append(("not here", f"application {name}", problem, ""))
        else:
            rows.append(("works", f"application {name}", "", ""))
    return rows


def _in_images() -> list[tuple[str, str, str, str]]:
    """A row for each image that stands: which applications of packages it holds, what brings the others."""
    from ..execute.application_place import lacking
    from ..execute.machine import image_store
    from ..execute.software import find_program
    from ..model.study import ApplicationWorkload
    from ..workloads.applications import application, application_names, choices

    named = {
        name: application(name).needs(choices(ApplicationWorkload(name=name, application=name)))
        for name in application_names()
    }
    rows = []
    for image in image_store().all():
        absent = {n: w for n, w in named.items() if w.packages and lacking(w, partial(find_program, image))}
        there = [n for n, w in named.items() if w.packages and n not in absent]
        more = "; ".join(f"{' '.join(w.packages)} for {n}" for n, w in absent.items())
        holds = f"holds {', '.join(there) or 'none of the applications'}"
        rows.append(("works", f"image {image.name}", holds, f"add to its packages: {more}" if more else ""))
    return rows


def clean(
    dry_run: bool = typer.Option(False, "--dry-run", help="Name what is left, and remove nothing."),
    json: bool = Json,
) -> int:
    """Remove what a killed run left on this machine: containers, processes, networks, mounts, cgroups."""
    from ..environments.kept import find_all, remove_any
    from ..host import LocalHost

    host = LocalHost()
    found = find_all(host)
    failures: list[str] = []
    for item in found:
        if not dry_run:
            try:
                remove_any(host, item)
            except NearmetalError as e:
                failures.append(str(e))
    left = found if dry_run else find_all(host)
    if json:
        print_json(
            {
                "found": [asdict(i) for i in found],
                "left": [asdict(i) for i in left],
                "failures": list(failures),
            }
        )
    else:
        for item in found:
            state = "found" if dry_run else "LEFT" if item in left else "removed"
            print(f"{state}  {item.kind}  {item.name}")
        if not found:
            print("nothing of nearmetal is left on this machine")
        for text in failures:
            print(text, file=sys.stderr)
    return int(ExitCode.DONE if dry_run or not left else ExitCode.FAILED_TRIALS)


def kernel(
    name: str = typer.Argument(..., help=f"One of {', '.join(kernel_names())}."),
    problem: str = typer.Option("S", "--class", help=f"Class {', '.join(CLASSES)} of a NAS benchmark."),
    ranks: int = typer.Option(None, "--ranks", min=1, help="MPI ranks; 2, or 1 where it does not run on 2."),
    threads: int = typer.Option(1, "--threads", min=1, help="Threads of each rank, where the kernel can."),
    parameters: list[str] = typer.Option([], "--set", help="key=value of the kernel; repeatable."),
    profile: bool = typer.Option(
        False, "--profile", help="Also where each rank's time went, and what it sent to whom."
    ),
    json: bool = Json,
) -> int:
    """Run one of our kernels by itself, in full, with its verification."""
    from ..execute.once import run_once
    from ..execute.session import new_label, prepare_machine
    from ..host import LocalHost
    from ..host.lock import machine_lock
    from ..host.runtime import scratch_directory
    from .profile import profile_lines

    settings = _pairs(parameters)
    if "class" in catalog().kernels.get(name, {}):
        settings.setdefault("class", problem)
    known = catalog().kernels
    if name not in known:
        raise UsageError(f"no kernel {name}", remedy=f"one of {', '.join(known)}")
    params = read_values(name, settings, known[name])
    with View(quiet=json) as view:
        machine = prepare_machine(LocalHost(), view)
    if ranks is None:
        ranks = 2 if len(machine.cpus) > 1 and kernel_named(name).ranks.allow(2) else 1
    label = new_label()
    with machine_lock(label, command=f"nearmetal kernel {name}"), scratch_directory(label) as scratch:
        result = run_once(
            machine, name, ranks, params, threads=threads, label=label, scratch=scratch, profiled=profile
        )
    if json:
        print_json(result.as_json())
    else:
        print(result)
        print("\n".join(profile_lines(result.profile)), end="\n" if profile else "")
    return int(ExitCode.DONE if result.verified else ExitCode.FAILED_TRIALS)


def _pairs(texts: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UsageError(f"--set {text!r} is not key=value")
        out[key] = value
    return out
