"""Determines which backends of a study can start instances. Each backend is checked once; if an environment
names another machine, the backend is also checked on that machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...environments import Available, Backend, Checkpoints, Migrates, RemoteBackend, Unavailable
from ...environments.registry import get_backend
from ...environments.storage import why_not
from ...errors import UnavailableError
from ...model.study import Arm, Environment, Study, Transport
from ..machine import Machine
from ..progress import Progress
from .attachments import missing_networks
from .preflight import require_cpus


@dataclass(frozen=True, kw_only=True)
class Usable:
    """Which backends can be used here.

    backends: the backends that work, by name.
    missing: why a backend does not work, by backend.
    elsewhere: for each environment that names another machine, why it cannot run there; None if it can.
    """

    backends: Mapping[str, Backend]
    missing: Mapping[str, str]
    elsewhere: Mapping[str, str | None]

    def lacks(self, environment: Environment) -> str | None:
        """Return why an environment cannot run; None if it can."""
        if environment.name in self.elsewhere:
            return self.elsewhere[environment.name]
        return self.missing.get(environment.backend)


def usable_backends(machine: Machine, study: Study, progress: Progress) -> Usable:
    """Check all backends of a study and report what the user must know about each.

    Raises UnavailableError if a backend is not installed.
    """
    moves = asks_for_moves(study)
    backends: dict[str, Backend] = {}
    here: dict[str, str | None] = {}
    elsewhere: dict[str, str | None] = {}
    for e in study.environments:
        own = get_backend(e.backend)
        names = [e.backend]
        if isinstance(own, RemoteBackend) and (
            answer := own.check_environment(machine.host, machine.tools, e)
        ):
            elsewhere[e.name] = _reported(e.name, answer, progress, moves=moves)
            backends[e.backend] = own
            names = []
        if e.beside is not None and e.beside.backend is not None:
            names.append(e.beside.backend)
        for name in names:
            if name not in here:
                backend = get_backend(name)
                answer = backend.check(machine.host, machine.tools)
                here[name] = _reported(name, answer, progress, moves=moves)
                backends |= {name: backend} if here[name] is None else {}
    missing = {name: why for name, why in here.items() if why is not None}
    return Usable(backends=backends, missing=missing, elsewhere=elsewhere)


def asks_for_moves(study: Study) -> bool:
    """Return whether a study moves instances, checkpoints them, or makes them ready for either."""
    return any(e.movable for e in study.environments) or bool(study.lifecycles)


def _reported(name: str, answer: Available | Unavailable, progress: Progress, *, moves: bool) -> str | None:
    """Report the result of a backend's check. Returns why the backend cannot be used, in one line; None if it
    can.

    moves: whether the study asks for moves or checkpoints.
    """
    if isinstance(answer, Unavailable):
        progress.note(f"{name} cannot run here: {answer.reason.rstrip('.?')}. Next: {answer.remedy}")
        return f"{answer.reason}; {answer.remedy}"
    for text in (*answer.notes, *(answer.of_moves if moves else ())):
        progress.note(f"{name}: {text}")
    return None


def usable_arms(
    machine: Machine, study: Study, progress: Progress
) -> tuple[dict[str, Arm], dict[str, Backend], dict[str, str]]:
    """Return the arms that can run here, their backends, and why the others cannot (by arm name).

    Raises UsageError if a placement requests more CPUs than there are, UnavailableError if a baseline cannot
    run, or if nothing is left to compare with it.
    """
    usable = usable_backends(machine, study, progress)
    by_name = {e.name: e for e in study.environments}
    arms: dict[str, Arm] = {}
    absent: dict[str, str] = {}
    for arm in study.arms():
        around = by_name.get(arm.environment.inside or "", arm.environment)
        why = (
            usable.lacks(around)
            or usable.lacks(arm.environment)
            or _no_companion(machine, arm, usable.missing)
        )
        why = why or _no_storage(machine, arm) or why_unmovable(machine, arm)
        if why is None:
            arms[arm.name] = arm
        else:
            absent[arm.name] = why
    for name, error in missing_networks(machine.host, machine.tools, arms).items():
        del arms[name]
        absent[name] = f"{error.what}; {error.remedy}"
        progress.note(f"{name} cannot run here: {error.what}. Next: {error.remedy}")
    running = {arm.environment.name for arm in arms.values()}
    for arm in [a for a in arms.values() if a.environment.inside not in (None, *running)]:
        del arms[arm.name]
        absent[arm.name] = f"its guest {arm.environment.inside} cannot run here"
        progress.note(f"{arm.name} cannot run here: {absent[arm.name]}")
    require_cpus(arms.values(), machine)
    first = study.design.baselines[0]
    if not any(a.environment.name == first for a in arms.values()):
        why = next((absent[a.name] for a in study.arms() if a.environment.name == first), "")
        raise UnavailableError(f"the baseline {first} cannot run here: {why}")
    if study.comparisons() and not study.with_arms(arms).comparisons():
        raise UnavailableError(
            f"nothing is left to compare with {first}",
            remedy="nearmetal check lists what can run here, and how to mend the rest",
        )
    for risk in study.with_arms(arms).risks:
        progress.note(risk)
    return arms, dict(usable.backends), absent


def _no_companion(machine: Machine, arm: Arm, missing: Mapping[str, str]) -> str | None:
    """Return why the companion of an arm cannot run here; None if it can, or if the arm has none."""
    beside = arm.environment.beside
    if beside is None:
        return None
    if not set(beside.cpus) <= set(machine.cpus):
        return f"its companion needs CPUs {beside.cpus}; this machine has {sorted(machine.cpus)}"
    why = None if beside.backend is None else missing.get(beside.backend)
    return None if why is None else f"its companion's backend {beside.backend}: {why}"


def why_unmovable(machine: Machine, arm: Arm) -> str | None:
    """Return why the instances of an arm cannot be made ready for moves; None if they can, or need not."""
    if not arm.environment.movable:
        return None
    backend = get_backend(arm.environment.backend)
    why: Unavailable | None
    if arm.transport is Transport.SHM and arm.placement.all_instances > 1:
        why = Unavailable(
            reason="its ranks share memory across instances, which no instance takes along",
            remedy="transport: tcp",
        )
    elif isinstance(backend, Migrates):
        refusals = [backend.unmovable(arm.environment, method) for method in backend.moves_by]
        why = None if None in refusals else refusals[0]
    elif isinstance(backend, Checkpoints):
        why = backend.refuses_checkpoint(machine.host, arm.environment)
    else:
        why = Unavailable(
            reason=f"{backend.name} neither moves its instances nor writes them to files",
            remedy="take movable out of the environment",
        )
    return None if why is None else f"environment {arm.environment.name}: {why.reason}; {why.remedy}"


def _no_storage(machine: Machine, arm: Arm) -> str | None:
    storage = arm.environment.storage
    own_root = "mnt" in get_backend(arm.environment.backend).capabilities.own
    why = None if storage is None else why_not(machine.host, storage, own_root=own_root)
    return None if why is None else f"environment {arm.environment.name}: {why.reason}; {why.remedy}"
