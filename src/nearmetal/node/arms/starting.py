"""The new instances of a trial: their requests, and their start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...environments import (
    Backend,
    Checkpoints,
    EnablesMoves,
    Enclosed,
    EnclosedInstance,
    Instance,
    InstanceRequest,
    RemoteInstance,
)
from ...environments.registry import backends_with
from ...environments.storage import Volume
from ...errors import TrialFailedError, UnavailableError
from ...host.namespaces import same_namespace
from ...host.runtime import scratch_directory
from ...model.environments.guest import GuestSettings
from ...model.environments.network import Seat
from ...model.record import start_phase
from ...model.study import Arm, Attachment, Environment, Starts
from ..inner_networks import joined_in
from ..storage import bound, make_inside, volumes
from ..survey.preflight import seen_directories
from ..trial import Trial
from .seats import hostname
from .start_group import Group, Start, started


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The virtual machine that instances run inside.

    guest: the virtual machine; None if the instances run in none, or in one that is not running yet.
    alone: whether no instance of another arm runs in it.
    """

    guest: Instance | None = None
    alone: bool = True


@contextmanager
def started_instances(
    trial: Trial, surroundings: Surroundings, *, time_stop: bool = False
) -> Iterator[tuple[Group, tuple[Volume, ...]]]:
    """Start new instances of a trial, with their storage. Yields the instances, and the volume of each.

    time_stop: also measure their stop. The group contains its durations after exit.
    """
    arm, node = trial.arm, trial.node
    backend = node.backends[arm.environment.backend]
    requests = [_request(trial, i) for i in range(arm.placement.all_instances)]
    together = node.study.design.starts is Starts.TOGETHER
    with (
        with_layers(backend, requests) as requests,
        volumes(node, arm.environment, backend, requests) as own_volumes,
        guest_around(trial, surroundings) as around,
        _network_in(trial, around),
        started(
            _starts(trial, around, bound(requests, own_volumes)), together=together, time_stop=time_stop
        ) as group,
    ):
        make_inside(node.machine.host, group.instances, own_volumes)
        for instance in group.instances:
            _verify_shared(arm, instance)
            _verify_enclosed(arm, instance)
            if arm.environment.movable and isinstance(backend, EnablesMoves):
                backend.enable_moves(instance)
        if group.has_first_process:
            trial.found.phases |= {start_phase(k): v for k, v in group.instances[-1].phases.items()}
            trial.found.phases |= {start_phase(f"instance.{i}"): v for i, v in enumerate(group.seconds)}
        yield group, own_volumes


@contextmanager
def with_layers(backend: Backend, requests: Sequence[InstanceRequest]) -> Iterator[list[InstanceRequest]]:
    """Yield the requests, where each movable instance of a backend with checkpoints gets a directory for its
    writable layer. A checkpoint needs a layer that outlives the instance. The directories are removed on
    exit."""
    with ExitStack() as stack:
        out = []
        for request in requests:
            if request.environment.movable and isinstance(backend, Checkpoints):
                place = stack.enter_context(scratch_directory(f"{request.label}-layer"))
                (place / "root").mkdir()
                request = replace(request, layer=place / "root", calls=place / "calls")
            out.append(request)
        yield out


def _verify_shared(arm: Arm, instance: Instance) -> None:
    """Check that an instance shares the namespaces that it should share.

    Raises UnavailableError if it has its own namespace of such a kind.
    """
    for kind in arm.environment.share:
        if not same_namespace(instance.pid, kind.value):
            raise UnavailableError(
                f"environment {arm.environment.name}: {arm.environment.backend} gave {instance.hostname} "
                f"a namespace of its own ({kind.value})",
                remedy="take share out of the environment, or use another backend",
            )


def _verify_enclosed(arm: Arm, instance: Instance) -> None:
    """Check that an instance inside a guest can be reached there.

    Raises UnavailableError if its backend gave an instance without the interfaces that this takes.
    """
    if arm.environment.inside is None:
        return
    for interface in (EnclosedInstance, RemoteInstance):
        if not isinstance(instance, interface):
            raise UnavailableError(
                f"environment {arm.environment.name}: {arm.environment.backend} started {instance.hostname} "
                f"inside a guest, but the instance does not implement {interface.__name__}",
                remedy="complete the backend; see Enclosed in nearmetal.environments.contract",
            )


def _starts(trial: Trial, around: Surroundings, requests: Sequence[InstanceRequest]) -> list[Start]:
    if around.guest is None:
        return [partial(trial.start, request, number) for number, request in enumerate(requests)]
    node, backend = trial.node, trial.node.backends[trial.arm.environment.backend]
    if not isinstance(backend, Enclosed):
        takers = backends_with(lambda b: isinstance(b, Enclosed))
        raise UnavailableError(f"backend {backend.name} starts nothing inside a guest", remedy=takers)
    alone = around.alone and len(requests) == 1
    inside = partial(backend.start_inside, around.guest, node.software_of(trial.arm).tools, alone=alone)
    return [partial(node.instances.started, inside(request)) for request in requests]


