"""Finds what the study of two virtual machine scenarios needs on this machine: virtual machines that work, or
the requested substitute, and an image with LAMMPS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...environments import Tuned, Unavailable
from ...environments.registry import backend_names, get_backend
from ...errors import UnavailableError
from ...images import require_image
from ...model.environments.image import HOST
from ...node.machine import Machine, image_store
from ...node.progress import Progress
from ...studies.two_vm_2009 import IMAGE, VIRTUAL, AvailableMachine

PROGRAM = "lmp"


def two_vm_here(machine: Machine, progress: Progress, backend: str | None) -> AvailableMachine:
    """Return what this machine offers for the study, by testing backends until one works.

    backend: the only one to test.
    Raises UnavailableError if none works, or if the image is not built.
    """
    reasons: list[str] = []
    for name in _candidates(backend):
        progress.phase(f"does {name} work here")
        backend_here = get_backend(name)
        answer = backend_here.check(machine.host, machine.tools)
        if not isinstance(answer, Unavailable):
            has_lammps = machine.host.which(PROGRAM) is not None
            found = _setting(machine.cpus, name, has_lammps, answer.notes)
            if found.image != HOST:
                require_image(machine.host, image_store(), found.image, {})
            if isinstance(backend_here, Tuned):
                found = replace(found, own=backend_here.settings_here(machine.host))
            return found
        reasons.append(f"{name}: {answer.reason}; {answer.remedy}")
    raise UnavailableError(
        f"no virtual machine runs here: {'; '.join(reasons)}",
        remedy="--backend lxc, or namespaces: containers in their place",
    )


def two_vm_planned(cpus: Sequence[int], has_lammps: bool, backend: str | None) -> AvailableMachine:
    """Return what a plan assumes. Nothing is started."""
    return _setting(tuple(cpus), _candidates(backend)[0], has_lammps, ())


def _candidates(backend: str | None) -> tuple[str, ...]:
    return (backend,) if backend else tuple(name for name in VIRTUAL if name in backend_names())


def _setting(cpus: tuple[int, ...], backend: str, has_lammps: bool, notes: Sequence[str]) -> AvailableMachine:
    virtual = get_backend(backend).capabilities.virtual
    # Containers share the machine's root; a guest boots what an image contains.
    image = IMAGE if virtual or not has_lammps else HOST
    return AvailableMachine(
        cpus=cpus,
        backend=backend,
        virtual=virtual,
        image=image,
        notes=tuple(f"{backend}: {note}." for note in notes),
    )
