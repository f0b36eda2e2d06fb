"""A whole MPI job with a rank in each of several guests, which are moved together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...environments import (
    Backend,
    Instance,
    Migrates,
    MoveBarrier,
    Moved,
    MoveRequest,
    RemoteInstance,
)
from ...environments.program import read_log
from ...errors import NearmetalError, RunError, TrialFailedError
from ...host import Process
from ...host.processes.failure import describe_failure
from ...launchers import HostSlots, MpiJob
from ...lifecycle import Method
from ...model.change import replace
from ...model.environments.network import Seat
from ...model.record import JsonValue, Row
from ...model.study import Transport
from ...model.workloads.moves import MoveSubject
from ...network.build import Network
from ...node.arms.start_group import started
from ...node.arms.starting import with_memory
from ...node.software import from_tree, launcher
from ...node.trial import Trial
from .mpi_jobs import share_of_rank
from .progress import ProgramProgress
from .rows import event_row, reported, with_steps
from .tcp_job import job_network, rank_request
from .verified import LEAST_PASSES, VerifiedProgram, require_right

LIMIT = 300.0
"""Seconds without a step after which waiting for progress of the job fails, if guests may not boot for
longer."""
STEPS_AFTER = 100
"""Number of steps that the job must take after a move before the move counts as successful."""
_LOOK_AGAIN = 0.05


@dataclass(kw_only=True)
class GuestJob:
    """A running MPI job with one rank in each guest.

    guests: returns the guests that now hold the ranks, by rank.
    program: the job; its records are the files last copied out of the guests.
    process: mpirun.
    output: file with the output of mpirun.
    limit: seconds without a step after which waiting for progress fails.
    """

    guests: Callable[[], Sequence[Instance]]
    program: VerifiedProgram
    process: Process
    output: Path
    limit: float = LIMIT

    def progress(self) -> ProgramProgress:
        """Copy the records of all ranks out of the guests, and return the progress of the job.

        Raises TrialFailedError if the job has ended, RunError if a guest does not answer.
        """
        if (status := self.process.poll()) is not None:
            printed = read_log(self.output)
            raise TrialFailedError(f"the job ended: {describe_failure('mpirun', status, printed)}")
        for guest, record in zip(self.guests(), self.program.records, strict=True):
            assert isinstance(guest, RemoteInstance)
            guest.copy_out([record])
        return self.program.progress()

    def go_on(self, steps: int) -> None:
        """Wait until the job has taken this number of steps since its start. Raises the errors of until()."""
        self.until(lambda now: now.steps >= steps, "does not continue after the move")

    def until(self, reached: Callable[[ProgramProgress], bool], failure: str) -> ProgramProgress:
        """Wait until the job's progress fulfils `reached`, and return this progress.

        failure: predicate of the error message, such as "does not start its work".
        Raises TrialFailedError if the job takes no step within the limit, and the errors of progress().
        """
        seen, end = 0, time.monotonic() + self.limit
        while not reached(now := self.progress()):
            if now.steps != seen:
                seen, end = now.steps, time.monotonic() + self.limit
            if time.monotonic() > end:
                raise TrialFailedError(f"the job {failure}: no step in {self.limit:g} s")
            time.sleep(_LOOK_AGAIN)
        return now


def move_guests_of_job(
    trial: Trial, backend: Backend, w: MoveSubject, count: int
) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Start an MPI job with one rank in each of several guests, and move all guests together.

    The guests move to spare nodes and back. All are stopped before the first is saved, and all are restored
    before the first continues.
    Return the rows of the trial, and facts about each move.

    backend: a backend that moves guests (Migrates).
    count: number of moves.
    Raises UnavailableError or RunError if a guest cannot be started or moved, and TrialFailedError if the job
    does not continue or comes to a wrong result.
    """
    assert isinstance(backend, Migrates)
    ranks = w.job_ranks
    directory = trial.new_directory(f"job-{w.name}")
    moves: list[Sequence[Moved]] = []
    with ExitStack() as stack:
        network = stack.enter_context(job_network(trial, w, 2 * ranks, directory))
        sides = network.seats[:ranks], network.seats[ranks:]
        requests = [
            with_memory(rank_request(trial, seat, f"{w.name}-{rank}", rank), w.memory)
            for rank, seat in enumerate(sides[0])
        ]
        starts = [partial(trial.start, request) for request in requests]
        group = stack.enter_context(started(starts, together=True))
        guests = partial(trial.node.instances.of, [guest.label for guest in group.instances])
        job = stack.enter_context(_launched(trial, w, network, guests))
        before = job.until(lambda now: now.passes >= 1, "does not start its work")
        for number in range(count):
            moved = stack.enter_context(
                _moved_together(trial, backend, w, guests(), sides[(number + 1) % 2], number)
            )
            moves.append(moved)
            job.go_on(job.progress().steps + STEPS_AFTER)
        after = job.progress().passes + LEAST_PASSES
        last = job.until(lambda now: now.passes >= after, "does not verify its memory any more")
        require_right(last, trial.log)
    verified: dict[str, JsonValue] = {"passes": last.passes - before.passes, "wrong_pages": 0}
    verified |= {"wrong_messages": 0, "second_copies": 0}
    return _rows(w, moves, verified), {"moves": [_facts(moved) for moved in moves]}


