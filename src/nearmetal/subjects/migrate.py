"""Migration: how long a running instance takes to move to another place, and for how long it stands still or
does not answer its clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import msgspec

from ..environments import (
    Backend,
    Migrates,
    Moved,
    MoveRequest,
    Predictable,
    Unavailable,
)
from ..errors import TrialFailedError
from ..host import Host, Process
from ..host.processes.failure import describe_failure
from ..host.replies import read_reply
from ..lifecycle import (
    Method,
    NotConvergedError,
    Unanswered,
    without_floor,
)
from ..model.change import replace
from ..model.environments.guest import StartFrom
from ..model.record import JsonValue, Row
from ..model.study import Arm, Better, Design, Environment, MoveSubject, SubjectFacts
from ..model.workloads.moves import Extent, Load
from ..network.build import build_networks
from ..network.plan import NetworkRequest
from ..node.arms.starting import seated_request, with_memory
from ..node.trial import Guard, Trial
from .checkpoint import EVENT_SECONDS, CheckpointRestore
from .contract import Cost, Subject, lacks_method, stays_because
from .events.move_choice import choose_for_guest
from .events.mpi_jobs import methods_of_extent, unable_to_hold_job
from .events.pace import behind, marked, pace, written_pages
from .events.probing import (
    MOST_SECONDS,
    Probe,
    ProbeResults,
    interrupt,
    program_inside,
    responder,
    results_of,
)
from .events.process_moves import moves_of_job, moves_of_processes
from .events.rank_moves import moves_of_rank, refuses_to_move_rank, unable_to_move_rank
from .events.restores import VERIFIED, copied_record
from .events.rows import event_row, measured_row, reported, slowdown_rows, with_steps
from .rounds import shuffled

MIGRATE = SubjectFacts(
    name="migrate",
    doc="a running instance moves to another place",
    event="a move",
    metrics=(
        *("total", "stopped", "downtime", "silence", "unanswered", "delay", "tcp_silence"),
        *("slowdown", "sent"),
    ),
    quantiles=frozenset({"total", "stopped", "silence"}),
    plurals={"total": "moves", "stopped": "standstills", "silence": "moves"},
    usual=2,
    workload=MoveSubject,
)
"""Metrics of migrate. Times are in seconds.

total: time from the request until the source is no longer needed.
stopped: time from the stop at the source to the resumption at the destination; for processes, to the next
    step of their program.
downtime: standstill as the hypervisor reports it. Guests only.
silence: longest time without an answer to the client of the probe by UDP (ProbeResult.silence), minus the
    lateness of answers without a move; at least the resolution of the probe. Guests only, since processes are
    moved without an address. For a rank of a job: the longest time that another rank waits (tcp_job.JobView).
unanswered: the client's UDP requests without an answer x period (ProbeResult.unanswered), minus the same
    without a move; at least one period of the probe at rest. Guests only.
delay: longest delay of an answer by UDP that did come, minus the same without a move; at least one period of
    the probe at rest. Guests only.
tcp_silence: like silence, for requests over a TCP connection; at least one period of these. Guests only.
slowdown: time by which the program in the instance is behind its usual pace afterwards, including the
    standstill; not measured if the program does too little to have a pace. For a rank: that of the whole job.
