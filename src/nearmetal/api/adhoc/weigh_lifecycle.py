"""Makes the study of `weigh --lifecycle`, which compares environments and methods by an event of their
instances, such as a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...environments import Backend
from ...errors import UsageError
from ...lifecycle import Method
from ...model.environments.guest import GuestSettings
from ...model.environments.image import HOST
from ...model.study import (
    Attachment,
    Design,
    Environment,
    LifecycleSubject,
    Mode,
    MoveSubject,
    Placement,
    Study,
)
from ...model.workloads.moves import Extent
from ...node.bases import KERNEL_IMAGE
from ...report.text import enumerated
from ...subjects.registry import by_environment, subject_of

_EXAMPLE = "nearmetal weigh native runc --lifecycle checkpoint"


def lifecycle_study(
    backends: Mapping[str, Backend],
    event: LifecycleSubject,
    methods: Sequence[Method],
    *,
    margin: float,
    seed: int,
    max_time: float,
    image: str = HOST,
) -> Study:
    """Make the study that compares backends and methods by an event.

    backends: by name. The baseline is the first backend that has one of the methods, with the first of its
        methods. The methods of every other backend are also compared with the first method of that backend.
    methods: methods to compare; all that a backend offers if empty. An environment is made for each of them,
        even if the backend lacks the method: the check of the study then reports the reason.
    margin: smallest material difference, as a fraction.
    max_time: time budget in seconds.
    image: image of all environments. If it is the machine's own root, guests get an image with a kernel
        instead, since they could not be moved with that root.

    Raises UsageError if there is nothing to compare.
    """
    subject = subject_of(event)
    environments: list[Environment] = []
    able: dict[str, list[str]] = {}
    for name, backend in backends.items():
        offered = subject.methods(backend)
        wanted: Sequence[Method | None] = (methods or offered) if offered else (None,)
        for method in wanted:
            e = _environment(name, backend, method, event)
            if subject.unable(by_environment(event, e), backend) is None:
                able.setdefault(name, []).append(e.name)
                e = replace(
                    e, image=KERNEL_IMAGE if image == HOST and backend.capabilities.virtual else image
                )
            environments.append(e)
    if len(environments) < 2:
        raise UsageError("weigh needs two environments or methods", remedy=f"name another one: {_EXAMPLE}")
    listed = [name for own in able.values() for name in own] or [e.name for e in environments]
    several = [own[0] for own in able.values() if len(own) > 1]
    return Study(
        name="weigh",
        question=_question(listed, event.facts.event or event.facts.name),
        environments=tuple(environments),
        placements=(Placement(name="1x1", instances=1, tasks=1),),
        workloads=(event,),
        design=Design(
            baselines=tuple(dict.fromkeys((listed[0], *several))),
            margin=margin,
            seed=seed,
            mode=Mode.PLAIN,
            max_time=max_time,
            warm_up=0,
        ),
    )


def _question(names: Sequence[str], event: str) -> str:
    several = len(names) > 1
    return f"Which of {enumerated(names)} is fastest at {event}?" if several else f"How fast is {names[0]}?"


def _environment(name: str, backend: Backend, method: Method | None, event: LifecycleSubject) -> Environment:
    """Return an environment of a backend for a method. Guests are attached to a bridge, on which they can be
    moved, and so are containers if a job moves with its addresses. Others have a network namespace without a
    network."""
    bridged = isinstance(event, MoveSubject) and event.extent is not Extent.INSTANCE
    virtual, own = backend.capabilities.virtual, "net" in backend.capabilities.own
    alone = (Attachment.VETH_BRIDGE if bridged else Attachment.NONE) if own else Attachment.HOST
    guest = GuestSettings() if event.memory is None else GuestSettings(memory=event.memory)
    return Environment(
        name=name if method is None else f"{name}-{method}",
        backend=name,
        attachment=Attachment.VETH_BRIDGE if virtual else alone,
        guest=guest if virtual else None,
        method=method,
        placements=("1x1",),
    )