@contextmanager
def _launched(
    trial: Trial, w: MoveSubject, network: Network, guests: Callable[[], Sequence[Instance]]
) -> Iterator[GuestJob]:
    """Start the job, and yield it. It is killed on exit.

    guests: see GuestJob.

    mpirun runs in the root tree of the guests' image and in the hub of their network.
    """
    node, software, first = trial.node, trial.node.software_of(trial.arm), guests()
    tools, (size, rate) = software.tools, share_of_rank(w.dirtied, len(first))
    place = trial.new_directory(f"{node.label}-{trial.slot}")
    (place / "agent").symlink_to(tools / "nm-box")
    lines = (f"{from_tree(software, guest.agent_line)}\n" for guest in first)
    (place / "guests").write_text("".join(lines))
    record = place / "record"
    launch = software.mpi.launch(
        MpiJob(
            argv=(tools / "nm-job", str(size), str(record), str(size), str(rate)),
            box=tools / "nm-box",
            ranks=len(first),
            transport=Transport.TCP,
            interface=network.seats[0].interface,
            scratch=str(place),
            hosts=tuple(HostSlots(host=guest.hostname, slots=1) for guest in first),
            agent=(str(place / "agent"), str(place / "guests")),
            hub_interface=network.hub_interface,
            hub_address=network.hub_address,
            yields=True,
        )
    )
    for one in first:
        assert isinstance(one, RemoteInstance)
        one.copy_in([place])
    records = tuple(record.with_name(f"{record.name}.{rank}") for rank in range(len(first)))
    output = trial.log / "mpirun.txt"
    trial.log.mkdir(parents=True, exist_ok=True)
    with launcher(node.machine, software, place, network.hub_netns, node.user_namespace) as hub:
        process = node.machine.host.start(
            hub.command(launch.argv), stdout=output, stderr=output, env=launch.env, cwd=Path("/")
        )
        try:
            program = VerifiedProgram(argv=tuple(launch.argv), records=records)
            guest = trial.arm.environment.guest
            limit = LIMIT if guest is None else max(LIMIT, guest.boot_timeout)
            yield GuestJob(guests=guests, program=program, process=process, output=output, limit=limit)
        finally:
            process.kill()


@contextmanager
def _moved_together(
    trial: Trial,
    backend: Migrates,
    w: MoveSubject,
    guests: Sequence[Instance],
    seats: Sequence[Seat],
    number: int,
) -> Iterator[list[Moved]]:
    """Move all guests to other seats, and yield the moves in the order of the ranks. The moved guests end on
    exit.

    Each guest is moved by a thread of its own, since a guest dies with the thread that started it.
    seats: destination of each guest.
    number: number of the move, for names.
    Raises an error that says what became of each guest whose move failed.
    """
    host, tools = trial.node.machine.host, trial.node.software_of(trial.arm).tools
    together = MoveBarrier(len(guests))
    moved: dict[int, Moved] = {}
    errors: list[NearmetalError] = []

    @contextmanager
    def one(rank: int) -> Iterator[Instance]:
        there = rank_request(trial, seats[rank], f"{w.name}-{rank}-moved{number}", rank)
        move = MoveRequest(
            method=Method.OFFLINE,
            destination=with_memory(there, w.memory),
            bandwidth=w.bandwidth,
            time_limit=w.longest,
            together=together,
        )
        with ExitStack() as stack:
            try:
                moved[rank] = stack.enter_context(backend.migrate(host, tools, guests[rank], move))
            except NearmetalError as e:
                errors.append(e)
                together.fail(e.what)
                raise
            trial.node.instances.moved(guests[rank], moved[rank].instance)
            yield moved[rank].instance

    with ExitStack() as stack:
        try:
            stack.enter_context(started([partial(one, rank) for rank in range(len(guests))], together=True))
        except NearmetalError:
            raise _joined(errors) from None
        yield [moved[rank] for rank in range(len(guests))]


def _joined(errors: Sequence[NearmetalError]) -> NearmetalError:
    """Return one error with the different messages of all errors, and the remedy of the first."""
    words = list(dict.fromkeys(e.what for e in errors))
    if len(words) == 1:
        return errors[0]
    return RunError(
        "; ".join(words) or "the guests were not moved", remedy=errors[0].remedy if errors else ""
    )


def _rows(w: MoveSubject, moves: Sequence[Sequence[Moved]], verified: Mapping[str, JsonValue]) -> list[Row]:
    """Return the rows of a trial, with one value for each move. Times are the longest of any guest, bytes the
    sum over all guests.

    moves: for each move, one entry for each guest.
    verified: what the job has verified.
    """
    slowest = [max(moved, key=lambda m: m.total) for moved in moves]
    total = with_steps(event_row(w, "total", "s", [m.total for m in slowest]), [m.phases for m in slowest])
    downtimes = reported(max(m.downtime or 0.0 for m in moved) for moved in moves)
    return [
        replace(total, verification=dict(verified)),
        event_row(w, "stopped", "s", [max(m.stopped for m in moved) for moved in moves]),
        *([event_row(w, "downtime", "s", downtimes)] if downtimes else []),
        event_row(w, "sent", "B", [float(sum(m.sent for m in moved)) for moved in moves]),
    ]


def _facts(moved: Sequence[Moved]) -> JsonValue:
    """Return the facts to be recorded about each guest in one move: `phases` and `stopped` in seconds,
    `began` as a time of CLOCK_MONOTONIC in seconds."""
    return [{"phases": dict(m.phases.record()), "began": m.began, "stopped": m.stopped} for m in moved]
