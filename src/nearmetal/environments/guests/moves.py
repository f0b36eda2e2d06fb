"""What the moves of guests of all hypervisors have in common: their figures, and what is said of a move that
failed."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...errors import RunError
from ...host.guest_line import ANSWER_SECONDS, Clocks, GuestLine
from ...lifecycle import CopyRound, Method, NotConvergedError, Phase, PhaseTimes
from ...model.study import Attachment, Environment
from ..contract import Unavailable
from ..moving import Moved
from .guest import GuestInstance

CARRIED = (
    Attachment.VETH_BRIDGE,
    Attachment.OVS,
    Attachment.VXLAN,
    Attachment.NONE,
    Attachment.LOOPBACK,
)
"""Attachments with which a guest can be moved to another seat. On a network, the guest or its hypervisor
announces its MAC address there, so the switches or bridges send its packets to the new place."""


def not_carried(environment: Environment) -> Unavailable | None:
    """Return why the network of an environment would not find a guest at another seat; None if it would."""
    if environment.attachment in CARRIED:
        return None
    return Unavailable(
        reason=f"attachment {environment.attachment.value} does not find a guest at another address",
        remedy="attachment: veth-bridge",
    )


@dataclass(frozen=True, kw_only=True)
class MoveFigures:
    """Times and amounts of a finished move.

    requested, stopped, completed, resumed: times in seconds of CLOCK_REALTIME.
    downtime: standstill in seconds, as the hypervisor reports it; None if it reports none.
    sent: bytes of memory sent.
    rounds: number of passes over the memory; 0 if the hypervisor does not report it.
    copied: the pre-copy rounds that were observed while they ran.
    """

    requested: float
    stopped: float
    completed: float
    resumed: float
    downtime: float | None
    sent: int
    rounds: int
    copied: tuple[CopyRound, ...] = ()


def moved_as(
    instance: GuestInstance,
    figures: MoveFigures,
    phases: PhaseTimes,
    *,
    began: float,
    ended: float,
    realtime: float,
) -> Moved:
    """Return the result of a move.

    instance: the guest at its destination.
    figures: times and amounts from the hypervisor; their clock is CLOCK_REALTIME.
    began, ended: start and end of the move in seconds of CLOCK_MONOTONIC.
    realtime: CLOCK_REALTIME minus CLOCK_MONOTONIC, in seconds.
    """
    return Moved(
        instance=instance,
        phases=phases,
        total=max(figures.completed, figures.resumed) - realtime - began,
        downtime=figures.downtime,
        stopped=max(figures.resumed - figures.stopped, 0.0),
        began=began,
        ended=ended,
        sent=figures.sent,
        rounds=figures.rounds,
        copied=figures.copied,
    )


def first_answer(agent: GuestLine, time_limit: float) -> tuple[Clocks, float]:
    """Return how far the clocks of a moved guest are ahead, and when its agent first answered, in seconds of
    CLOCK_MONOTONIC.

    time_limit: that of the move. The agent may take as long, if that is more than usual: TCP sends again only
        after as long as the guest stood still, and the host may still be busy with other guests.

    Raises RunError if it does not answer.
    """
    first = agent.clocks(tries=1, timeout=max(ANSWER_SECONDS, time_limit))
    answered = time.monotonic()
    return min(first, agent.clocks(), key=lambda clocks: clocks.error), answered


def note_round(copied: dict[int, CopyRound], number: int, left: int, throttle: float) -> None:
    """Record a pre-copy round as it is reported while it runs.

    For each round, the largest reported amount of memory left is kept: this is closest to the amount at the
    beginning of the round.

    copied: rounds by number.
    number: number of the round; 0 if none has begun, so that nothing is recorded.
    left, throttle: as in CopyRound.
    """
    if number < 1:
        return
    known = copied.get(number, CopyRound(left=left))
    copied[number] = CopyRound(left=max(known.left, left), throttle=max(known.throttle, throttle))


def not_moved(error: RunError, line: GuestLine | None, method: Method, *, runs: bool, lost: str) -> RunError:
    """Return the error of a failed move, whose message says what became of the guest. If the guest continues
    at its source, also let its agent's connection stay there.

    error: the cause.
    line: connection to the guest's agent, for which a move was begun; None if the connection does not change.
    runs: whether the guest continues at its source.
    lost: why the guest is lost, if it does not continue; empty if it had left its source already.
    """
    if runs:
        if line is not None:
            line.stay()
        outcome = "it continues at its source"
    else:
        outcome = f"it is lost: {lost or 'it had left its source, and its destination ended'}"
    what = f"the guest was not moved by {method}, {outcome}: {error.what}"
    if runs and isinstance(error, NotConvergedError):
        return NotConvergedError(what, remedy=error.remedy, copied=error.copied)
    return RunError(what, remedy=error.remedy)


def phases_of(
    method: Method,
    figures: MoveFigures,
    began: float,
    connected: float,
    done: float,
    removed: float,
    answered: float,
) -> PhaseTimes:
    """Return the duration of each phase of a move.

    began, connected: start of the move, and connection to the destination: seconds of CLOCK_REALTIME, as the
        figures.
    done, removed, answered: end of the transfer, end of the source, first answer of the moved guest:
        seconds of CLOCK_MONOTONIC.
    """
    f = figures
    saved = {
        Phase.FREEZE: f.stopped - f.requested,
        Phase.COPY: f.completed - f.stopped,
        Phase.RESTORE: f.resumed - f.completed,
    }
    copies = {
        Method.OFFLINE: saved,
        Method.STREAM: saved,
        Method.POSTCOPY: {
            Phase.DUMP: f.stopped - f.requested,
            Phase.RESTORE: f.resumed - f.stopped,
            Phase.COPY: f.completed - f.resumed,
        },
    }.get(method, {Phase.COPY: f.stopped - f.requested, Phase.RESTORE: f.resumed - f.stopped})
    every = {
        Phase.CONNECT: connected - began,
        **copies,
        Phase.REMOVAL: removed - done,
        Phase.THAW: answered - removed,
    }
    return PhaseTimes({phase: max(spent, 0.0) for phase, spent in every.items()})
