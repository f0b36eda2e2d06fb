"""What the moves of guests of all hypervisors have in common: their figures, and what is said of a move that
failed."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import RunError
from ...host.guest_line import GuestLine
from ...lifecycle import CopyRound, Method, NotConvergedError, Phase, PhaseTimes
from ...model.study import Attachment
from ..moving import Moved
from .guest import GuestInstance

CARRIED = (
    Attachment.VETH_BRIDGE,
    Attachment.OVS,
    Attachment.VXLAN,
    Attachment.NONE,
    Attachment.LOOPBACK,
)
"""Attachments whose network finds a guest again at another seat, by its announcement."""


@dataclass(frozen=True, kw_only=True)
class MoveFigures:
    """What is known about a finished move of a guest.

    requested, stopped, completed, resumed: in seconds of CLOCK_REALTIME.
    downtime: seconds, as the hypervisor reports it; None if it does not.
    copied: the rounds of pre-copy that were seen while they ran.
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
    """Return a guest that was moved, with what its move took.

    began, ended: times by CLOCK_MONOTONIC, in seconds.
    realtime: seconds by which CLOCK_REALTIME, the clock of the figures, was ahead of it.
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


def not_moved(error: RunError, line: GuestLine | None, method: Method, *, runs: bool, lost: str) -> RunError:
    """Return what became of a guest whose move has failed, and end the move of its line.

    line: None if the guest takes its line along by itself.
    runs: whether it continues at its source.
    lost: why it is lost, if it does not; empty if it had left its source.
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
    """Return seconds by phase.

    began, connected: in seconds of CLOCK_REALTIME, as the figures are; the others of CLOCK_MONOTONIC.
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
