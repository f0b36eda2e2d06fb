"""Moves of an instance with a program, and moves of whole MPI jobs."""

from __future__ import annotations

from collections.abc import Mapping

from ...environments import Checkpoints, Criu, HoldsConnections, Migrates, Unavailable
from ...lifecycle import Method
from ...model.change import replace
from ...model.record import JsonValue, Row
from ...model.workloads.moves import Extent, MoveSubject
from ...network.build import Network
from ...node.arms.starting import seated_request
from ...node.criu import find_criu
from ...node.trial import Trial
from .guest_jobs import move_guests_of_job
from .hooks import SeatChange
from .move_choice import ProcessMethodChooser
from .restores import (
    checkpoint_and_restore,
    facts_of,
    prepared,
    program_facts,
    refusals_by_method,
    require_criu,
    restart_job,
    total_row,
)
from .rows import event_row, slowdown_rows
from .tcp_job import job_network, port_of
from .verified import Restored


def moves_of_processes(trial: Trial, w: MoveSubject, count: int) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Move an instance several times. Return the rows of the trial, and the facts to be recorded with them.

    w: the workload, whose method is set.
    count: number of moves; each starts a new instance.
    Raises UnavailableError if the environment or this machine does not support it; RunError and
    TrialFailedError if a move fails.
    """
    criu = find_criu(trial.node.machine.host)
    chooser = _chooser(trial, require_criu(criu), w) if w.method is Method.AUTO else None
    moved: list[Restored] = []
    facts: list[JsonValue] = []
    for _ in range(count):
        moved.append(one := _move(trial, criu, w, chooser))
        facts.append(facts_of(one) | (chooser.learn(one) if chooser is not None else {}))
    about = {} if chooser is None else {"downtime_limit": chooser.limit}
    return [
        total_row(w, "total", moved),
        event_row(w, "stopped", "s", [one.stopped for one in moved]),
        *slowdown_rows(w, [one.behind for one in moved]),
        event_row(w, "sent", "B", [one.sent for one in moved]),
    ], {**program_facts(trial, w), **about, "moves": facts}


def moves_of_job(trial: Trial, w: MoveSubject, count: int) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Move a whole MPI job several times: one instance with all its processes or, if the instances are
    guests, several guests with one rank in each.

    Return the rows of the trial, and the facts to be recorded with them.
    w: the workload, whose method is set.
    count: number of moves.
    Raises the errors of moves_of_processes() and move_guests_of_job().
    """
    backend = trial.node.backends[trial.arm.environment.backend]
    if not isinstance(backend, Migrates):
        return moves_of_processes(trial, w, count)
    rows, facts = move_guests_of_job(trial, backend, w, count)
    return rows, {**program_facts(trial, w), **facts}


def _chooser(trial: Trial, criu: Criu, w: MoveSubject) -> ProcessMethodChooser:
    environment = trial.arm.environment
    backend = trial.node.backends[environment.backend]
    assert isinstance(backend, Checkpoints)
    return ProcessMethodChooser(
        environment=environment,
        backend=backend,
        refusals=refusals_by_method(w, environment, backend, criu),
        limit=w.most_downtime,
        past=trial.past_moves(w),
    )


def _move(
    trial: Trial, criu: Criu | Unavailable, w: MoveSubject, chooser: ProcessMethodChooser | None
) -> Restored:
    """Move an instance once. An instance with a job moves to another emulated node if it can keep its address
    there. All others stay on their node, and so does a bare job that DMTCP restarts, which needs no root.

    criu: the result of find_criu().
    chooser: chooses the method; None if the workload names one.
    """
    backend = trial.node.backends[trial.arm.environment.backend]
    attachment = trial.arm.environment.attachment
    carried = isinstance(backend, HoldsConnections) and attachment in backend.restored_at
    carried = carried and (attachment.seated or w.method is not Method.DMTCP)
    if w.extent is not Extent.JOB or not carried:
        return checkpoint_and_restore(trial, criu, w, chooser.choose if chooser is not None else None)
    directory = trial.new_directory(f"job-{w.name}")
    with job_network(trial, w, 2, directory) as network:
        moved = _move_job(trial, criu, w, network)
        assert network.emulation is not None
        return replace(moved, node=list(network.emulation.nodes)[1])


def _move_job(trial: Trial, criu: Criu | Unavailable, w: MoveSubject, network: Network) -> Restored:
    """Move an instance with a job from the first seat of a network to the second."""
    host, tools = trial.node.machine.host, trial.node.software_of(trial.arm).tools
    here, there = network.seats
    request = replace(seated_request(trial, here, name=w.name), binds=(trial.directory, tools.directory))
    if w.method is Method.DMTCP:
        other = replace(seated_request(trial, there, name=f"{w.name}-there"), binds=request.binds)
        return restart_job(trial, w, request, other)
    change = SeatChange(
        host=host,
        tools=tools,
        here=here,
        there=there,
        port_here=port_of(network, 0),
        port_there=port_of(network, 1),
    )
    with prepared(trial, require_criu(criu), w, request) as event:
        return replace(event, around=change).run()
