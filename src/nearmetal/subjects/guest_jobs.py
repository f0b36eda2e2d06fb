"""A whole MPI job with a rank in each of several guests, which are moved together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..environments import (
    Backend,
    Instance,
    InstanceRequest,
    Migrates,
    Moved,
    MoveRequest,
    RemoteInstance,
    Together,
)
from ..errors import NearmetalError, RunError, TrialFailedError
from ..host import Process
from ..host.processes.failure import describe_failure
from ..launchers import HostSlots, MpiJob
from ..lifecycle import Method
from ..model.change import replace
from ..model.environments.network import Seat
from ..model.record import JsonValue, Row
from ..model.study import Transport
from ..model.workloads.event import EventSubject
from ..network.build import Network
from ..node.arms.start_group import started
from ..node.arms.starting import seated_request, with_memory
from ..node.software import from_tree, launcher
from ..node.trial import Trial
from .event_rows import event_row, with_steps
from .mpi_jobs import share_of_rank
from .progress import ProgramProgress
from .tcp_job import job_network
from .verified import LEAST_PASSES, VerifiedProgram, require_right

LIMIT = 300.0
"""Seconds after which the job has not begun, or does not go on."""
STEPS_AFTER = 100
"""Steps of the job after a move, until the move counts as survived."""
_LOOK_AGAIN = 0.05


@dataclass(kw_only=True)
class GuestJob:
    """An MPI job while it runs, with one rank in each guest.

    guests: where the ranks are now.
    program: its records, as they were last copied out of the guests.
    process: mpirun.
    output: what mpirun prints.
    """

    guests: Sequence[Instance]
    program: VerifiedProgram
    process: Process
    output: Path

    def progress(self) -> ProgramProgress:
        """Return how far all ranks are.

        Raises TrialFailedError if the job has ended, RunError if a guest does not answer.
        """
        if (status := self.process.poll()) is not None:
            printed = self.output.read_text(errors="replace")
            raise TrialFailedError(f"the job ended: {describe_failure('mpirun', status, printed)}")
        for guest, record in zip(self.guests, self.program.records, strict=True):
            assert isinstance(guest, RemoteInstance)
            guest.copy_out([record])
        return self.program.progress()

    def go_on(self, steps: int) -> None:
        """Wait until the job has taken so many steps. Raises the errors of until()."""
        self.until(lambda now: now.steps >= steps, "does not go on after the move")

    def until(self, reached: Callable[[ProgramProgress], bool], failure: str) -> ProgramProgress:
        """Wait until the job has got that far.

        Raises TrialFailedError if it does not, and the errors of progress().
        """
        end = time.monotonic() + LIMIT
        while not reached(now := self.progress()):
            if time.monotonic() > end:
                raise TrialFailedError(f"the job {failure} within {LIMIT:g} s")
            time.sleep(_LOOK_AGAIN)
        return now


def move_guests_of_job(
    trial: Trial, starter: Backend, backend: Migrates, w: EventSubject, count: int
) -> tuple[list[Row], Mapping[str, JsonValue]]:
    """Start an MPI job over guests, one rank in each, and move all of them to spare nodes and back: all are
    stopped before the first is saved, and all are restored before the first goes on.

    starter, backend: the same backend, by its two interfaces.
    Return the rows of the trial, and facts about each move. Raises UnavailableError, RunError, and
    TrialFailedError if the job did not go on or came to a wrong answer.
    """
    ranks, host = w.job_ranks, trial.node.machine.host
    tools = trial.node.software_of(trial.arm).tools
    directory = trial.directory / f"job-{w.name}-{next(trial.numbers)}"
    directory.mkdir()
    moves: list[Sequence[Moved]] = []
    with ExitStack() as stack:
        network = stack.enter_context(job_network(trial, w, 2 * ranks, directory))
        sides = network.seats[:ranks], network.seats[ranks:]
        requests = [
            with_memory(_request(trial, seat, f"{w.name}-{rank}", rank), w.memory)
            for rank, seat in enumerate(sides[0])
        ]
        starts = [partial(starter.start, host, tools, request) for request in requests]
        group = stack.enter_context(started(starts, together=True))
        job = stack.enter_context(_launched(trial, w, network, group.instances))
        before = job.until(lambda now: now.passes >= 1, "does not start its work")
        for number in range(count):
            moved = stack.enter_context(
                _moved_together(trial, backend, w, job.guests, sides[(number + 1) % 2], number)
            )
            job.guests = [m.instance for m in moved]
            moves.append(moved)
            job.go_on(job.progress().steps + STEPS_AFTER)
        after = job.progress().passes + LEAST_PASSES
        last = job.until(lambda now: now.passes >= after, "does not verify its memory any more")
        require_right(last, trial.log)
    verified: dict[str, JsonValue] = {"passes": last.passes - before.passes, "wrong_pages": 0}
    verified |= {"wrong_messages": 0, "second_copies": 0}
    return _rows(w, moves, verified), {"moves": [_facts(moved) for moved in moves]}


def _request(trial: Trial, seat: Seat, name: str, rank: int) -> InstanceRequest:
    return seated_request(trial, seat, name=name, place=rank % trial.arm.placement.all_instances)


@contextmanager
def _launched(
    trial: Trial, w: EventSubject, network: Network, guests: Sequence[Instance]
) -> Iterator[GuestJob]:
    """Run the job until exit. mpirun runs in the tree of the guests' image, at the hub of their network."""
    node, software = trial.node, trial.node.software_of(trial.arm)
    tools, (size, rate) = software.tools, share_of_rank(w.dirtied, len(guests))
    place = trial.directory / f"{node.label}-{trial.slot}-{next(trial.numbers)}"
    place.mkdir()
    (place / "agent").symlink_to(tools / "nm-box")
    lines = (f"{from_tree(software, guest.agent_line)}\n" for guest in guests)
    (place / "guests").write_text("".join(lines))
    record = place / "record"
    launch = software.mpi.launch(
        MpiJob(
            argv=(tools / "nm-job", str(size), str(record), str(size), str(rate)),
            box=tools / "nm-box",
            ranks=len(guests),
            transport=Transport.TCP,
            interface=network.seats[0].interface,
            scratch=str(place),
            hosts=tuple(HostSlots(host=guest.hostname, slots=1) for guest in guests),
            agent=(str(place / "agent"), str(place / "guests")),
            hub_interface=network.hub_interface,
            hub_address=network.hub_address,
            yields=True,
        )
    )
    for guest in guests:
        assert isinstance(guest, RemoteInstance)
        guest.copy_in([place])
    records = tuple(record.with_name(f"{record.name}.{rank}") for rank in range(len(guests)))
    output = trial.log / "mpirun.txt"
    trial.log.mkdir(parents=True, exist_ok=True)
    with launcher(node.machine, software, place, network.hub_netns, node.user_namespace) as hub:
        process = node.machine.host.start(
            hub.command(launch.argv), stdout=output, stderr=output, env=launch.env, cwd=Path("/")
        )
        try:
            program = VerifiedProgram(argv=tuple(launch.argv), records=records)
            yield GuestJob(guests=guests, program=program, process=process, output=output)
        finally:
            process.kill()


