"""Makes the study of `weigh A B`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...environments import BARE_ATTACHMENTS, Backend
from ...errors import UsageError
from ...model.environments.environment import DISKS
from ...model.environments.guest import GuestSettings
from ...model.environments.image import HOST
from ...model.keys import alternatives
from ...model.study import (
    ApplicationWorkload,
    Attachment,
    CommandWorkload,
    Design,
    Environment,
    KernelWorkload,
    Mode,
    Placement,
    Storage,
    StorageKind,
    Study,
    Workload,
)
from ...report.text import enumerated
from ...study_file.environments.backends import backends_that
from ...workloads.applications.registry import needs_storage
from ...workloads.kernels.registry import kernel, workload_title

DISK = 4 << 30
"""Size in bytes of the disk of a guest with storage. It takes only as much space as is written."""


_EXAMPLE = "nearmetal weigh native namespaces -w cg"


def weigh_study(
    backends: Mapping[str, Backend],
    *,
    workloads: Sequence[Workload],
    command: Sequence[str],
    ranks: int,
    instances: int | None,
    mpi: bool,
    cpus: int | None = None,
    margin: float,
    seed: int,
    max_time: float,
    image: str = HOST,
    attachments: Sequence[Attachment] = (),
) -> Study:
    """Make the study of `weigh`.

    backends: backends by name; the first is the baseline.
    workloads: kernels and applications; either these or a command.
    command: a user's program with its arguments.
    mpi: whether to start the command by mpirun.
    cpus: CPUs of each rank; see Placement.cpus_per_task.
    margin: smallest material difference, as a fraction.
    max_time: time budget in seconds.
    instances: number of instances. None means one, or one per rank if attachments are given.
    attachments: each backend is used with each of these that it supports. The default is veth-bridge for
        backends with their own network.

    A command or a list of applications runs as a whole in plain trials; kernels run in slices. Instances have
    storage on a disk of the machine if an application or a kernel needs it, or if the command refers to it.

    Raises UsageError if these arguments do not fit together, or name fewer than two environments.
    """
    if bool(command) == bool(workloads):
        raise UsageError(
            "name either --workload or, behind --, a command", remedy=f"{_EXAMPLE}; or ... -- ./my_app"
        )
    if command and not command[0].strip():
        raise UsageError("an empty text is not a program")
    if instances is None:
        instances = ranks if any(a.seated for a in attachments) else 1
    if ranks % instances:
        raise UsageError(f"{ranks} ranks do not divide over {instances} instances")
    one = Placement(name=f"1x{ranks}", instances=1, tasks=ranks, cpus_per_task=cpus)
    each = ranks // instances
    many = replace(one, name=f"{instances}x{each}", instances=instances, tasks=each)
    applications = [w for w in workloads if isinstance(w, ApplicationWorkload)]
    writers = [w for w in workloads if isinstance(w, KernelWorkload) and kernel(w.kernel).storage]
    own: tuple[Workload, ...] = tuple(workloads)
    storage_name = ""
    if command:
        program = CommandWorkload(name=command_name(command), argv=tuple(command), mpi=mpi)
        own, storage_name = (program,), program.storage_name
    stored = bool(storage_name or writers or any(map(needs_storage, applications)))
    environments = [
        Environment(
            name=label,
            backend=name,
            image=image,
            attachment=attachment,
            storage=_storage(b) if stored else None,
            guest=_guest(b) if stored else None,
            placements=((many if attachment.seated else one).name,),
        )
        for name, b in backends.items()
        for label, attachment in _attached(name, b, attachments).items()
    ]
    if len(environments) < 2:
        raise UsageError("weigh needs two environments or more", remedy=f"name another one too: {_EXAMPLE}")
    first, *others = (e.name for e in environments)
    titles = {name: b.capabilities.title or name for name, b in backends.items()}
    return Study(
        name="weigh",
        question=_question(
            [titles.get(name, name) for name in others],
            shlex.join(command) or _work([workload_title(w.name) for w in own]),
        ),
        environments=tuple(environments),
        placements=tuple({p.name: p for p in (one, many)}.values()),
        workloads=own,
        design=Design(
            baselines=(first,),
            margin=margin,
            confidence=0.95,
            seed=seed,
            mode=Mode.PLAIN if len(applications) == len(workloads) else Mode.SLICES,
            max_time=max_time,
            warm_up=1,
        ),
    )


MOST_NAMED = 3
"""Maximum number of workloads that a question names."""


def _question(environments: Sequence[str], work: str) -> str:
    """Return the question that a comparison answers, such as 'What does Podman cost ./ring?'."""
    if len(environments) > 1:
        return f"Which of {enumerated(environments)} costs {work} least?"
    (environment,) = environments
    return f"What {'do' if environment.endswith('s') else 'does'} {environment} cost {work}?"


def _work(names: Sequence[str]) -> str:
    """Return workloads as text, such as 'CG and IS', or '5 workloads' if there are many."""
    if len(names) > MOST_NAMED:
        return f"{len(names)} workloads"
    return enumerated(names)


def _storage(backend: Backend) -> Storage:
    """Return storage on a disk of the machine. For a guest this is its root file system, which _guest() puts
    on a disk.

    It is not the overlay of a container, because that is in memory.
    """
    return Storage() if backend.capabilities.virtual else Storage(kind=StorageKind.BIND, path=DISKS)


def _guest(backend: Backend) -> GuestSettings | None:
    """Return guest settings with a disk for the root file system; None if the backend has no guests.

    Without it, the root file system is in memory, and often refuses direct I/O.
    """
    return GuestSettings(writable=DISK) if backend.capabilities.virtual else None


def with_time_limit(study: Study, seconds: float) -> Study:
    """Set the time limit of each program run, in seconds."""
    return replace(study, workloads=tuple(w.limited_to(seconds) for w in study.workloads))


def _attached(name: str, backend: Backend, attachments: Sequence[Attachment]) -> dict[str, Attachment]:
    """Return the attachments with which a backend is measured, by name of the environment.

    The environment has the name of its backend if there is only one, else '<backend>-<attachment>'.

    Raises UsageError if the backend supports none of the attachments.
    """
    own = "net" in backend.capabilities.own
    if not attachments:
        return {name: Attachment.VETH_BRIDGE if own else Attachment.HOST}
    virtual, fitting = backend.capabilities.virtual, backend.capabilities.attachments
    can = [a for a in attachments if a in BARE_ATTACHMENTS or (own and (virtual or a in fitting))]
    if own and not can:
        words = alternatives([a.value for a in attachments])
        takers = alternatives(backends_that(lambda c: c.attachments.issuperset(attachments)))
        usual = f"attachment {', '.join(sorted(fitting))}"
        raise UsageError(
            f"{name} cannot have attachment {words}",
            remedy=f"backend {takers}, or {usual}" if takers else usual,
        )
    can = can or [Attachment.HOST]
    return {name: can[0]} if len(can) == 1 else {f"{name}-{a.value}": a for a in can}


def command_name(command: Sequence[str]) -> str:
    """Return a short name for a command: the last part of the program's path, with characters valid in a
    study file."""
    last = command[0].rstrip("/").rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in last).strip("-") or "command"
