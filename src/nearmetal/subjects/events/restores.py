"""Checkpoints of an instance in which a program runs, and its restores from copies of the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...environments import (
    BARE_ATTACHMENTS,
    Backend,
    Checkpoints,
    Criu,
    Instance,
    InstanceRequest,
    Unavailable,
)
from ...environments.dmtcp import VARIABLES as DMTCP_VARIABLES
from ...environments.dmtcp import find_dmtcp, refuses_dmtcp
from ...errors import UnavailableError
from ...host import Host
from ...host.runtime import scratch_directory
from ...lifecycle import CopyRound, Method
from ...model.change import replace
from ...model.record import JsonValue, Row
from ...model.study import Attachment, Environment
from ...model.workloads.moves import Extent, LifecycleSubject
from ...node.arms.starting import lone_request
from ...node.criu import find_criu
from ...node.trial import Trial
from .checkpoint_event import CheckpointEvent
from .dmtcp_jobs import RestartEvent
from .mpi_jobs import job_program
from .rows import event_row, slowdown_rows, with_steps
from .verified import Restored

VERIFIED = "went on with no wrong page"


def meets_itself(w: LifecycleSubject, environment: Environment, backend: Backend) -> Unavailable | None:
    """Return why the source and the destination would be on one network at the same time; None if they would
    not. Bare metal never is, since it is restored in another network namespace."""
    common = "net" in backend.capabilities.own and environment.attachment in BARE_ATTACHMENTS
    if not (common and w.method is not None and w.method.fetches_later):
        return None
    return Unavailable(
        reason=f"by {w.method} source and destination exist at the same time, and with attachment"
        f" {environment.attachment} their sockets are on one network",
        remedy=f"attachment: {Attachment.NONE}",
    )


def refused_by_criu(workload: LifecycleSubject, host: Host) -> Unavailable | None:
    """Return why CRIU cannot use the method of a workload on this machine; None if it can."""
    answer = find_criu(host)
    return answer if isinstance(answer, Unavailable) else answer.unable.get(workload.chosen)


def program_facts(trial: Trial, w: LifecycleSubject) -> dict[str, JsonValue]:
    """Return the facts to be recorded about the checkpointed program: the method and the outcome, and for a
    rank or an MPI job also the number of ranks."""
    found: dict[str, JsonValue] = {"method": w.chosen.value, "program": VERIFIED}
    if w.extent is not Extent.INSTANCE:
        found |= {"of": w.extent.value, "ranks": w.job_ranks}
    if w.extent is Extent.JOB:
        found["mpi"] = trial.node.software_of(trial.arm).mpi.title
    return found


def facts_of(one: Restored) -> dict[str, JsonValue]:
    """Return the facts to be recorded about one event, with the pause of each rank if there are several."""
    found: dict[str, JsonValue] = {"phases": dict(one.phases.record()), "rounds": len(one.copied)}
    found |= {"copied": copied_record(one.copied)} | ({"node": one.node} if one.node else {})
    return found | ({"pauses": list(one.pauses)} if len(one.pauses) > 1 else {})


def copied_record(copied: Sequence[CopyRound]) -> JsonValue:
    """Return the rounds of a pre-copy as they are recorded: [bytes, throttled share of the time]
    for each."""
    return [list(r.record()) for r in copied]


def rows(w: LifecycleSubject, found: Sequence[Restored]) -> list[Row]:
    return [
        total_row(w, "checkpoint", found),
        event_row(w, "pause", "s", [one.pause for one in found]),
        event_row(w, "stopped", "s", [one.stopped for one in found]),
        *slowdown_rows(w, [one.behind for one in found]),
        event_row(w, "checkpoint_size", "B", [one.size for one in found]),
        event_row(w, "sent", "B", [one.sent for one in found]),
    ]


def total_row(w: LifecycleSubject, metric: str, found: Sequence[Restored]) -> Row:
    """Return the row with the duration of each event, its phases, and the verification afterwards."""
    steps = [one.phases for one in found]
    row = with_steps(event_row(w, metric, "s", [one.total for one in steps]), steps)
    # checkpoint_and_restore() fails for any other outcome.
    verified: dict[str, JsonValue] = {"passes": min(one.passes for one in found), "wrong_pages": 0}
    if w.extent is not Extent.INSTANCE:
        verified["wrong_messages"] = 0
    return replace(row, verification=verified | {"second_copies": 0})


def refusals_by_method(
    w: LifecycleSubject, environment: Environment, backend: Backend, criu: Criu
) -> dict[Method, Unavailable | None]:
    """Return for each method of a backend why instances of an environment cannot be moved by it here; None if
    they can. Reasons that hold for all methods are left out (Checkpoints.refuses_checkpoint)."""
    assert isinstance(backend, Checkpoints)
    return {
        m: criu.unable.get(m) or meets_itself(replace(w, method=m), environment, backend)
        for m in backend.checkpoints_by
    }


def checkpoint_and_restore(
    trial: Trial,
    criu: Criu | Unavailable,
    w: LifecycleSubject,
    choose: Callable[[Instance, Path], Method] | None = None,
) -> Restored:
    """Measure one checkpoint and restore of an instance of a trial.

    criu: the result of find_criu().
    w: sets the method, and how much memory the program holds and writes to.
    choose: see CheckpointEvent.

    Raises UnavailableError if the environment or this machine does not support it; RunError and
    TrialFailedError if it fails.
    """
    first = lone_request(trial, "checkpoint")
    if w.method is Method.DMTCP:
        return restart_job(trial, w, first, lone_request(trial, "restarted"))
    with prepared(trial, require_criu(criu), w, first) as event:
        return replace(event, choose=choose).run()


def restart_job(trial: Trial, w: LifecycleSubject, here: InstanceRequest, there: InstanceRequest) -> Restored:
    """Measure one checkpoint of a whole MPI job by DMTCP, and its restart in another instance.

    here, there: requests for the instances at the source and at the destination.
    Raises UnavailableError if the environment or this machine does not support it; RunError and
    TrialFailedError if it fails.
    """
    host, environment = trial.node.machine.host, trial.arm.environment
    if (refused := refuses_dmtcp(host, environment)) is not None:
        raise refused.error(f"environment {environment.name}: ")
    dmtcp, software = find_dmtcp(host), trial.node.software_of(trial.arm)
    assert not isinstance(dmtcp, Unavailable)
    with _images(here, w.process_memory) as place:
        record, dirtied = _record_of(trial, here), _dirtied(w)
        scratch = record.parent / "mpi"
        program = job_program(
            trial,
            w,
            record,
            w.process_memory,
            dirtied,
            DMTCP_VARIABLES,
            # Under DMTCP all jobs have the same PIDs, so others can take the names of segments in /dev/shm.
            shared_memory=str(scratch),
        )
        return RestartEvent(
            host=host,
            tools=software.tools,
            dmtcp=dmtcp,
            mpi=software.mpi.kind,
            backend=trial.node.backends[environment.backend],
            here=_with_layer(here, place / "layers" / "here"),
            there=_with_layer(there, place / "layers" / "there"),
            images=place / "here",
            program=program,
            scratch=scratch,
            log=trial.log,
        ).run()


def _with_layer(request: InstanceRequest, layer: Path) -> InstanceRequest:
    """Return the request with the writable layer of the instance's root in a directory that outlives the
    instance. All processes of such an instance descend from its first process.

    layer: the directory, which is created.
    """
    layer.mkdir()
    return replace(request, layer=layer, calls=layer.with_name(f"{layer.name}-calls"))


@contextmanager
def _images(request: InstanceRequest, memory: int) -> Iterator[Path]:
    """Create the directories of one event, and yield their parent. They are removed on exit.

    `here` and `there` are for the images at the source and at the destination, `layers` for the writable
    layers of the instances' roots.
    memory: bytes that the program holds.
    Raises UnavailableError if the images do not fit.
    """
    with scratch_directory(f"{request.label}-images") as place:
        _require_room(place, memory)
        for name in ("here", "there", "layers"):
            (place / name).mkdir()
        yield place


def _dirtied(w: LifecycleSubject) -> tuple[int, int]:
    size, rate = w.dirtied
    return min(size, w.process_memory), rate


def _record_of(trial: Trial, request: InstanceRequest) -> Path:
    return trial.directory / f"{request.scratch.name}.record"


@contextmanager
def prepared(
    trial: Trial, criu: Criu, w: LifecycleSubject, request: InstanceRequest
) -> Iterator[CheckpointEvent]:
    """Yield one checkpoint and restore that is ready to run. Its directories are removed on exit.

    request: the request for the instance.
    Raises UnavailableError if the environment or this machine does not support it.
    """
    host, backend = trial.node.machine.host, trial.node.backends[trial.arm.environment.backend]
    if not isinstance(backend, Checkpoints):
        raise UnavailableError(f"backend {backend.name} offers no checkpoint of its instances")
    method = w.chosen
    if (unable := criu.unable.get(method)) is not None:
        raise unable.error(f"{method}: ")
    refused = backend.refuses_checkpoint(host, request.environment)
    if refused is not None:
        raise refused.error(f"environment {request.environment.name}: ")
    job, memory = w.extent is Extent.JOB, w.process_memory
    with _images(request, memory) as place:
        dirtied, record = _dirtied(w), _record_of(trial, request)
        yield CheckpointEvent(
            host=host,
            tools=trial.node.software_of(trial.arm).tools,
            criu=criu,
            backend=trial.node.backends[trial.arm.environment.backend],
            request=replace(request, connections=True) if job else request,
            method=method,
            limit=w.longest,
            memory=memory,
            dirtied=dirtied,
            images=place / "here",
            there=place / "there",
            layers=place / "layers",
            record=record,
            log=trial.log,
            program=job_program(trial, w, record, memory, dirtied) if job else None,
        )


def require_criu(found: Criu | Unavailable) -> Criu:
    if isinstance(found, Unavailable):
        raise found.error()
    return found


def _require_room(place: Path, memory: int) -> None:
    """Raise UnavailableError if the images and their copy do not fit.

    memory: bytes that the program holds.
    """
    free, needed = shutil.disk_usage(place).free, 3 * memory
    if free < needed:
        raise UnavailableError(
            f"{place} has {free >> 20} MiB free, a checkpoint and its copy need {needed >> 20} MiB",
            remedy="free memory or disk space there",
        )
