"""Checkpoint: an instance is written to files while a program runs in it, and restored from copies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..environments import Backend, Checkpoints, Criu, InstanceRequest, Unavailable
from ..errors import UnavailableError
from ..host import Host
from ..host.runtime import scratch_directory
from ..lifecycle import CopyRound, Method
from ..model.change import replace
from ..model.record import STEP, JsonValue, Row
from ..model.study import Arm, Design, Environment, EventSubject, SubjectFacts
from ..model.workloads.event import LIFECYCLE_KEYS, Extent
from ..node.arms.starting import lone_request, without_seat
from ..node.criu import find_criu
from ..node.trial import Guard, Trial
from .checkpoint_event import CheckpointEvent
from .contract import Cost, Subject, lacks_method, stays_because
from .event_rows import event_row, slowdown_rows
from .mpi_jobs import job_program, unable_to_hold_job
from .rounds import shuffled
from .verified import Restored

CHECKPOINT = SubjectFacts(
    name="checkpoint",
    metrics=("checkpoint", "pause", "stopped", "slowdown", "checkpoint_size", "sent"),
    quantiles=frozenset({"checkpoint", "pause", "stopped"}),
    usual=2,
    keys=LIFECYCLE_KEYS,
)
"""Metrics of a checkpoint and restore.

checkpoint: time from the request until the program goes on in the restored instance, and nothing is left of
    the source. Its steps are those of lifecycle.Phase. Rounds of pre-copy count as `connect`, since the
    program runs. With criu-lazy, `copy` includes the memory that is fetched after the thaw.
