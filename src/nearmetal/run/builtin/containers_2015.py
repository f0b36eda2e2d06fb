"""Finds what the study of 2015 needs on this machine: containers that work, and attachments that can be
built."""

from __future__ import annotations

from ...environments import Unavailable
from ...environments.registry import backend_names, get_backend
from ...errors import UnavailableError
from ...host.facts import devices
from ...model.environments.network import NetworkSettings
from ...model.study import Attachment
from ...network.plan import NetworkRequest
from ...node.machine import Machine
from ...node.progress import Progress
from ...node.survey.attachments import try_networks
from ...studies.containers_2015 import CONTAINERS, CURES, AvailableMachine


def containers_here(machine: Machine, progress: Progress, backend: str | None) -> AvailableMachine:
    """Return what this machine offers for the study.

    Starts an instance of each backend in turn until one works, and builds the networks that any part needs.
    backend: the only one to test.
    """
    notes: list[str] = []
    known = [backend] if backend else [name for name in CONTAINERS if name in backend_names()]
    container = known[-1]  # if none works, the run itself reports why the last one cannot run
    for name in known:
        progress.phase(f"does {name} work here")
        answer = get_backend(name).check(machine.host, machine.tools)
        if not isinstance(answer, Unavailable):
            container = name
            break
        notes.append(f"Not by {name}, as the paper has it: {answer.reason}.")
    progress.phase("which attachments can be built here")
    functions = devices.physical_functions(machine.host)
    built = {Attachment.SRIOV: "no network card with SR-IOV"} if not functions else {}
    wanted = [a for a in CURES if not a.on_device]
    wants = [NetworkRequest(attachment=a, settings=NetworkSettings(), instances=2) for a in wanted]
    tried = zip(wanted, try_networks(machine.host, machine.tools, wants), strict=True)
    lacking = {a: e.what for a, e in tried if isinstance(e, UnavailableError)} | built
    return AvailableMachine(
        cores=machine.cores,
        container=container,
        attachments=tuple(a for a in CURES if a not in lacking),
        lacking=lacking,
        functions=functions,
        notes=tuple(notes),
    )


def containers_planned(cores: int, backend: str | None) -> AvailableMachine:
    """Return what a plan assumes: the containers of the paper if nearmetal has their backend, else the first
    other container backend.

    Nothing is started.
    """
    first, *others = [backend] if backend else [name for name in CONTAINERS if name in backend_names()]
    notes = (f"{first} where it works here, else {' or '.join(others)}: the run finds out",) if others else ()
    likely = tuple(a for a in CURES if not a.on_device)
    return AvailableMachine(cores=cores, container=first, attachments=likely, notes=notes)