sent: bytes sent, or written to files and copied.
"""
BOOT_SECONDS, RESTORE_SECONDS, MOVE_SECONDS = 10.0, 2.5, 1.0
"""Estimated seconds: of the start of a guest by boot, and from a checkpoint, both with a first probe that no
move disturbs; and of one move."""
JOB_SECONDS = 1.7
"""Estimated seconds that the start and the undisturbed run of a job add to the move of one of its ranks."""
CHOICE_SECONDS = 2.0
"""Estimated seconds that `method: auto` adds to a move: it samples the memory of the instance."""
END_SECONDS = 60.0
FULL = "the client of the probe had no room for more requests before the end of the move"
"""Why what a client saw of a move is not known."""


class Migrate(Subject):
    """Moves instances, one arm after the other in random order.

    A guest is started once and moved back and forth. An instance moved by CRIU or DMTCP is started again for
    each move. A program in the instance writes to its memory and verifies it. The trial fails if a page is
    wrong, if the program does not continue, or if two copies of the instance answer.

    `method: auto` chooses for each move by a prediction that the earlier moves of its arm and workload in the
    run correct (Trial.past_moves()), so the choice may change between rounds: their values then come from
    different methods, and the interval contains that difference. The facts of each move record its method,
    the reason and the prediction. A resumed run, and each further machine, starts without earlier moves.
    """

    facts = (MIGRATE,)
    order = 1
    own_instances = True

    @classmethod
    def methods(cls, backend: Backend) -> tuple[Method, ...]:
        own = backend.moves_by if isinstance(backend, Migrates) else ()
        usual = sorted(own, key=lambda method: method is not Method.PRECOPY)
        return tuple(dict.fromkeys((*usual, *CheckpointRestore.methods(backend))))

    @classmethod
    def method(cls, workload: MoveSubject, backend: Backend) -> Method | None:
        """Return the method; see Subject. The guests of a whole job are stopped together by default."""
        if workload.method is None and workload.extent is Extent.JOB and isinstance(backend, Migrates):
            return Method.OFFLINE
        return super().method(workload, backend)

    @classmethod
    def unable(cls, workload: MoveSubject, backend: Backend) -> str | None:
        able = cls.methods(backend)
        if not able:
            return f"its instances ({backend.name}) cannot be moved while they run{stays_because(backend)}"
        if workload.extent is Extent.RANK and (why := unable_to_move_rank(workload, backend)) is not None:
            return why
        if workload.extent is Extent.JOB and (why := unable_to_hold_job(workload, backend)) is not None:
            return why
        if workload.method is Method.AUTO:
            if isinstance(backend, Predictable) or not isinstance(backend, Migrates):
                return None
            return f"{backend.name} does not see the memory of its guests, so no method can be chosen"
        return lacks_method(workload, backend, methods_of_extent(workload, backend, able))

    @classmethod
    def refused(
        cls, workload: MoveSubject, environment: Environment, backend: Backend, host: Host
    ) -> Unavailable | None:
        workload = cls.with_method(workload, backend)
        method = workload.chosen
        over_guests = workload.extent is Extent.JOB and isinstance(backend, Migrates)
        if workload.extent is Extent.RANK or over_guests:
            return refuses_to_move_rank(workload, environment, backend, host, method)
        if not isinstance(backend, Migrates) or method not in (*backend.moves_by, Method.AUTO):
            every = cls.methods(backend) if method is Method.AUTO else (method,)
            return _first_unless_one_fits(
                CheckpointRestore.refused(replace(workload, method=one), environment, backend, host)
                for one in every
            )
        every = backend.moves_by if method is Method.AUTO else (method,)
        return _first_unless_one_fits(backend.unmovable(environment, one) for one in every)

    @classmethod
    def cost(cls, workloads: Sequence[MoveSubject], arm: Arm, design: Design) -> Cost:
        guest = arm.environment.guest
        restored = guest is not None and guest.start is StartFrom.RESTORED
        start = RESTORE_SECONDS if restored else BOOT_SECONDS
        once = 0.0
        for w in (w.by(arm.environment.method) for w in workloads):
            auto = w.method is Method.AUTO
            alone = auto and not arm.environment.attachment.seated  # A guest that moves has an address.
            processes = alone or (w.method is not None and w.method.of_processes)
            boot, each = (0.0, EVENT_SECONDS) if processes else (start, MOVE_SECONDS)
            each += CHOICE_SECONDS if auto else 0.0
            each += JOB_SECONDS if w.extent is Extent.RANK else 0.0
            # Guests of one job are restored at the same time; the boots of several take turns on the CPUs.
            once += boot * (1 if restored else w.job_ranks) + w.count_in(design) * each
        return Cost(once=once)

    def before_start(self) -> None:
        for w in self.workloads:
            for t in shuffled(self.group.taking(w), self.group.rng):
                with Guard(t):
                    self._measure(t, w.by(t.arm.environment.method))

    def _measure(self, trial: Trial, w: MoveSubject) -> None:
        backend = trial.node.backends[trial.arm.environment.backend]
        w = self.with_method(w, backend)
        method, count = w.chosen, w.count_in(self.group.design)
        moves = {Extent.RANK: moves_of_rank, Extent.JOB: moves_of_job}.get(w.extent, moves_of_processes)
        guest = isinstance(backend, Migrates) and method in (*backend.moves_by, Method.AUTO)
        if guest and w.extent is Extent.INSTANCE:
            _move_guest(trial, backend, w, count)
            return
        try:
            rows, facts = moves(trial, w, count)
        except NotConvergedError as e:
            rows, facts = endless_rows(w, e.what), {}
        trial.found.rows += rows
        trial.found.facts[w.name] = facts


def _first_unless_one_fits(refusals: Iterable[Unavailable | None]) -> Unavailable | None:
    """Return the first refusal; None if one of them is None. Refusals after a None are not computed."""
    first: Unavailable | None = None
    for refusal in refusals:
        if refusal is None:
            return None
        first = first or refusal
    return first


def _move_guest(trial: Trial, backend: Backend, w: MoveSubject, count: int) -> None:
    """Start a guest, move it `count` times, and add the rows and facts of the workload to the trial.

    backend: a backend that moves guests (Migrates).
    Raises UnavailableError, RunError, or TrialFailedError if the guest does not survive a move.
    """
    assert isinstance(backend, Migrates)
    node, environment = trial.node, trial.arm.environment
    method, limit = w.chosen, w.most_downtime
    if method is not Method.AUTO and (why := backend.unmovable(environment, method)) is not None:
        raise why.error(f"environment {environment.name}: ")
    host, tools = node.machine.host, node.software_of(trial.arm).tools
    directory = trial.new_directory(f"move-{w.name}")
    want = NetworkRequest(attachment=environment.attachment, settings=environment.network, instances=2)
    label = f"{node.label}-{trial.slot}-{w.name}"
    with ExitStack() as stack:
        (network,) = stack.enter_context(build_networks(label, [want], directory))
        first = with_memory(seated_request(trial, network.seats[0], name=w.name), w.memory)
        now = stack.enter_context(trial.start(first))
        stack.enter_context(
            program_inside(host, now, responder(tools), directory / "answer.txt", "listening")
        )
        size, rate = w.dirtied
        dirty = [tools / "nm-probe", "dirty", "--bytes", str(size), "--rate", str(rate)]
        output = directory / "dirty.txt"
        program = stack.enter_context(program_inside(host, now, dirty, output, "written"))
        probe = Probe(
            host=host, tools=tools, network=network, address=network.seats[0].address, directory=directory
        )
        floor = probe.floor(node.probe_rests)
        moves: list[SeenMove] = []
        slower: list[float | None] = []
        facts: list[JsonValue] = []
        past = trial.past_moves(w)
        endless, works = "", w.load is not Load.IDLE
        for number in range(count):
            now = node.instances[first.label]
            there = seated_request(trial, network.seats[(number + 1) % 2], name=f"{w.name}-{number}")
            plan = choose_for_guest(backend, environment, now, w, past) if method is Method.AUTO else None
            move = MoveRequest(
                method=plan.choice.method if plan is not None else method,
                destination=with_memory(there, w.memory),
                bandwidth=w.bandwidth,
                time_limit=w.longest,
                downtime_limit=plan.rest if plan is not None else limit,
            )
            client = probe.begin(floor.intervals, MOST_SECONDS + w.longest)
            try:
                # All under the load of the probe, which slows an emulated guest down.
                begun = marked(output) if works else None
                before = marked(output) if works else None
                moved = stack.enter_context(backend.migrate(host, tools, now, move))
                after = marked(output) if works else None
            except NotConvergedError as e:
                endless = e.what
                facts.append({"method": move.method.value, "copied": copied_record(e.copied), "ended": False})
                break
            finally:
                log = client.end(early=True)
            node.instances.moved(now, moved.instance)
            if begun is not None and before is not None and after is not None:
                slower.append(behind(pace(begun, before), before, after))
            seen = results_of(log, floor.intervals)
            if seen.udp.doubled or log.broken is not None:
                what = "two copies of the guest answered" if seen.udp.doubled else ""
                raise TrialFailedError(what or "a connection to the guest broke")
            if log.full is None and log.tcp and not log.tcp[-1].answers:
                raise TrialFailedError("the TCP connection to the guest does not continue after the move")
            udp, tcp = without_floor(seen.udp, floor.udp), without_floor(seen.tcp, floor.tcp)
            moves.append(SeenMove(moved=moved, udp=udp, tcp=tcp, full=log.full is not None))
            fact = _facts(move.method, moved, seen if log.full is None else None)
            if plan is not None:
                fact |= plan.record(moved.total, moved.stopped)
                past.append(plan.compared(moved.total, moved.stopped))
            facts.append(fact)
        verified = _verify(program, output)
    trial.found.rows += endless_rows(w, endless) if endless else guest_rows(w, moves, slower, floor, verified)
    trial.found.facts[w.name] = {
        "method": method.value,
        "downtime_limit": limit,
        "floor": dict(asdict(floor.udp)),
        "tcp_floor": dict(asdict(floor.tcp)),
        "program": VERIFIED,
        "moves": facts,
    }


@dataclass(frozen=True, kw_only=True)
class SeenMove:
    """A move, and the answers that its client missed by UDP and by TCP, without the floor.

    full: whether the client stopped before the end of the move, since it had no room for more requests. What
        it missed afterwards is not known.
    """

    moved: Moved
    udp: Unanswered
    tcp: Unanswered
    full: bool = False


def _facts(method: Method, moved: Moved, seen: ProbeResults | None) -> dict[str, JsonValue]:
    """Return the facts of a move.

    seen: None if the client had no room for more requests before the end of the move.
    """
    facts: dict[str, JsonValue] = {
        "method": method.value,
        "phases": dict(moved.phases.record()),
        "rounds": moved.rounds,
        "copied": copied_record(moved.copied),
        "ended": True,
    }
    if seen is None:
        return {**facts, "client": FULL}
    return {
        **facts,
        "lost_times_period": seen.udp.unanswered,
        "gap": seen.udp.gap,
        "tcp_gap": seen.tcp.gap,
        "longest_delay": seen.udp.longest_delay,
        "repeated": seen.udp.repeated,
    }


def endless_rows(w: MoveSubject, why: str) -> list[Row]:
    """Return failed rows for all metrics of a workload whose move did not converge. The trial itself does not
    fail, so that the other workloads of its arm are still measured.

    why: message of the hypervisor.
    """
    units = {metric: "B" if metric == "sent" else "s" for metric in MIGRATE.metrics}
    return [measured_row(w, metric, unit, Better.LOWER, None, why) for metric, unit in units.items()]


def guest_rows(
    w: MoveSubject,
    moves: Sequence[SeenMove],
    slower: Sequence[float | None],
    floor: ProbeResults,
    verified: Mapping[str, JsonValue],
) -> list[Row]:
    """Return the rows of a trial. A metric that is zero in every move gets a failed row, as do those of the
    client if it had no room for all requests of a move.

    slower: seconds by which the program was behind after each move; None if not known.
    floor: results of the probe without a move. Silences are recorded as no shorter than their resolution.
    verified: what the program has verified afterwards.
    """
    timed = [m.moved for m in moves]
    # Without its longest silence, a trial would seem to have short ones only.
    heard = () if any(m.full for m in moves) else moves
    least = floor.udp.rest
    downtimes = reported(m.downtime for m in timed)
    total = with_steps(event_row(w, "total", "s", [m.total for m in timed]), [m.phases for m in timed])
    return [
        replace(total, verification=verified),
        _row_of(w, "stopped", [m.stopped for m in timed if m.stopped > 0], "it took less than a microsecond"),
        _row_of(w, "downtime", downtimes, "the mechanism reports none, or less than a millisecond"),
        _row_of(w, "unanswered", [max(m.udp.lost, least) for m in heard], FULL),
        _row_of(w, "silence", [max(m.udp.gap, floor.udp.resolution) for m in heard], FULL),
        _row_of(w, "delay", [max(m.udp.delay, least) for m in heard], FULL),
        # The answer that ends a silence was waiting, so only its beginning lies between two requests.
        _row_of(w, "tcp_silence", [max(m.tcp.gap, floor.tcp.rest) for m in heard], FULL),
        *slowdown_rows(w, slower),
        measured_row(w, "sent", "B", Better.LOWER, float(median(m.sent for m in timed)), "nothing was sent"),
    ]


def _row_of(w: MoveSubject, metric: str, values: Sequence[float], why: str) -> Row:
    if not values:
        return measured_row(w, metric, "s", Better.LOWER, None, why)
    return event_row(w, metric, "s", values)


class _DirtyEnd(msgspec.Struct, frozen=True):
    """The last line of nm-probe dirty: pages that it has written, and those that it found wrong."""

    pages: int
    wrong: int


def _verify(program: Process, output: Path) -> Mapping[str, JsonValue]:
    """End the program in the guest, and return what it has verified.

    Raises TrialFailedError if it does not end within END_SECONDS, fails, or found a wrong page.
    """
    before = written_pages(output)
    interrupt(program)
    try:
        status = program.wait(END_SECONDS)
    except TimeoutError as e:
        raise TrialFailedError("the program in the guest does not continue after the move") from e
    text = output.read_text(errors="replace")
    if status != 0:
        raise TrialFailedError(f"in the guest: {describe_failure('nm-probe', status, text)}")
    last = read_reply(text.rstrip().rpartition("\n")[2], _DirtyEnd, str(output))
    if last.wrong != 0 or last.pages < before:
        raise TrialFailedError("the program in the guest computed a wrong answer after the move")
    return {"pages_written": last.pages, "wrong_pages": 0, "second_copies": 0}
