"""Determines before a study begins whether any part of its platform is emulated, so that every figure can be
labelled."""

from __future__ import annotations

from dataclasses import replace

from ...environments.contract import Nested
from ...environments.cpuid import emulator
from ...environments.registry import get_backend
from ...model.environments.placement import NodeKind
from ...model.study import Environment, Study
from ..machine import Machine
from ..progress import Progress


def with_emulation(machine: Machine, study: Study, progress: Progress) -> Study:
    """Return the study with the emulator under each environment, and the kind of nodes of each placement.

    The emulator of an environment is the system in which its hypervisor runs, if that is not a machine;
    otherwise the emulator of this machine, if it is emulated. Placements on several nodes get emulated nodes,
    unless the study names machines.
    """
    itself = emulator(machine.host, machine.tools)
    by_name = {e.name: e for e in study.environments}
    environments = tuple(
        replace(e, emulated=_nested(machine, by_name.get(e.inside or "", e)) or itself)
        for e in study.environments
    )
    for text in dict.fromkeys(e.emulated for e in environments if e.emulated):
        names = ", ".join(e.name for e in environments if e.emulated == text)
        progress.note(f"warning: {names}: {text}; every figure is of that, not of a machine")
    placements = tuple(
        replace(p, node_kind=NodeKind.EMULATED) if p.node.emulated else p for p in study.placements
    )
    return replace(study, environments=environments, placements=placements)


def _nested(machine: Machine, environment: Environment) -> str:
    backend = get_backend(environment.backend)
    if not isinstance(backend, Nested):
        return ""
    return backend.nested(machine.host, machine.tools, environment)
