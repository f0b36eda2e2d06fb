"""Moves of one rank of a job to a spare node, while the other ranks stay where they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ...environments import (
    Available,
    Backend,
    Checkpoints,
    Criu,
    HoldsConnections,
    Instance,
    InstanceRequest,
    Migrates,
    Moved,
    MoveRequest,
    RemoteInstance,
    Unavailable,
)
from ...environments.registry import backends_with
from ...errors import RunError, TrialFailedError
from ...host import Host
from ...lifecycle import Method
from ...model.change import replace
from ...model.record import JsonValue, Row
from ...model.study import Attachment, Environment
from ...model.workloads.moves import MoveSubject
from ...network.build import Network
from ...node.arms.starting import with_memory
from ...node.criu import find_criu
from ...node.guests import keep_consoles
from ...node.trial import Trial
from .hooks import SeatChange
from .restores import facts_of, prepared, program_facts, refused_by_criu, require_criu, total_row
from .rows import event_row, reported, slowdown_rows, with_steps
from .tcp_job import (
    JobView,
    TcpJob,
    Window,
    job_network,
    measured_floor,
    port_of,
    rank_request,
    view_of,
)
from .verified import Restored, keeper

RECORD = "/tmp/nm-keeper.record"
"""Path of a rank's record in its guest."""
STEPS_AFTER = 100
"""Number of steps that the job must take after a move of a guest before the move counts as successful."""


def unable_to_move_rank(w: MoveSubject, backend: Backend) -> str | None:
    """Return why a rank of a job cannot be moved in an instance of a backend; None if it can."""
    if w.method is Method.AUTO:
        return "method auto chooses for an instance with one program, not for a rank of a job; name a method"
    if _carried(backend):
        return None
    return (
        f"instances of {backend.name} take no address along, so the connections of a rank would break;"
        f" use backend {backends_with(lambda b: bool(_carried(b)))}"
    )


def _carried(backend: Backend) -> frozenset[Attachment]:
    """Return the attachments with which an instance of a backend keeps its address when it is moved to
    another emulated node."""
    if isinstance(backend, HoldsConnections):
        return backend.restored_at
    return frozenset({Attachment.VETH_BRIDGE} if isinstance(backend, Migrates) else ())


def refuses_to_move_rank(
    w: MoveSubject, environment: Environment, backend: Backend, host: Host, method: Method
) -> Unavailable | None:
    """Return why a rank of a job cannot be moved by a method in an instance of an environment on this
    machine; None if it can."""
    carried = _carried(backend)
    if environment.attachment not in carried:
        return Unavailable(
            reason=f"attachment {environment.attachment} does not carry a rank's address to another node",
            remedy=f"attachment: {' or '.join(sorted(carried))}",
        )
    if not host.is_root():
        return Unavailable(reason="emulated nodes for the ranks need root", remedy="run as root")
    if isinstance(backend, Migrates):
        return backend.unmovable(environment, method)
    assert isinstance(backend, Checkpoints)
    return refused_by_criu(replace(w, method=method), host) or backend.refuses_checkpoint(host, environment)


@dataclass(kw_only=True)
class _RankChange(SeatChange):
    """Moves a rank from one seat to another, and evaluates how the move affects the other ranks.

    before: an undisturbed time before the move (Window).
    requested: begin of the move, in seconds of CLOCK_MONOTONIC.
    view: the move as the other ranks saw it; None until it has ended.
    """

    job: TcpJob
    before: Window = (0.0, 0.0)
    requested: float = 0.0
    view: JobView | None = None

    def begun(self) -> None:
        self.job.joined()
        self.before = measured_floor(self.job)

    def destination(self, request: InstanceRequest) -> InstanceRequest:
        self.requested = time.monotonic()
        return super().destination(request)

    def ended(self, restored: Instance) -> None:
        super().ended(restored)
        move = (self.requested, time.monotonic())
        self.view = view_of(self.job.end(), self.before, move)