pause: longest time between two steps of the program, which takes one each millisecond.
stopped: from the stop of all processes until the program takes its next step.
slowdown: seconds by which the program is behind its own pace afterwards, the standstill included.
checkpoint_size: size of the files from which the instance was restored.
sent: bytes that went from the source to the destination.
"""
MEMORY = 64 << 20
"""Bytes of memory that the program holds, if the workload does not say."""
VERIFIED = "went on with no wrong page"
EVENT_SECONDS = 2.0
"""Estimated seconds of a checkpoint and restore, with the start of the instance and the verification."""


class CheckpointRestore(Subject):
    """Starts an instance without an address on a network, and a program in it that verifies its own memory;
    then writes the instance to files, copies them and restores it. The trial fails unless the program goes on
    as it was, and only once."""

    facts = (CHECKPOINT,)
    order = 1
    own_instances = True

    @classmethod
    def methods(cls, backend: Backend) -> tuple[Method, ...]:
        return backend.checkpoints_by if isinstance(backend, Checkpoints) else ()

    @classmethod
    def unable(cls, workload: EventSubject, backend: Backend) -> str | None:
        if workload.extent is Extent.RANK:
            return "of: rank is moved while the other ranks go on, so it belongs to subject migrate"
        able = cls.methods(backend)
        if not able:
            return f"backend {backend.name} offers no checkpoint of its instances{stays_because(backend)}"
        if workload.extent is Extent.JOB and (why := unable_to_hold_job(workload, backend)) is not None:
            return why
        return lacks_method(workload, backend, able)

    @classmethod
    def refused(
        cls, workload: EventSubject, environment: Environment, backend: Backend, host: Host
    ) -> Unavailable | None:
        assert isinstance(backend, Checkpoints)
        here = cls.refused_by_criu(workload, host)
        return here or backend.refuses_checkpoint(host, without_seat(environment))

    @classmethod
    def refused_by_criu(cls, workload: EventSubject, host: Host) -> Unavailable | None:
        """Return why CRIU cannot checkpoint anything here by the method of a workload; None if it can."""
        answer = find_criu(host)
        return (
            answer if isinstance(answer, Unavailable) else answer.unable.get(workload.method or Method.CRIU)
        )

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        del arm
        return Cost(once=sum(w.count_in(design) for w in workloads) * EVENT_SECONDS)

    def before_start(self) -> None:
        answer = find_criu(self.group.node.machine.host)
        for w in self.workloads:
            count = w.count_in(self.group.design)
            found: dict[str, list[Restored]] = {t.id: [] for t in self.group.trials}
            for _ in range(count):
                for t in shuffled(self.group.taking(w), self.group.rng):
                    with Guard(t):
                        found[t.id].append(
                            checkpoint_and_restore(t, require_criu(answer), w.by(t.arm.environment.method))
                        )
            for t in self.group.taking(w):
                if len(found[t.id]) == count:
                    t.found.rows += rows(w, found[t.id])
                    t.found.facts[w.name] = program_facts(w.by(t.arm.environment.method)) | {
                        "events": [facts_of(one) for one in found[t.id]]
                    }


def program_facts(w: EventSubject) -> dict[str, JsonValue]:
    """Return what was checkpointed, by which method, and what became of it."""
    job: dict[str, JsonValue] = {"of": w.extent.value, "ranks": w.job_ranks}
    own = job if w.extent is not Extent.INSTANCE else {}
    return {"method": (w.method or Method.CRIU).value, "program": VERIFIED} | own


def facts_of(one: Restored) -> JsonValue:
    return {"phases": dict(one.phases.record()), "rounds": one.rounds, "copied": copied_record(one.copied)}


def copied_record(copied: Sequence[CopyRound]) -> JsonValue:
    """Return the rounds of a pre-copy as they are recorded: bytes, and the share of the throttle."""
    return [list(r.record()) for r in copied]


def rows(w: EventSubject, found: Sequence[Restored]) -> list[Row]:
    return [
        total_row(w, "checkpoint", found),
        event_row(w, "pause", "s", [one.pause for one in found]),
        event_row(w, "stopped", "s", [one.stopped for one in found]),
        *slowdown_rows(w, [one.behind for one in found]),
        event_row(w, "checkpoint_size", "B", [one.size for one in found]),
        event_row(w, "sent", "B", [one.sent for one in found]),
    ]


def total_row(w: EventSubject, metric: str, found: Sequence[Restored]) -> Row:
    """Return the row of the time that each event took, with its steps and the verification afterwards."""
    steps = [one.phases.record() for one in found]
    parts = {STEP + name: tuple(one[name] for one in steps) for name in steps[0]}
    row = event_row(w, metric, "s", [one.phases.total for one in found])
    # checkpoint_and_restore() fails for any other outcome.
    verified: dict[str, JsonValue] = {"passes": min(one.passes for one in found), "wrong_pages": 0}
    if w.extent is not Extent.INSTANCE:
        verified["wrong_messages"] = 0
    return replace(row, parts=parts, verification=verified | {"second_copies": 0})


def checkpoint_and_restore(trial: Trial, criu: Criu, w: EventSubject) -> Restored:
    """Measure one checkpoint and restore of an instance of a trial.

    w: says by which method, and how much memory the program holds and writes to.

    Raises UnavailableError if the environment or this machine cannot, RunError and TrialFailedError.
    """
    with prepared(trial, criu, w, lone_request(trial, "checkpoint")) as event:
        return event.run()


@contextmanager
def prepared(
    trial: Trial, criu: Criu, w: EventSubject, request: InstanceRequest
) -> Iterator[CheckpointEvent]:
    """Prepare one checkpoint and restore until exit.

    request: of the instance.
    Raises UnavailableError if the environment or this machine cannot.
    """
    host, backend = trial.node.machine.host, trial.node.backends[trial.arm.environment.backend]
    if not isinstance(backend, Checkpoints):
        raise UnavailableError(f"backend {backend.name} offers no checkpoint of its instances")
    method = w.method or Method.CRIU
    if (unable := criu.unable.get(method)) is not None:
        raise UnavailableError(f"{method}: {unable.reason}", remedy=unable.remedy)
    refused = backend.refuses_checkpoint(host, request.environment)
    if refused is not None:
        raise UnavailableError(
            f"environment {request.environment.name}: {refused.reason}", remedy=refused.remedy
        )
    job = w.extent is Extent.JOB
    with scratch_directory(f"{request.label}-images") as place:
        memory = w.memory or MEMORY
        _require_room(place, memory)
        for name in ("here", "there", "layers"):
            (place / name).mkdir()
        size, rate = w.dirtied
        dirtied = (min(size, memory), rate)
        record = trial.directory / f"{request.scratch.name}.record"
        yield CheckpointEvent(
            host=host,
            tools=trial.node.software_of(trial.arm).tools,
            criu=criu,
            backend=trial.node.backends[trial.arm.environment.backend],
            request=replace(request, connections=True) if job else request,
            method=method,
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
        raise UnavailableError(found.reason, remedy=found.remedy)
    return found


def _require_room(place: Path, memory: int) -> None:
    """Raises UnavailableError if the images and their copy do not fit."""
    free, needed = shutil.disk_usage(place).free, 3 * memory
    if free < needed:
        raise UnavailableError(
            f"{place} has {free >> 20} MiB free, a checkpoint and its copy need {needed >> 20} MiB",
            remedy="free memory or disk space there",
        )
