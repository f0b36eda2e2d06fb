"""Moves of processes by CRIU: an instance with a program, or with a whole MPI job."""

from __future__ import annotations

from collections.abc import Mapping

from ..environments import Criu, HoldsConnections
from ..model.change import replace
from ..model.record import JsonValue, Row
from ..model.workloads.event import EventSubject, Extent
from ..node.arms.starting import seated_request
from ..node.criu import find_criu
from ..node.trial import Trial
from .around import SeatChange
from .checkpoint import (
    checkpoint_and_restore,
    facts_of,
    prepared,
    program_facts,
    require_criu,
    total_row,
)
from .event_rows import event_row, slowdown_rows
from .tcp_job import job_network, port_of
from .verified import Restored


def moves_of_processes(
    trial: Trial, w: EventSubject, count: int
) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Move an instance several times. Return the rows of the trial, and what is recorded beside them.

    w: with a method.
    Raises UnavailableError if the environment or this machine cannot, RunError and TrialFailedError.
    """
    criu = require_criu(find_criu(trial.node.machine.host))
    moved = [_move(trial, criu, w) for _ in range(count)]
    return [
        total_row(w, "total", moved),
        event_row(w, "stopped", "s", [one.stopped for one in moved]),
        *slowdown_rows(w, [one.behind for one in moved]),
        event_row(w, "sent", "B", [one.sent for one in moved]),
    ], program_facts(w) | {"moves": [facts_of(one) for one in moved]}


def _move(trial: Trial, criu: Criu, w: EventSubject) -> Restored:
    """Move an instance once. A job goes to another emulated node if its instance can take its address along;
    other instances have no address."""
    backend = trial.node.backends[trial.arm.environment.backend]
    attachment = trial.arm.environment.attachment
    carried = isinstance(backend, HoldsConnections) and attachment in backend.restored_at
    if w.extent is not Extent.JOB or not carried:
        return checkpoint_and_restore(trial, criu, w)
    host, tools = trial.node.machine.host, trial.node.software_of(trial.arm).tools
    directory = trial.directory / f"job-{w.name}-{next(trial.numbers)}"
    directory.mkdir()
    with job_network(trial, w, 2, directory) as network:
        here, there = network.seats
        request = replace(seated_request(trial, here, name=w.name), binds=(trial.directory, tools.directory))
        change = SeatChange(
            host=host,
            tools=tools,
            here=here,
            there=there,
            port_here=port_of(network, 0),
            port_there=port_of(network, 1),
        )
        with prepared(trial, criu, w, request) as event:
            return replace(event, around=change).run()
