"""Repeats on one machine the study 'Performance comparison of two virtual machine scenarios using an HPC
application' (2009): two virtual machines on each node with one task each, or one with both tasks. No I/O: the
properties of the machine are arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..model.environments.environment import BackendSettings
from ..model.environments.guest import GuestSettings
from ..model.environments.image import HOST
from ..model.series import Part, Scale, Series
from ..model.study import (
    ApplicationWorkload,
    Attachment,
    Design,
    Environment,
    Limits,
    Placement,
    Storage,
    Study,
)

NAME = "two-vm-scenarios-2009"
TITLE = "Two virtual machines on each node, or one? The study of 2009, asked of this machine"
#: Default time in seconds.
USUAL_TIME = {Scale.SMALL: 1200.0, Scale.PAPER: 8 * 3600.0}
#: Backends that can represent the virtual machines of the paper.
VIRTUAL = ("qemu", "xen")
#: Nodes of the paper, each with two tasks.
NODES = 8
#: An image with LAMMPS, an MPI and a kernel for guests.
IMAGE = "debian-lammps"
MIB = 1 << 20
#: Bytes of memory for each task: of an instance with one task, and half of one with two. The paper's: 256 MB.
TASK_MEMORY = {Scale.SMALL: 128 * MIB, Scale.PAPER: 256 * MIB}
#: Lattice cells along each edge of a task's own box: 32,000 and 340,736 atoms, of which a task takes about 47
#: and 155 MB. The paper's task takes 231 MB, of guests whose kernel left more of their memory.
CELLS = {Scale.SMALL: 20, Scale.PAPER: 44}
STEPS = {Scale.SMALL: 20, Scale.PAPER: 1000}
#: The paper's second setting.
MORE = 1.2
#: Disk and swap space of each guest: for the output of LAMMPS, and to commit more memory than there is.
DISK, SWAP = 1024 * MIB, 512 * MIB
#: Four guests that are emulated boot on two CPUs at a time.
BOOT_SECONDS = 240.0
BARE = "bare"


@dataclass(frozen=True, kw_only=True)
class AvailableMachine:
    """The properties of the machine that the study uses.

    cpus: usable CPUs, in the order in which ranks use them.
    backend: backend of the instances.
    virtual: whether the instances are virtual machines.
    image: image of every arm.
    notes: deviations from the study.
    own: settings that only the backend has; None for the defaults.
    """

    cpus: tuple[int, ...]
    backend: str
    virtual: bool
    image: str = HOST
    notes: tuple[str, ...] = ()
    own: BackendSettings | None = None

    @property
    def words(self) -> tuple[str, str]:
        """Return the names for two instances and for one instance."""
        return ("two-vms", "one-vm") if self.virtual else ("two-containers", "one-container")


def part_keys() -> tuple[str, ...]:
    return tuple(_PARTS)


def two_vm_2009(
    setting: AvailableMachine, *, scale: Scale, seed: int, max_time: float, only: Sequence[str] = ()
) -> Series:
    """Return the series.

    only: keys of the requested parts; empty for all.
    """
    return Series(
        name=NAME,
        title=TITLE,
        scale=scale,
        paper=NAME,
        seed=seed,
        max_time=max_time,
        parts=tuple(make(setting, scale, seed) for key, make in _PARTS.items() if not only or key in only),
        notes=(*_notes(setting, scale), *setting.notes),
    )


def _notes(setting: AvailableMachine, scale: Scale) -> Iterator[str]:
    memory = TASK_MEMORY[scale] // MIB
    yield (
        f"Instances by {setting.backend}: {memory} MiB for each task, so {2 * memory} MiB for two in one. "
        f"LAMMPS melts {4 * CELLS[scale] ** 3:,} atoms for each task, {STEPS[scale]} steps."
    )
    if setting.virtual:
        yield f"Each guest has a disk of its own to write on and {SWAP // MIB} MiB of swap."
    else:
        yield (
            "Containers take the place of virtual machines: they have no kernel of their own that could tell "
            "why it waits, so only their user and system time and their blocks are known."
        )


def _study(
    key: str,
    question: str,
    setting: AvailableMachine,
    scale: Scale,
    seed: int,
    *,
    nodes: int,
    cpus_of_node: int,
    memory: float,
) -> tuple[Study, dict[str, str]]:
    """Return the study of a part, and its arms by the paper's names.

    cpus_of_node: CPUs of a node: one for both tasks, or two.
    memory: memory of a task, in bytes.
    """
    cpus = tuple(
        setting.cpus[node * cpus_of_node + task % cpus_of_node] for node in range(nodes) for task in range(2)
    )

    def placement(instances: int, tasks: int) -> Placement:
        shape = f"{instances}x{tasks}"
        return Placement(
            name=shape if nodes == 1 else f"emulated-{nodes}x{shape}",
            nodes=nodes,
            instances=instances,
            tasks=tasks,
            cpus=cpus,
            oversubscribe=cpus_of_node == 1,
        )

    apart, together = placement(2, 1), placement(1, 2)
    two, one = setting.words
    study = Study(
        name=f"{NAME}-{key}",
        question=question,
        environments=(
            _instances(setting, one, together, 2 * memory),
            _instances(setting, two, apart, memory),
            Environment(
                name=BARE,
                backend="native",
                image=setting.image,
                storage=Storage(),
                placements=(together.name,),
            ),
        ),
        placements=(apart, together),
        workloads=(
            ApplicationWorkload(
                name="lammps",
                application="lammps",
                params={
                    "cells": CELLS[scale],
                    "scaling": "ranks",
                    "steps": STEPS[scale],
                    "write_every": STEPS[scale],
                },
                time_limit=3600.0,
            ),
        ),
        design=Design(
            baselines=(one,),
            margin=0.03,
            confidence=0.95,
            seed=seed,
            warm_up=0,
            instance_counters=True,
        ),
    )
    return study, {
        "scenario 1": f"{two}/{apart.name}",
        "scenario 2": f"{one}/{together.name}",
        "bare": f"{BARE}/{together.name}",
    }


def _instances(setting: AvailableMachine, name: str, place: Placement, memory: float) -> Environment:
    size = int(memory) // MIB * MIB
    return Environment(
        name=name,
        backend=setting.backend,
        image=setting.image,
        attachment=Attachment.VETH_BRIDGE,
        limits=Limits() if setting.virtual else Limits(memory=size),
        guest=_guest(size) if setting.virtual else None,
        own=setting.own,
        storage=Storage(),
        placements=(place.name,),
    )


def _guest(memory: int) -> GuestSettings:
    return GuestSettings(memory=memory, writable=DISK, swap=SWAP, boot_timeout=BOOT_SECONDS)


def _nodes(scale: Scale, cpus: int) -> int:
    """Return the number of the paper's nodes for which this machine has CPUs. Nodes after the first are
    emulated."""
    return 1 if scale is Scale.SMALL else max(1, min(NODES, cpus))


_SHARED = "Both tasks of a node share one CPU, as on the paper's nodes; MPI yields it while it waits."


def _scenarios(setting: AvailableMachine, scale: Scale, seed: int) -> Part:
    study, places = _study(
        "scenarios",
        "What do two instances on each node with one task in each cost, against one with both?",
        setting,
        scale,
        seed,
        nodes=_nodes(scale, len(setting.cpus)),
        cpus_of_node=1,
        memory=TASK_MEMORY[scale],
    )
    return Part(
        key="scenarios",
        title="The two scenarios",
        share=0.4,
        study=study,
        places=places,
        notes=(_SHARED,),
    )


def _memory(setting: AvailableMachine, scale: Scale, seed: int) -> Part:
    study, places = _study(
        "memory",
        "And with 20 % more memory for each instance?",
        setting,
        scale,
        seed,
        nodes=_nodes(scale, len(setting.cpus)),
        cpus_of_node=1,
        memory=MORE * TASK_MEMORY[scale],
    )
    return Part(
        key="memory",
        title="20 % more memory",
        share=0.3,
        study=study,
        places=places,
        notes=(_SHARED,),
    )


def _cores(setting: AvailableMachine, scale: Scale, seed: int) -> Part:
    title, share = "A core for each task", 0.3
    nodes = min(_nodes(scale, len(setting.cpus)), len(setting.cpus) // 2)
    if nodes < 1:
        return Part(
            key="cores", title=title, share=share, study=None, places={}, absent="this machine has one CPU"
        )
    study, places = _study(
        "cores",
        "And where each task has a CPU of its own, as on nodes of today?",
        setting,
        scale,
        seed,
        nodes=nodes,
        cpus_of_node=2,
        memory=TASK_MEMORY[scale],
    )
    return Part(key="cores", title=title, share=share, study=study, places=places)


_PARTS = {"scenarios": _scenarios, "memory": _memory, "cores": _cores}
