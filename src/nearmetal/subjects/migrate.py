"""Migration: how long a running guest takes to move to another address of its network, and how long nobody
answers meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

from ..environments import Backend, Instance, Migrates, Moved, MoveRequest
from ..errors import TrialFailedError, UnavailableError
from ..host import Process
from ..host.processes.failure import describe_failure
from ..lifecycle import Method, ProbeResult, Unanswered, evaluate, without_floor
from ..model.record import JsonValue, Row
from ..model.study import Arm, Better, Design, EventSubject, SubjectFacts
from ..network.build import build_networks
from ..network.plan import NetworkRequest
from ..node.arms.starting import seated_request
from ..node.trial import Guard, Trial
from .contract import Cost, Subject
from .event_rows import event_row, measured_row
from .probing import PORT, TCP_EVERY, Probe, interrupt, program_inside
from .rounds import shuffled

MIGRATE = SubjectFacts(
    name="migrate",
    metrics=("total", "stopped", "downtime", "silence", "sent"),
    quantiles=frozenset({"total", "stopped", "silence"}),
    usual=2,
    moves=True,
)
"""Metrics of migrate.

total: from the request until the source is not needed any more.
stopped: from the stop at the source to the resumption at the destination.
downtime: standstill as the mechanism reports it.
silence: longest time without an answer for a client, less that of the same probe without a move; at least
    one period of the probe.
