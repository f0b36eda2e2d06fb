"""A series on this machine: what it offers, and how the time is shared out over the parts."""

from __future__ import annotations

from collections.abc import Iterable

from ..environments import Unavailable
from ..environments.registry import backend_names, get_backend
from ..model.series import Part
from ..studies.containers_2015 import Setting
from .machine import Machine
from .progress import Progress

#: Backends that may stand for the containers of the paper, the paper's own first.
CONTAINERS = ("lxc", "namespaces")


def setting_here(machine: Machine, progress: Progress) -> Setting:
    """What this machine offers, by really starting an instance of each backend in turn until one works."""
    notes: list[str] = []
    known = [name for name in CONTAINERS if name in backend_names()]
    for name in known:
        progress.phase(f"does {name} work here")
        answer = get_backend(name).check(machine.host, machine.tools)
        if not isinstance(answer, Unavailable):
            return Setting(cpus=len(machine.cpus), container=name, notes=tuple(notes))
        notes.append(f"Not by {name}, as the paper has it: {answer.reason}")
    # The run itself says why the last one cannot run, as for every other study.
    return Setting(cpus=len(machine.cpus), container=known[-1], notes=tuple(notes))


def setting_planned(cpus: int) -> Setting:
    """What a plan stands on, which starts nothing: the containers of the paper where they are known here."""
    first, *others = [name for name in CONTAINERS if name in backend_names()]
    notes = (f"{first} where it works here, else {' or '.join(others)}: the run finds out",) if others else ()
    return Setting(cpus=cpus, container=first, notes=notes)


def budget(part: Part, waiting: Iterable[Part], left: float) -> float:
    """Seconds for a part: its share of what is left, beside the parts that still wait (it among them), so
    that what one leaves the others have."""
    shares = sum(p.share for p in waiting)
    return max(left, 1.0) * part.share / shares