def move_processes_of_rank(trial: Trial, criu: Criu, w: MoveSubject) -> tuple[Restored, JobView]:
    """Start a job and move its last rank once, by a method of CRIU.

    Raises UnavailableError or RunError if an instance cannot be started or moved, and TrialFailedError if the
    job does not continue or comes to a wrong result.
    """
    ranks, host = w.job_ranks, trial.node.machine.host
    tools = trial.node.software_of(trial.arm).tools
    directory = trial.new_directory(f"job-{w.name}")
    with ExitStack() as stack:
        network = stack.enter_context(job_network(trial, w, ranks + 1, directory))
        job = _job(trial, w, network, directory, stack)
        requests = [
            replace(
                rank_request(trial, network.seats[rank], f"{w.name}-{rank}", rank),
                binds=(trial.directory, tools.directory),
            )
            for rank in range(ranks)
        ]
        for rank, request in enumerate(requests[:-1]):
            job.attach(rank, stack.enter_context(trial.start(request)), str(directory / f"record.{rank}"))
        moved = ranks - 1
        event = stack.enter_context(prepared(trial, criu, w, replace(requests[moved], connections=True)))
        change = _RankChange(
            host=host,
            tools=tools,
            here=network.seats[moved],
            there=network.seats[ranks],
            port_here=port_of(network, moved),
            port_there=port_of(network, ranks),
            job=job,
        )
        program = keeper(tools, event.memory, event.record, event.dirtied, job.ring(moved))
        done = replace(event, program=program, around=change).run()
    if change.view is None:
        raise RunError("the move of a rank was not seen by the others")
    assert network.emulation is not None
    return replace(done, node=list(network.emulation.nodes)[ranks]), change.view


def _job(trial: Trial, w: MoveSubject, network: Network, directory: Path, stack: ExitStack) -> TcpJob:
    size, rate = w.dirtied
    return TcpJob(
        host=trial.node.machine.host,
        tools=trial.node.software_of(trial.arm).tools,
        instances=trial.node.instances,
        addresses=tuple(seat.address for seat in network.seats[: w.job_ranks]),
        memory=size,
        rate=rate,
        directory=directory,
        stack=stack,
    )


def process_rank_rows(w: MoveSubject, found: Sequence[tuple[Restored, JobView]]) -> list[Row]:
    """Return the rows of a trial in which a rank was moved by CRIU, with one value for each move."""
    moved, views = [one for one, _ in found], [view for _, view in found]
    return [
        _with_job(total_row(w, "total", moved), views),
        event_row(w, "stopped", "s", [one.stopped for one in moved]),
        *_job_rows(w, views),
        event_row(w, "sent", "B", [one.sent for one in moved]),
    ]


def _job_rows(w: MoveSubject, views: Sequence[JobView]) -> list[Row]:
    return [
        event_row(w, "silence", "s", [view.silence for view in views]),
        *slowdown_rows(w, [view.behind for view in views]),
    ]


def _with_job(total: Row, views: Sequence[JobView]) -> Row:
    """Return the row `total` with the verification of the other ranks added. They check each message, and
    would have failed if a connection had broken."""
    verified = {**(total.verification or {}), "steps_of_the_job": min(v.steps for v in views)}
    return replace(total, verification=verified | {"wrong_messages": 0})


def _guest_rank_rows(
    w: MoveSubject, moves: Sequence[Moved], views: Sequence[JobView], memory: Mapping[str, JsonValue]
) -> list[Row]:
    """Return the rows of a trial in which a guest with a rank was moved, with one value for each move.

    memory: what the rank in the moved guest has verified about its memory.
    """
    total = with_steps(event_row(w, "total", "s", [m.total for m in moves]), [m.phases for m in moves])
    stopped, downtimes = [m.stopped for m in moves if m.stopped > 0], reported(m.downtime for m in moves)
    return [
        _with_job(replace(total, verification=memory), views),
        *([event_row(w, "stopped", "s", stopped)] if stopped else []),
        *([event_row(w, "downtime", "s", downtimes)] if downtimes else []),
        *_job_rows(w, views),
        event_row(w, "sent", "B", [float(m.sent) for m in moves]),
    ]