@contextmanager
def _moved_together(
    trial: Trial,
    backend: Migrates,
    w: EventSubject,
    guests: Sequence[Instance],
    seats: Sequence[Seat],
    number: int,
) -> Iterator[list[Moved]]:
    """Move all guests to other seats, where they run until exit. Each has a thread of its own, since a guest
    dies with the thread that started it.

    Raises an error with what became of each guest whose move has failed.
    """
    host, tools = trial.node.machine.host, trial.node.software_of(trial.arm).tools
    together = Together(len(guests))
    moved: dict[int, Moved] = {}
    errors: list[NearmetalError] = []

    @contextmanager
    def one(rank: int) -> Iterator[Instance]:
        there = _request(trial, seats[rank], f"{w.name}-{rank}-moved{number}", rank)
        move = MoveRequest(
            method=Method.OFFLINE,
            destination=with_memory(there, w.memory),
            bandwidth=w.bandwidth,
            together=together,
        )
        with ExitStack() as stack:
            try:
                moved[rank] = stack.enter_context(backend.migrate(host, tools, guests[rank], move))
            except NearmetalError as e:
                errors.append(e)
                together.fail(e.what)
                raise
            yield moved[rank].instance

    with ExitStack() as stack:
        try:
            stack.enter_context(started([partial(one, rank) for rank in range(len(guests))], together=True))
        except NearmetalError:
            raise _joined(errors) from None
        yield [moved[rank] for rank in range(len(guests))]


def _joined(errors: Sequence[NearmetalError]) -> NearmetalError:
    """Return the first error, which says of all guests what became of them."""
    words = list(dict.fromkeys(e.what for e in errors))
    if len(words) == 1:
        return errors[0]
    return RunError(
        "; ".join(words) or "the guests were not moved", remedy=errors[0].remedy if errors else ""
    )


def _rows(w: EventSubject, moves: Sequence[Sequence[Moved]], verified: Mapping[str, JsonValue]) -> list[Row]:
    """Return the rows of a trial, with a value for each move: that of the guest that took longest; of the
    bytes, the sum over all guests."""
    slowest = [max(moved, key=lambda m: m.total) for moved in moves]
    total = with_steps(event_row(w, "total", "s", [m.total for m in slowest]), [m.phases for m in slowest])
    downtimes = [max(m.downtime or 0.0 for m in moved) for moved in moves]
    return [
        replace(total, verification=dict(verified)),
        event_row(w, "stopped", "s", [max(m.stopped for m in moved) for moved in moves]),
        *([event_row(w, "downtime", "s", downtimes)] if all(downtimes) else []),
        event_row(w, "sent", "B", [float(sum(m.sent for m in moved)) for moved in moves]),
    ]


def _facts(moved: Sequence[Moved]) -> JsonValue:
    """Return what each guest did in one move. Times are in seconds of CLOCK_MONOTONIC."""
    return [{"phases": dict(m.phases.record()), "began": m.began, "stopped": m.stopped} for m in moved]
