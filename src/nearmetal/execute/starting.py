"""The fresh instances of one arm of one block: what each is asked to be, and their start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..environments import Enclosed, Instance, InstanceRequest
from ..errors import TrialFailedError, UnavailableError
from ..host.namespaces import same_namespace
from ..model.study import Arm, Attachment, EventSubject, Starts
from ..study_file.backends import backends_that
from .hidden import hidden_programs
from .seats import hostname, slot
from .session import Session
from .standing import Standing
from .storage import bound, make_inside, volumes
from .together import Group, Start, started


@contextmanager
def start_instances(
    session: Session, standing: Standing, *, time_stop: bool = False
) -> Iterator[tuple[Instance, ...]]:
    """Fresh instances of an arm; adds the time from the request to the first instruction of the last one to
    standing.start_seconds and, with time_stop, that of their stop to standing.stops."""
    backend = session.backends[standing.arm.environment.backend]
    requests = [_request(session, standing, i) for i in range(standing.arm.placement.all_instances)]
    together = session.study.design.starts is Starts.TOGETHER
    with (
        volumes(session, standing.arm.environment, backend, requests) as standing.volumes,
        guest_around(session, standing),
        started(
            _starts(session, standing, bound(requests, standing.volumes)),
            together=together,
            time_stop=time_stop,
        ) as own,
    ):
        make_inside(session.machine.host, own.instances, standing.volumes)
        for instance in own.instances:
            _verify_shared(standing.arm, instance)
        if own.instances[-1].phases:
            standing.start_seconds.append(max(own.seconds))
            standing.start_steps.append(own.steps)
            standing.phases |= {f"start.{k}": v for k, v in own.instances[-1].phases.items()}
            standing.phases |= {f"start.instance.{i}": v for i, v in enumerate(own.seconds)}
        yield own.instances
    if own.stopped is not None:
        standing.stops.append(own.stopped)


def _verify_shared(arm: Arm, instance: Instance) -> None:
    """Raises UnavailableError where an instance has a namespace of its own that it was to share."""
    for kind in arm.environment.share:
        if not same_namespace(instance.pid, kind.value):
            raise UnavailableError(
                f"environment {arm.environment.name}: {arm.environment.backend} gave {instance.hostname} "
                f"a namespace of its own ({kind.value})",
                remedy="take share out of the environment, or use the backend namespaces as root",
            )


def _starts(session: Session, standing: Standing, requests: Sequence[InstanceRequest]) -> list[Start]:
    backend = session.backends[standing.arm.environment.backend]
    host, tools = session.machine.host, session.software_of(standing.arm).tools
    if standing.around is None:
        return [partial(backend.start, host, tools, request) for request in requests]
    if not isinstance(backend, Enclosed):
        takers = backends_that(lambda can: can.stands_inside)
        raise UnavailableError(
            f"backend {backend.name} starts nothing inside a guest", remedy=" or ".join(takers)
        )
    inside = partial(backend.start_inside, standing.around, tools, alone=standing.alone)
    return [partial(inside, request) for request in requests]


@contextmanager
def guest_around(session: Session, standing: Standing) -> Iterator[None]:
    """The guest that the instances of an arm stand inside: one of their own, up meanwhile, where no other is
    up for them. It is alone, and needs no network."""
    name = standing.arm.environment.inside
    if name is None or standing.around is not None:
        yield
        return
    environment = next(e for e in session.study.environments if e.name == name)
    lone = Attachment.NONE if environment.attachment.seated else environment.attachment
    request = replace(
        _request(session, standing, 0, name="guest"),
        environment=replace(environment, attachment=lone),
        binds=(),
        base=session.bases[name],
    )
    backend, tools = session.backends[environment.backend], session.software_of(standing.arm).tools
    with backend.start(session.machine.host, tools, request) as standing.around:
        try:
            yield
        finally:
            standing.around = None


@contextmanager
def idle_instances(session: Session, standing: Standing, count: int) -> Iterator[Group]:
    """So many further instances of an arm, side by side, with no seat on a network and nothing to do."""
    requests = [_idle_request(session, standing, i) for i in range(count)]
    with (
        guest_around(session, standing),
        started(_starts(session, standing, requests), together=True) as own,
    ):
        yield own


def _idle_request(session: Session, standing: Standing, number: int) -> InstanceRequest:
    place = number % standing.arm.placement.all_instances
    asked = _request(session, standing, place, name=f"idle{number}")
    if asked.seat is None:
        return asked
    alone = Attachment.NONE if asked.environment.attachment.seated else asked.environment.attachment
    return replace(asked, seat=None, environment=replace(asked.environment, attachment=alone))


def _request(
    session: Session, standing: Standing, number: int, *, name: str | None = None
) -> InstanceRequest:
    """What one instance of a standing arm is asked to be, with a scratch directory of its own. number: its
    place among the arm's; name: ends its label and its host name, the number where none is given."""
    arm = standing.arm
    software = session.software_of(arm)
    network = session.networks.get((arm.name, standing.trial.aa))
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(gone, remedy="what removed it? the network is not built anew within a run")
    label, hostname, scratch = request_name(session, standing, name or str(number))
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=arm.environment,
        cpus=session.instance_cpus(arm, number),
        seat=network.seats[number] if network is not None else None,
        binds=(
            standing.directory,
            *((standing.work,) if standing.work is not None else ()),
            software.tools.directory,
            *((session.ssh.directory,) if session.ssh else ()),
            *hidden_programs(session.study, arm),
        ),
        scratch=scratch,
        tree=software.tree,
        user_namespace=session.user_namespace,
        base=session.bases.get(arm.environment.name),
        first_process=any(isinstance(w, EventSubject) for w in session.study.workloads),
        groups=kept.groups if (kept := session.kept.get(label)) is not None else {},
    )


def request_name(session: Session, standing: Standing, name: str) -> tuple[str, str, Path]:
    """Label, host name and a new scratch directory of an instance of an arm."""
    own = f"{slot_of(session, standing)}-{name}"
    scratch = standing.directory / f"instance-{name}-{standing.requests}"
    standing.requests += 1
    scratch.mkdir()
    return f"{session.label}-{own}", hostname(own), scratch


def slot_of(session: Session, standing: Standing) -> str:
    """Its place among the arms of the run, as names of what it makes begin."""
    return slot(session.arms, standing.arm.name, standing.trial.aa)