def move_guest_of_rank(
    trial: Trial, backend: Backend, w: MoveSubject, method: Method, count: int
) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Start a job with one rank in each of several guests, and move the guest of the last rank to a spare
    node and back. Return the rows of the trial, and the facts to be recorded with them.

    backend: a backend that moves guests (Migrates).
    count: number of moves.
    Raises UnavailableError or RunError if a guest cannot be started or moved, TrialFailedError if the job
    does not continue or comes to a wrong result, and lifecycle.NotConvergedError if pre-copy takes too long.
    """
    assert isinstance(backend, Migrates)
    ranks, host = w.job_ranks, trial.node.machine.host
    tools = trial.node.software_of(trial.arm).tools
    directory = trial.new_directory(f"job-{w.name}")
    moves, windows = list[Moved](), list[tuple[Window, Window]]()
    with ExitStack() as stack:
        network = stack.enter_context(job_network(trial, w, ranks + 1, directory))
        job = _job(trial, w, network, directory, stack)
        for rank in range(ranks):
            request = rank_request(trial, network.seats[rank], f"{w.name}-{rank}", rank)
            job.attach(rank, stack.enter_context(trial.start(with_memory(request, w.memory))), RECORD)
        job.joined()
        for number in range(count):
            before = measured_floor(job)
            seat = network.seats[ranks if number % 2 == 0 else ranks - 1]
            there = rank_request(trial, seat, f"{w.name}-moved{number}", ranks - 1)
            requested = time.monotonic()
            move = MoveRequest(
                method=method,
                destination=with_memory(there, w.memory),
                bandwidth=w.bandwidth,
                time_limit=w.longest,
                downtime_limit=w.most_downtime,
            )
            now = job.attached[-1].instance
            moved = stack.enter_context(backend.migrate(host, tools, now, move))
            trial.node.instances.moved(now, moved.instance)
            try:
                job.go_on(STEPS_AFTER)
            except TrialFailedError as e:
                guests = [r.instance for r in job.attached if isinstance(r.instance, RemoteInstance)]
                keep_consoles(guests, guests, trial.log)
                able = [m for m in backend.moves_by if backend.unmovable(trial.arm.environment, m) is None]
                raise stopped_by_move(e, method, able, backend.check(host, tools)) from e
            windows.append((before, (requested, time.monotonic())))
            moves.append(moved)
        steps = job.end()
    views = [view_of(steps[:-1], before, move) for before, move in windows]
    memory = {"passes": steps[-1].passes, "wrong_pages": 0, "second_copies": 0}
    own: list[dict[str, JsonValue]] = [{"phases": dict(m.phases.record()), "rounds": m.rounds} for m in moves]
    # The clock of a guest stands still while it is stopped, so its own steps do not show this time.
    pauses = [m.stopped for m in moves]
    return _guest_rank_rows(w, moves, views, memory), _facts(trial, w, views, own, pauses)


def stopped_by_move(
    error: TrialFailedError, method: Method, methods: Sequence[Method], answer: Available | Unavailable
) -> TrialFailedError:
    """Return the error of a job that did not continue after a move of a guest.

    If the move copied memory while the guest ran, and the hypervisor is known to lose writes then, the remedy
    names this cause and the other methods.
    error: what was observed.
    methods: the methods by which the guest can be moved.
    answer: result of the backend's check.
    """
    known = answer.loses_writes if method.copies_first and isinstance(answer, Available) else ""
    others = " or ".join(m for m in methods if not m.copies_first)
    return TrialFailedError(
        f"{error.what}, after a move of its last rank by {method}",
        remedy=f"method {others}: {known}" if known and others else "",
    )


def moves_of_rank(trial: Trial, w: MoveSubject, count: int) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Move one rank of a job several times. Return the rows of the trial, and the facts to be recorded with
    them.

    w: the workload, whose method is set.
    count: number of moves.
    Raises the errors of move_guest_of_rank() and move_processes_of_rank().
    """
    method, backend = w.chosen, trial.node.backends[trial.arm.environment.backend]
    if isinstance(backend, Migrates) and method in backend.moves_by:
        return move_guest_of_rank(trial, backend, w, method, count)
    criu = require_criu(find_criu(trial.node.machine.host))
    found = [move_processes_of_rank(trial, criu, w) for _ in range(count)]
    own, pauses = [facts_of(one) for one, _ in found], [one.pause for one, _ in found]
    return process_rank_rows(w, found), _facts(trial, w, [view for _, view in found], own, pauses)


def _facts(
    trial: Trial,
    w: MoveSubject,
    views: Sequence[JobView],
    moves: Sequence[Mapping[str, JsonValue]],
    pauses: Sequence[float],
) -> dict[str, JsonValue]:
    """Return the facts to be recorded with the rows of a trial.

    moves: facts of each move.
    pauses: for each move, seconds for which the moved rank paused. They are added to the facts of the move,
        after the pauses of the other ranks.
    """
    every = zip(moves, views, pauses, strict=True)
    found: list[JsonValue] = [{**move, "pauses": [*view.pauses, own]} for move, view, own in every]
    return program_facts(trial, w) | {"moves": found, "job": [view.record() for view in views]}
