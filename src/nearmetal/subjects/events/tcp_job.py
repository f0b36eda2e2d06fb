"""A job with one rank in each of several instances. The ranks exchange TCP messages all the time
(kernels/keeper)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from ...environments import Instance, InstanceRequest, RemoteInstance, Tools
from ...errors import RunError, TrialFailedError
from ...host import Host, Process
from ...host.processes.failure import describe_failure
from ...host.replies import read_reply
from ...lifecycle import RankSteps, longest_gap, read_steps, steps_within
from ...model.change import replace
from ...model.environments.network import Seat
from ...model.record import JsonValue
from ...model.study import Arm, Attachment
from ...model.workloads.moves import LifecycleSubject
from ...network.build import Network, build_networks
from ...network.plan import NetworkRequest
from ...network.shapes import port
from ...node.arms.instances import Instances
from ...node.arms.starting import seated_request
from ...node.links import node_links
from ...node.trial import Trial
from .hooks import SeatPort
from .pace import WorkDone, behind, pace
from .probing import await_words, interrupt

PORT = 7010
FLOOR_SECONDS = 1.0
"""Minimum seconds for which the job runs undisturbed before a move. The longest time between two steps in
this time is the floor of the silence."""
FLOOR_STEPS = 100
"""Minimum number of steps in this time, so that the pace of the job is known."""
STEP = 1e-3
"""Shortest step of the job, in seconds. A shorter silence cannot be distinguished from a step."""
LIMIT = 120.0
"""Seconds after which the job fails if it does not take the awaited steps, or if a rank does not end."""
_LOOK_AGAIN = 0.01
_STEPPED = '{"step"'


class _ProgressLine(msgspec.Struct, frozen=True):
    """A progress line of nm-keeper. step: number of the step that has ended."""

    step: int


@contextmanager
def job_network(trial: Trial, w: LifecycleSubject, seats: int, directory: Path) -> Iterator[Network]:
    """Build emulated nodes with one seat on each, and yield their network. They are removed on exit.

    Their links are those of the study; they have no delay if the study's placement has only one node.
    seats: number of nodes.
    directory: directory for logs.
    """
    node = trial.node
    label = f"{node.label}-{trial.slot}-{w.name}"
    host, tools = node.machine.host, node.software_of(trial.arm).tools
    with (
        build_networks(label, [network_request(trial.arm, seats)], directory) as (network,),
        node_links(host, tools, relayed(network), {}, directory, label, None),
    ):
        yield network


def rank_request(trial: Trial, seat: Seat, name: str, rank: int) -> InstanceRequest:
    """Return the request for an instance that holds one rank of a job, at a seat of the job's network."""
    return seated_request(trial, seat, name=name, place=rank % trial.arm.placement.all_instances)


def network_request(arm: Arm, seats: int) -> NetworkRequest:
    link = arm.placement.link
    if arm.placement.nodes == 1:
        link = replace(link, delay=0.0)
    environment = arm.environment
    attachment = environment.attachment
    return NetworkRequest(
        # A bare rank has no network of its own: it runs in the network namespace of its seat.
        attachment=attachment if attachment.seated else Attachment.VETH_BRIDGE,
        settings=environment.network,
        instances=seats,
        nodes=seats,
        link=link,
    )


def relayed(network: Network) -> list[Network]:
    """Return [network] if a relay process must delay its frames, since the kernel cannot; otherwise []."""
    return [network] if network.emulation is not None and network.emulation.relay else []


def port_of(network: Network, seat: int) -> SeatPort:
    """Return the node's end of a seat's link, in a network with one seat on each emulated node.

    seat: index of the seat.
    """
    assert network.emulation is not None
    return SeatPort(netns=list(network.emulation.nodes.values())[seat], interface=port(seat))


@dataclass(frozen=True, kw_only=True)
class AttachedRank:
    """A rank whose process nearmetal started in a running instance, and whose end it awaits.

    label: label of the instance in `instances`.
    output: file with the output of the rank.
    """

    instances: Instances
    label: str
    process: Process
    output: Path

    @property
    def instance(self) -> Instance:
        """The instance that the rank now runs in."""
        return self.instances[self.label]

    def steps(self) -> int:
        """Return the number of steps from the last complete progress line; 0 if there is none."""
        lines = [line for line in self._text().splitlines(keepends=True) if line.startswith(_STEPPED)]
        whole = [line for line in lines if line.endswith("\n")]
        return read_reply(whole[-1], _ProgressLine, str(self.output)).step if whole else 0

    def check(self) -> None:
        """Raise TrialFailedError if the rank has ended."""
        status = self.process.poll()
        if status is not None:
            raise self._failure(status)

    def end(self) -> RankSteps:
        """Wait until the interrupted rank has ended. Return its steps by the clock of the machine.

        Raises TrialFailedError if it fails or does not end within LIMIT, RunError if its output is
        unreadable.
        """
        try:
            status = self.process.wait(LIMIT)
        except TimeoutError as e:
            raise TrialFailedError("a rank of the job does not end") from e
        if status != 0:
            raise self._failure(status)
        try:
            found = read_steps(self._text())
        except ValueError as e:
            raise RunError(f"a rank of the job: {e}") from e
        if not isinstance(self.instance, RemoteInstance) or not found.ends:
            return found
        ahead = self.instance.on_host(round(found.ends[0] * 1e9)) / 1e9 - found.ends[0]
        return read_steps(self._text(), ahead)

    def trouble(self) -> str:
        """Return why the rank's guest no longer runs; empty if it runs, or if the rank is in no guest."""
        return self.instance.trouble() if isinstance(self.instance, RemoteInstance) else ""

    def _failure(self, status: int) -> TrialFailedError:
        why = self.trouble() or describe_failure("nm-keeper", status, self._text())
        return TrialFailedError(f"the job ended: {why}")

    def _text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


