"""Determines before a study begins whether its virtual machines run by KVM or by an emulator. Then compiles
the measured programs for the instructions that the processors of all arms have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...environments import Checkpoints, Migrates
from ...environments.contract import Accelerated
from ...environments.guests.kvm import KvmAnswer, kvm_answer
from ...environments.registry import get_backend
from ...errors import UnavailableError
from ...host import Host
from ...host.facts.provenance import cpu_flags
from ...host.runtime import cache_directory
from ...lifecycle import Method
from ...model.environments.guest import Accelerator, GuestSettings
from ...model.study import Environment, Study
from ...workloads.build import FLAGS, build_tools, compiler_flags
from ..machine import Machine
from ..progress import Progress
from .emulation import with_emulation

EMULATED_CPU = compiler_flags("x86-64-v3")
"""Flags for QEMU's emulated CPU. Its translator supports AVX2 and FMA since version 7.2, but not AVX-512."""
ANY_CPU = compiler_flags("x86-64")
"""Flags for a guest with a named CPU model, which may be an old one."""


def with_accelerators(
    machine: Machine, study: Study, progress: Progress, *, require_kvm: bool = False
) -> tuple[Machine, Study]:
    """Determine how each guest of a study is executed, and compile the tools for the processors of all arms.

    Returns the machine with these tools, and the study with the accelerator of each guest and the emulators
    of its environments.

    Raises UnavailableError if KVM is required and cannot run a guest.
    """
    study = with_emulation(machine, study, progress)
    if not any(_by_kvm(e) for e in study.environments):
        return machine, study
    answer = kvm_answer(machine.host, machine.tools)
    environments = _inside(resolved(e, answer, require_kvm) if _by_kvm(e) else e for e in study.environments)
    guests = {e.name: e.guest for e in environments if e.guest is not None and _by_kvm(e)}
    able = {e.name for e in environments if _has_method(e)}  # the others will be left out
    emulated: dict[str, list[str]] = {}
    for name, settings in guests.items():
        if settings.emulated and name in able:
            emulated.setdefault(settings.label, []).append(name)
    for label, names in emulated.items():
        verb = "is" if len(names) == 1 else "are"
        progress.note(f"warning: {', '.join(names)} {verb} emulation, not virtualisation ({label})")
    flags = [flags_of(g) for g in guests.values()]
    wanted = next((f for f in (ANY_CPU, EMULATED_CPU) if f in flags), FLAGS)
    if wanted != machine.built.flags:
        built = build_tools(
            machine.host, cache_directory(), progress=progress.phase, mpicc=machine.mpi.mpicc, flags=wanted
        )
        machine = replace(machine, built=built, tools=replace(machine.tools, directory=built.directory))
    return machine, replace(study, environments=environments)


def foreseen_accelerators(study: Study, host: Host) -> Study:
    """Return the study as a plan assumes it: guests are emulated if this processor has no virtualisation.
    Nothing is started."""
    if cpu_flags(host) & {"vmx", "svm"} or not any(_by_kvm(e) for e in study.environments):
        return study
    answer = KvmAnswer(works=False, reason="this processor has no virtualisation")
    return replace(
        study,
        environments=_inside(_foreseen(e, answer) if _by_kvm(e) else e for e in study.environments),
    )


def _inside(environments: Iterable[Environment]) -> tuple[Environment, ...]:
    """Return the environments. One that runs inside a virtual machine gets the guest settings of that virtual
    machine."""
    every = tuple(environments)
    around = {e.name: e.guest for e in every}
    return tuple(e if e.inside is None else replace(e, guest=around.get(e.inside)) for e in every)


def _foreseen(environment: Environment, answer: KvmAnswer) -> Environment:
    settings = environment.guest or GuestSettings()
    wanted = settings.accelerator is Accelerator.AUTO
    return resolved(environment, answer, require_kvm=False) if wanted else environment


def flags_of(settings: GuestSettings) -> str:
    """Return the compiler flags for programs that run in such a guest and in the other arms."""
    if settings.cpu not in (None, "host", "max"):
        return ANY_CPU
    return EMULATED_CPU if settings.emulated else FLAGS


def _has_method(environment: Environment) -> bool:
    """Return whether the backend of an environment has the method of checkpoint or migration that the
    environment names; True if it names none."""
    backend, method = get_backend(environment.backend), environment.method
    moves = (*backend.moves_by, Method.AUTO) if isinstance(backend, Migrates) else ()
    files = backend.checkpoints_by if isinstance(backend, Checkpoints) else ()
    return method is None or method in (*moves, *files)


def _by_kvm(environment: Environment) -> bool:
    backend = get_backend(environment.backend)
    return isinstance(backend, Accelerated) and backend.uses_kvm


def resolved(environment: Environment, answer: KvmAnswer, require_kvm: bool) -> Environment:
    """Return an environment with the accelerator that its guests use: KVM if it works, unless the environment
    requests TCG.

    Raises UnavailableError if KVM is required or requested, but does not work.
    """
    settings = environment.guest or GuestSettings()
    wanted = Accelerator.KVM if require_kvm else settings.accelerator
    if answer.works and wanted is not Accelerator.TCG:
        settings = replace(settings, accelerator=Accelerator.KVM, accelerated_not="")
    elif wanted is Accelerator.KVM:
        raise UnavailableError(
            f"environment {environment.name}: KVM runs no guest here: {answer.reason}", remedy=answer.remedy
        )
    else:
        why = answer.reason or "it was requested"
        settings = replace(settings, accelerator=Accelerator.TCG, accelerated_not=why)
    return replace(environment, guest=settings)
