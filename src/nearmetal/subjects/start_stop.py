"""Events of the instances as subjects: start and stop again and again, commands in standing instances, idle
instances at once."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..environments import Guest, Instance
from ..errors import TrialFailedError
from ..host import Unavailable, cgroups
from ..host.counters import local_scale, snapshot
from ..host.helper import wait_readable
from ..host.procfiles import instance_counters, node_counters, proportional_set
from ..model.change import replace
from ..model.record import STEP, Row, Status
from ..model.study import Better, Event, EventSubject, Study
from ..node.node import Session
from ..node.starting import guest_around, idle_instances, start_instances
from ..node.trial import Standing
from .rounds import guarded, shuffled, sound, taking

COMMAND_LIMIT = 60.0
"""Seconds after which a command in a standing instance has failed; a good one takes milliseconds."""
GIB = 1 << 30


def event_subjects(study: Study, *events: Event) -> list[EventSubject]:
    """Those of a study that are one of these events, in its order."""
    return [w for w in study.workloads if isinstance(w, EventSubject) and w.event in events]


def cycle(session: Session, arms: Sequence[Standing], rng: random.Random) -> None:
    """Start and stop every arm's instances as often as its subjects ask, in random order: the start of those
    that then stay counts as one start more."""
    if not event_subjects(session.study, Event.START, Event.STOP):
        return
    wanted = {s.trial.id: _cycles(session, s) for s in arms}
    with ExitStack() as stack:
        for s in sound(arms):
            if wanted[s.trial.id]:
                with guarded(s):
                    stack.enter_context(guest_around(session, s))
        for turn in range(max(wanted.values(), default=0)):
            for s in shuffled(arms, rng):
                if turn < wanted[s.trial.id]:
                    with guarded(s), start_instances(session, s, time_stop=turn < _stops(session, s)):
                        pass


def _cycles(session: Session, s: Standing) -> int:
    starts = [w.count_in(session.study.design) for w in _taken(session, s, Event.START)]
    return max(max(starts, default=1) - 1, _stops(session, s))


def _stops(session: Session, s: Standing) -> int:
    return max((w.count_in(session.study.design) for w in _taken(session, s, Event.STOP)), default=0)


def _taken(session: Session, s: Standing, *events: Event) -> list[EventSubject]:
    return [w for w in event_subjects(session.study, *events) if s.takes(w)]


def start_and_stop_rows(session: Session, s: Standing) -> Iterator[Row]:
    """Of the subjects that are starts and stops; none of those that came to nothing."""
    for w in _taken(session, s, Event.START, Event.STOP):
        n = w.count_in(session.study.design)
        if w.event is Event.START and len(s.start_seconds) >= n:
            # The last n, the standing instances' own among them.
            steps = s.start_steps[-n:]
            parts = {STEP + k: tuple(one.get(k, 0.0) for one in steps) for k in steps[-1]}
            yield replace(_row(w, "start", "s", s.start_seconds[-n:]), parts=parts)
        elif w.event is Event.STOP and len(s.stops) >= n:
            yield _row(w, "stop", "s", [stop.ended for stop in s.stops[:n]])
            yield _row(w, "removed", "s", [stop.removed for stop in s.stops[:n]])


def densities(
    session: Session, arms: Sequence[Standing], rows: Mapping[str, list[Row]], rng: random.Random
) -> None:
    """Idle instances at once, one arm after the other in random order; before the arms themselves stand."""
    for w in event_subjects(session.study, Event.DENSITY):
        for s in shuffled(taking(arms, w), rng):
            with guarded(s), guest_around(session, s):  # whose memory is none of its instances'
                rows[s.trial.id] += _density(session, s, w)


def _density(session: Session, s: Standing, subject: EventSubject) -> list[Row]:
    n = subject.count_in(session.study.design)
    before = _available(session)
    with idle_instances(session, s, n) as group:
        after = _available(session)
        # A process in a guest has no memory of the machine's that it could be told apart by.
        inside = s.arm.environment.inside is not None
        own = [None if inside else _memory(session, i) for i in group.instances]
    known = [v for v in own if v is not None]
    each = sum(known) / n if len(known) == n else None
    per_gib = None if not each else GIB / each
    gone = None if before is None or after is None else (before - after) / n
    memory = "neither a control group nor its first process tells the memory of each instance"
    node = "the machine's available memory did not fall by it: other programs moved more, or it is too little"
    return [
        _row(subject, "start_all", "s", [max(group.seconds)]),
        _measured(subject, "memory", "B", Better.LOWER, each, memory),
        _measured(subject, "density", "instances/GiB", Better.HIGHER, per_gib, memory),
        _measured(subject, "node_memory", "B", Better.LOWER, gone, node),
    ]


def _available(session: Session) -> float | None:
    """Bytes that the machine could still give."""
    return node_counters(snapshot(session.machine.host).files, local_scale()).get("memory_available")


def _memory(session: Session, instance: Instance) -> float | None:
    """What its control group is charged with; where its first process stands in none (a native one), the
    share of the memory that this process has."""
    host = session.machine.host
    if instance.pid not in cgroups.members(instance.cgroups.values()):
        rollup = host.read(f"/proc/{instance.pid}/smaps_rollup")
        return None if isinstance(rollup, Unavailable) else proportional_set(rollup)
    return instance_counters(snapshot(host, instance.cgroups).files, local_scale()).get("memory")


def execs(
    session: Session, arms: Sequence[Standing], rows: Mapping[str, list[Row]], rng: random.Random
) -> None:
    """A command in the first instance of every arm, arm after arm in random order; the first ones, which find
    out whether it works at all, are thrown away."""
    for w in event_subjects(session.study, Event.EXEC):
        some = taking(arms, w)
        n = w.count_in(session.study.design)
        for s in shuffled(some, rng):
            with guarded(s):
                _try_command(session, s)
        seconds: dict[str, list[float]] = {s.trial.id: [] for s in arms}
        for _ in range(n):
            for s in shuffled(some, rng):
                with guarded(s):
                    seconds[s.trial.id].append(_first_instruction(session, s))
        for s in some:
            if len(seconds[s.trial.id]) == n:
                rows[s.trial.id].append(_row(w, "exec", "s", seconds[s.trial.id]))


def _try_command(session: Session, s: Standing) -> None:
    done = session.machine.host.run(s.instances[0].command(["true"]), timeout=COMMAND_LIMIT, cwd=Path("/"))
    if not done.ok:
        raise TrialFailedError(f"a command in the instance failed: {done.failure()}", where=str(s.log))


def _first_instruction(session: Session, s: Standing) -> float:
    """Seconds from the request to the first instruction of a command: it tells its own clock, which all
    instances share with the machine (CLOCK_MONOTONIC), into a FIFO."""
    guest = next(iter(s.guests), None)
    with _fifo(s.directory / "exec", guest) as (path, descriptor):
        init = [session.software_of(s.arm).tools / "nm-init", "--once-fifo", str(path)]
        argv = s.instances[0].command(init)
        host = session.machine.host
        begin = time.monotonic_ns()
        process = host.launch(
            [host.which(argv[0]) or argv[0], *argv[1:]], expect=frozenset(), timeout=COMMAND_LIMIT
        ).process
        try:
            if not wait_readable(descriptor, COMMAND_LIMIT):
                raise TrialFailedError(
                    f"a command in the instance said nothing for {COMMAND_LIMIT:g} s", where=str(s.log)
                )
            first: int = json.loads(os.read(descriptor, 4096))["first"]
            process.wait(COMMAND_LIMIT)
        except TimeoutError as e:
            raise TrialFailedError(f"a command in the instance does not end: {e}", where=str(s.log)) from e
        finally:
            process.kill()
    return ((first if guest is None else guest.on_host(first)) - begin) / 1e9


@contextmanager
def _fifo(path: Path, guest: Guest | None) -> Iterator[tuple[Path, int]]:
    os.mkfifo(path, 0o600)
    carrier = None
    try:
        if guest is not None:
            guest.copy_in([path])
            carrier = guest.carry(path, inward=False)
        # Opened for writing as well, so that there never is an end of file before the report.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
    finally:
        if carrier is not None:
            carrier.kill()
        path.unlink()


def _row(subject: EventSubject, metric: str, unit: str, values: Sequence[float]) -> Row:
    return Row(
        workload=subject.name,
        metric=metric,
        unit=unit,
        better=Better.LOWER,
        values=tuple(values),
        status=Status.OK,
    )


def _measured(
    subject: EventSubject, metric: str, unit: str, better: Better, value: float | None, why: str
) -> Row:
    """A row of one value; failed where it is missing or not above zero, of which no ratio can be taken."""
    known = value is not None and value > 0
    return Row(
        workload=subject.name,
        metric=metric,
        unit=unit,
        better=better,
        values=(value,) if known and value is not None else (),
        status=Status.OK if known else Status.FAILED,
        reason="" if known else why,
    )
