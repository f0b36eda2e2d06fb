"""Which backends of a study can start instances: asked of each once, or, where an environment names another
machine, of that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..environments import Available, Backend, Elsewhere, Unavailable
from ..environments.registry import get_backend
from ..model.study import Environment, Study
from .machine import Machine
from .progress import Progress


@dataclass(frozen=True, kw_only=True)
class Usable:
    """Which backends can be used here.

    backends: that work, by name.
    missing: why not, by backend.
    elsewhere: why an environment cannot run on the machine that it names, by environment, None where it can.
    """

    backends: Mapping[str, Backend]
    missing: Mapping[str, str]
    elsewhere: Mapping[str, str | None]

    def lacks(self, environment: Environment) -> str | None:
        """Why an environment cannot run; None where it can."""
        if environment.name in self.elsewhere:
            return self.elsewhere[environment.name]
        return self.missing.get(environment.backend)


def usable_backends(machine: Machine, study: Study, progress: Progress) -> Usable:
    """Asks them; what the reader must know of each is told. Raises UnavailableError for a backend that is not
    installed."""
    backends: dict[str, Backend] = {}
    here: dict[str, str | None] = {}
    elsewhere: dict[str, str | None] = {}
    for e in study.environments:
        own = get_backend(e.backend)
        if isinstance(own, Elsewhere) and (answer := own.check_environment(machine.host, machine.tools, e)):
            elsewhere[e.name] = _told(e.name, answer, progress)
            backends[e.backend] = own
            continue
        for name in (e.backend, *([e.beside.backend] if e.beside is not None else ())):
            if name not in here:
                backend = get_backend(name)
                here[name] = _told(name, backend.check(machine.host, machine.tools), progress)
                backends |= {name: backend} if here[name] is None else {}
    missing = {name: why for name, why in here.items() if why is not None}
    return Usable(backends=backends, missing=missing, elsewhere=elsewhere)


def _told(name: str, answer: Available | Unavailable, progress: Progress) -> str | None:
    """Why not, in one line; None where it works."""
    if isinstance(answer, Unavailable):
        progress.note(f"{name} cannot run here: {answer.reason}. Next: {answer.remedy}")
        return f"{answer.reason}; {answer.remedy}"
    for text in answer.notes:
        progress.note(f"{name}: {text}")
    return None