def _network_in(trial: Trial, around: Surroundings) -> AbstractContextManager[None]:
    """Build the network of the instances of a trial in the guest that holds them, if they have one there."""
    network = trial.network if trial.arm.environment.inside is not None else None
    return nullcontext() if network is None else joined_in(around.guest, network)


@contextmanager
def guest_around(trial: Trial, surroundings: Surroundings) -> Iterator[Surroundings]:
    """Yield the virtual machine that the instances of a trial run inside.

    If the arm needs one and none is running for it, one is booted for this trial only, without a network. It
    has the CPUs of all instances, and is stopped on exit.
    """
    arm, node = trial.arm, trial.node
    name = arm.environment.inside
    if name is None or surroundings.guest is not None:
        yield surroundings
        return
    environment = next(e for e in node.study.environments if e.name == name)
    request = replace(
        _request(trial, 0, name="guest"),
        environment=without_seat(environment),
        cpus=trial.all_cpus,
        seat=None,
        binds=(),
        base=node.bases[name],
    )
    with trial.start(request) as guest:
        yield Surroundings(guest=guest)


@contextmanager
def idle_instances(trial: Trial, surroundings: Surroundings, count: int) -> Iterator[Group]:
    """Start idle instances of a trial in parallel, and stop them on exit.

    They have no network address and run no program.
    """
    requests = [lone_request(trial, f"idle{i}", i % trial.arm.placement.all_instances) for i in range(count)]
    with (
        guest_around(trial, surroundings) as around,
        started(_starts(trial, around, requests), together=True) as group,
    ):
        yield group


def lone_request(trial: Trial, name: str, place: int = 0) -> InstanceRequest:
    """Return the request for a further instance of a trial, which has no seat on a network.

    name: last part of its label and of its host name.
    place: the instance of the arm on whose CPUs it runs.
    """
    requested = _request(trial, place, name=name)
    if requested.seat is None:
        return requested
    return replace(requested, seat=None, environment=without_seat(requested.environment))


def without_seat(environment: Environment) -> Environment:
    """Return an environment whose instances have no seat on a network."""
    if not environment.attachment.seated:
        return environment
    return replace(environment, attachment=Attachment.NONE)


def seated_request(trial: Trial, seat: Seat, *, name: str, place: int = 0) -> InstanceRequest:
    """Return the request for a further instance of a trial, at a seat of a network that is not the arm's.

    name: last part of its label and of its host name.
    place: the instance of the arm on whose CPUs it runs.
    """
    tools = trial.node.software_of(trial.arm).tools.directory
    return replace(_request(trial, place, name=name), seat=seat, binds=(tools,))


def with_memory(request: InstanceRequest, memory: int | None) -> InstanceRequest:
    """Return a request for a guest with this much memory; unchanged for None."""
    if memory is None:
        return request
    guest = replace(request.environment.guest or GuestSettings(), memory=memory)
    return replace(request, environment=replace(request.environment, guest=guest))


def _request(trial: Trial, number: int, *, name: str | None = None) -> InstanceRequest:
    """Return the request for one instance of a trial, with a scratch directory of its own.

    number: index of the instance within the arm.
    name: end of its label and host name; None for the number.
    """
    arm, node = trial.arm, trial.node
    software = node.software_of(arm)
    network = trial.network
    if network is not None and (gone := network.trouble()):
        raise TrialFailedError(
            gone, remedy="find what removed it, and start the run again: a run does not rebuild its networks"
        )
    label, hostname, scratch = request_name(trial, name or str(number))
    virtual = node.backends[arm.environment.backend].capabilities.virtual
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=arm.environment,
        cpus=trial.instance_cpus(number),
        seat=network.seats[number] if network is not None else None,
        binds=(
            trial.directory,
            *((trial.work,) if trial.work is not None else ()),
            software.tools.directory,
            *((node.ssh.directory,) if node.ssh else ()),
            *seen_directories(node.study, arm, node.working_directory.path, virtual=virtual),
        ),
        views=node.working_directory.views,
        scratch=scratch,
        tree=software.tree,
        user_namespace=node.user_namespace,
        base=node.bases.get(arm.environment.name),
        first_process=any(w.event for w in node.study.workloads),
        groups=kept.groups if (kept := node.accounting.get(label)) is not None else {},
    )


def request_name(trial: Trial, name: str) -> tuple[str, str, Path]:
    """Return the label, the host name and a new scratch directory for an instance of a trial."""
    own = f"{trial.slot}-{name}"
    return f"{trial.node.label}-{own}", hostname(own), trial.private_directory(f"instance-{name}")
