"""Studies made from a command line: weigh A B, and the study of one kernel."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..environments import Backend
from ..errors import UsageError
from ..model.image import HOST
from ..model.study import (
    Attachment,
    CommandWorkload,
    Design,
    Environment,
    Mode,
    Placement,
    Study,
    Workload,
)


def weigh_study(
    backends: Mapping[str, Backend],
    *,
    workloads: Sequence[Workload],
    command: Sequence[str],
    ranks: int,
    instances: int,
    mpi: bool,
    margin: float,
    seed: int,
    max_time: float,
    image: str = HOST,
) -> Study:
    """backends by name; the first is the baseline. workloads: of our own; command: a user's program; either;
    image: of all.

    A command runs whole, in plain trials; kernels run by slices. Raises UsageError.
    """
    names = list(backends)
    if len(names) < 2:
        raise UsageError("weigh needs two environments or more", remedy="nearmetal weigh native namespaces")
    if bool(command) == bool(workloads):
        raise UsageError("name either --workload or, behind --, a command")
    if ranks % instances:
        raise UsageError(f"{ranks} ranks do not divide over {instances} instances")
    one = Placement(name=f"1x{ranks}", instances=1, tasks=ranks)
    many = Placement(name=f"{instances}x{ranks // instances}", instances=instances, tasks=ranks // instances)
    environments = [
        Environment(
            name=name,
            backend=name,
            image=image,
            attachment=Attachment.VETH_BRIDGE if "net" in b.own else Attachment.HOST,
            placements=((many if "net" in b.own else one).name,),
        )
        for name, b in backends.items()
    ]
    own: tuple[Workload, ...] = tuple(workloads)
    if command:
        own = (CommandWorkload(name=command_name(command), argv=tuple(command), mpi=mpi),)
    return Study(
        name="weigh",
        question=f"What does {' or '.join(names[1:])} cost {shlex.join(command) or 'these workloads'}"
        f" against {names[0]}?",
        environments=tuple(environments),
        placements=tuple({p.name: p for p in (one, many)}.values()),
        workloads=own,
        design=Design(
            baselines=(names[0],),
            margin=margin,
            confidence=0.95,
            seed=seed,
            mode=Mode.PLAIN if command else Mode.SLICES,
            max_time=max_time,
            warm_up=1,
        ),
    )


def command_name(command: Sequence[str]) -> str:
    """A short name for a command: the program's last path part, fit for a key of a study file."""
    last = command[0].rstrip("/").rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in last).strip("-") or "command"