sent: bytes sent.
"""
BOOT_SECONDS, MOVE_SECONDS = 10.0, 3.0
"""Estimated seconds of the start of a guest with the floor of its probe, and of a move."""
DIRTIED, DIRTY_RATE = 16 << 20, 16 << 20
"""Memory that the program in the guest writes again and again: bytes, and bytes of pages per second."""
END_SECONDS = 60.0


class Migrate(Subject):
    """Boots a guest for each arm, one arm after the other in random order, and moves it to and fro.

    A program in the guest writes memory and checks it. A guest whose program finds a wrong page, has stood
    still for good or answers twice fails its trial.
    """

    facts = (MIGRATE,)
    order = 1

    @classmethod
    def unable(cls, workload: EventSubject, backend: Backend) -> str | None:
        if not isinstance(backend, Migrates):
            return f"its instances ({backend.name}) cannot be moved while they run"
        method = workload.method or Method.PRECOPY
        if method not in backend.moves_by:
            return f"{backend.name} does not move by {method}, but by {', '.join(backend.moves_by)}"
        return None

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        del arm
        return Cost(once=sum(BOOT_SECONDS + w.count_in(design) * MOVE_SECONDS for w in workloads))

    def before_start(self) -> None:
        for w in self.workloads:
            for t in shuffled(self.group.taking(w), self.group.rng):
                with Guard(t):
                    _measure(t, w, w.count_in(self.group.design))


def _measure(trial: Trial, w: EventSubject, count: int) -> None:
    """Add the rows of one workload to a trial."""
    node, environment = trial.node, trial.arm.environment
    backend, method = node.backends[environment.backend], w.method or Method.PRECOPY
    assert isinstance(backend, Migrates)
    if (why := backend.unmovable(environment, method)) is not None:
        raise UnavailableError(f"environment {environment.name}: {why.reason}", remedy=why.remedy)
    host, tools = node.machine.host, node.software_of(trial.arm).tools
    directory = trial.directory / f"move-{w.name}-{next(trial.numbers)}"
    directory.mkdir()
    want = NetworkRequest(attachment=environment.attachment, settings=environment.network, instances=2)
    label = f"{node.label}-{trial.slot}-{w.name}"
    with ExitStack() as stack:
        (network,) = stack.enter_context(build_networks(label, [want], directory))
        first = seated_request(trial, network.seats[0], name=w.name)
        now: Instance = stack.enter_context(backend.start(host, tools, first))
        words = [tools / "nm-probe", "answer", "--port", str(PORT)]
        stack.enter_context(program_inside(host, now, words, directory / "answer.txt", "listening"))
        dirty = [tools / "nm-probe", "dirty", "--bytes", str(DIRTIED), "--rate", str(DIRTY_RATE)]
        output = directory / "dirty.txt"
        program = stack.enter_context(program_inside(host, now, dirty, output, "written"))
        probe = Probe(
            host=host, tools=tools, network=network, address=network.seats[0].address, directory=directory
        )
        floor = probe.floor()
        moves: list[tuple[Moved, Unanswered]] = []
        facts: list[JsonValue] = []
        for number in range(count):
            there = seated_request(trial, network.seats[(number + 1) % 2], name=f"{w.name}-{number}")
            move = MoveRequest(method=method, destination=there)
            client = probe.begin(floor.period)
            try:
                moved = stack.enter_context(backend.migrate(host, tools, now, move))
            finally:
                log = client.end(early=True)
            now = moved.instance
            seen = evaluate(log.udp, floor.period)
            if seen.doubled or log.broken is not None:
                raise TrialFailedError(
                    "two copies of the guest answered" if seen.doubled else "a connection to the guest broke"
                )
            moves.append((moved, without_floor(seen, floor)))
            stream = evaluate(log.tcp, floor.period * TCP_EVERY)
            facts.append(_facts(moved, seen, stream))
        _verify(program, output)
    trial.found.rows += _rows(w, moves, floor.period)
    trial.found.facts[w.name] = {
        "method": method.value,
        "floor": dict(asdict(floor)),
        "program": "went on with no wrong page",
        "moves": facts,
    }


def _facts(moved: Moved, seen: ProbeResult, stream: ProbeResult) -> JsonValue:
    return {
        "phases": dict(moved.phases.record()),
        "rounds": moved.rounds,
        "lost_times_period": seen.unanswered,
        "gap": seen.gap,
        "tcp_gap": stream.gap,
        "longest_delay": seen.longest_delay,
    }


def _rows(w: EventSubject, moves: Sequence[tuple[Moved, Unanswered]], period: float) -> list[Row]:
    """Return the rows of a trial. What the mechanism gives as zero has a failed row.

    period: of the probe, in seconds. No silence is shorter, since it is known to one period only.
    """
    timed = [m for m, _ in moves]
    downtimes = [m.downtime for m in timed if m.downtime]
    return [
        event_row(w, "total", "s", [m.total for m in timed]),
        _row_of(w, "stopped", [m.stopped for m in timed if m.stopped > 0], "it took less than a microsecond"),
        _row_of(w, "downtime", downtimes, "the mechanism reports none, or less than a millisecond"),
        event_row(w, "silence", "s", [max(u.gap, period) for _, u in moves]),
        measured_row(w, "sent", "B", Better.LOWER, float(median(m.sent for m in timed)), "nothing was sent"),
    ]


def _row_of(w: EventSubject, metric: str, values: Sequence[float], why: str) -> Row:
    if not values:
        return measured_row(w, metric, "s", Better.LOWER, None, why)
    return event_row(w, metric, "s", values)


def _verify(program: Process, output: Path) -> None:
    """Raises TrialFailedError unless the program in the guest still runs, and ends with the right answer."""
    before = _written(output)
    interrupt(program)
    try:
        status = program.wait(END_SECONDS)
    except TimeoutError as e:
        raise TrialFailedError("the program in the guest does not go on after the move") from e
    text = output.read_text(errors="replace")
    if status != 0:
        raise TrialFailedError(f"in the guest: {describe_failure('nm-probe', status, text)}")
    last: Mapping[str, int] = json.loads(text.splitlines()[-1])
    if last.get("wrong") != 0 or last["pages"] < before:
        raise TrialFailedError("the program in the guest came to a wrong answer after the move")


def _written(output: Path) -> int:
    """Return how many pages the program had written when it last said so."""
    lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith('{"written"')]
    return int(lines[-1]["written"]) if lines else 0