@dataclass(kw_only=True)
class TcpJob:
    """A running job. Its ranks are killed when `stack` is closed.

    instances: the running instances of the node.
    addresses: IP address of each rank.
    memory: bytes of memory that each rank holds, all of which it writes to.
    rate: bytes of pages that each rank writes per second; 0 for as fast as it can.
    directory: directory for the output of the ranks.
    attached: ranks that were started by attach(), in order. A rank that is moved by CRIU is started
        otherwise.
    """

    host: Host
    tools: Tools
    instances: Instances
    addresses: tuple[str, ...]
    memory: int
    rate: int
    directory: Path
    stack: ExitStack
    attached: list[AttachedRank] = field(default_factory=list)

    def ring(self, rank: int) -> tuple[str, ...]:
        """Return the arguments by which nm-keeper runs as this rank of the job."""
        return (str(rank), str(PORT), *self.addresses)

    def attach(self, rank: int, instance: Instance, record: str) -> None:
        """Start a rank in an instance. Ranks must be attached in order.

        record: path of the rank's record inside the instance.
        """
        words = [self.tools / "nm-keeper", str(self.memory), record, str(self.memory), str(self.rate)]
        output = self.directory / f"rank{rank}.txt"
        process = self.host.start(
            instance.command([*words, *self.ring(rank)]), stdout=output, stderr=output, cwd=Path("/")
        )
        self.stack.callback(process.kill)
        own = AttachedRank(instances=self.instances, label=instance.label, process=process, output=output)
        self.attached.append(own)

    def joined(self) -> None:
        """Wait until all attached ranks have connected to their neighbours.

        Raises TrialFailedError if a rank ends before, or does not connect in time.
        """
        for rank in self.attached:
            await_words(rank.process, rank.output, '"joined"')

    def go_on(self, steps: int) -> None:
        """Wait until the job has taken this number of further steps.

        Raises TrialFailedError if a rank ends, or if there is no step within LIMIT seconds.
        """
        first, end = self.attached[0], time.monotonic() + LIMIT
        seen = first.steps()
        wanted = seen + steps
        while (now := first.steps()) < wanted:
            self.check()
            if now > seen:
                seen, end = now, time.monotonic() + LIMIT
            if time.monotonic() > end:
                raise TrialFailedError(f"the job does not continue: no step in {LIMIT:g} s")
            time.sleep(_LOOK_AGAIN)

    def check(self) -> None:
        """Raise TrialFailedError if an attached rank has ended."""
        for rank in self.attached:
            rank.check()

    def end(self) -> list[RankSteps]:
        """End all attached ranks. Return their steps by the clock of the machine.

        Raises TrialFailedError if one found a wrong message or page, or lost a connection.
        """
        self.check()
        for rank in self.attached:
            interrupt(rank.process)
        found = [rank.end() for rank in self.attached]
        wrong, strange = sum(r.wrong for r in found), sum(r.strange for r in found)
        if wrong or strange:
            raise TrialFailedError(
                f"the job computed a wrong answer: {wrong} pages are wrong, and {strange} times another"
                " process had written a rank's record"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A move as the other ranks of the job see it. All times are in seconds.

    pauses: longest time between two steps during the move, of each of these ranks.
    gap: the same, of the rank with the longest silence.
    floor: longest time between two steps before the move, of the same rank.
    silence: gap - floor, but at least STEP.
    behind: time by which the job is behind its usual pace; None if its pace is not known.
    steps: number of steps that the job took from the request of the move until it was seen to continue.
    """

    silence: float
    floor: float
    gap: float
    behind: float | None
    steps: int
    pauses: tuple[float, ...]

    def record(self) -> dict[str, JsonValue]:
        """Return what is recorded of it, without the pauses, which are recorded with those of the moved
        rank."""
        return {name: value for name, value in asdict(self).items() if name != "pauses"}


Window = tuple[float, float]
"""Begin and end of a time, in seconds of the machine's CLOCK_MONOTONIC."""


def view_of(ranks: Sequence[RankSteps], before: Window, move: Window) -> JobView:
    """Return the effect of a move on the ranks that were not moved.

    ranks: steps of these ranks.
    before: an undisturbed time before the move.
    move: the time from the request until the job was seen to continue.
    Raises TrialFailedError if a rank took no step in one of these times.
    """
    try:
        waits = [(longest_gap(r.ends, *move), longest_gap(r.ends, *before)) for r in ranks]
    except ValueError as e:
        raise TrialFailedError(f"the job made no progress: {e}") from e
    gap, floor = max(waits, key=lambda wait: wait[0] - wait[1])
    first = ranks[0].ends
    usual = pace(WorkDone(at=before[0], work=0), WorkDone(at=before[1], work=steps_within(first, *before)))
    done = steps_within(first, *move)
    return JobView(
        silence=max(gap - floor, STEP),
        floor=floor,
        gap=gap,
        behind=behind(usual, WorkDone(at=move[0], work=0), WorkDone(at=move[1], work=done)),
        steps=done,
        pauses=tuple(wait for wait, _ in waits),
    )


def measured_floor(job: TcpJob) -> Window:
    """Let the job run undisturbed for FLOOR_SECONDS or longer, and return this time as a window."""
    begin = time.monotonic()
    job.go_on(FLOOR_STEPS)
    time.sleep(max(begin + FLOOR_SECONDS - time.monotonic(), 0.0))
    job.check()
    return begin, time.monotonic()
