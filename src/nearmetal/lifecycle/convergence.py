"""Whether the rounds of a pre-copy became smaller by themselves, from what each round had to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import RunError

SHRINKS = 0.9
"""Rounds no longer shrink if one has to send at least this share of the bytes of the round before."""
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class CopyRound:
    """One round of a pre-copy, in which memory is sent while the instance runs.

    left: bytes that had to be sent when the round began.
    throttle: share of the time for which the mechanism kept the CPUs of the instance from running.
    """

    left: int
    throttle: float = 0.0

    def record(self) -> tuple[int, float]:
        """Return (left, throttle), the form in which a round is stored in a record."""
        return self.left, self.throttle

    @classmethod
    def from_record(cls, record: object) -> CopyRound:
        """Return the round that record() has stored, as read from JSON.

        Raises ValueError if it is not a round.
        """
        match record:
            case [int(left), int(throttle) | float(throttle)]:
                return cls(left=left, throttle=float(throttle))
        raise ValueError(f"{record!r} is not a round of a pre-copy")


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """How the rounds of one move went.

    alone: whether they became smaller without a throttle.
    evidence: the sizes of the rounds and their throttle, as text without a full stop.
    """

    alone: bool
    evidence: str


class NotConvergedError(RunError):
    """A pre-copy did not end within its time limit, and the instance continues at its source.

    copied: its rounds.
    """

    def __init__(self, what: str, *, remedy: str, copied: Sequence[CopyRound]) -> None:
        super().__init__(what, remedy=remedy)
        self.copied = tuple(copied)


def convergence(rounds: Sequence[CopyRound]) -> Convergence:
    """Return how the rounds of one move went.

    rounds: in the order in which they were sent.

    Raises ValueError if there are none.
    """
    if not rounds:
        raise ValueError("a pre-copy without rounds")
    sizes = [r.left for r in rounds]
    throttle = max(r.throttle for r in rounds)
    stalled = len(sizes) > 1 and sizes[-1] >= SHRINKS * sizes[-2]
    words = [_rounds(sizes)]
    if throttle > 0:
        words.append(f"its CPUs were throttled by up to {100 * throttle:.0f} %")
    elif stalled:
        words.append("the last one did not shrink")
    return Convergence(alone=not stalled and throttle == 0, evidence=", and ".join(words))


def _rounds(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"one round of {sizes[0] / 1e6:.0f} MB"
    last = ", ".join(f"{size / 1e6:.0f}" for size in sizes[-_SHOWN:])
    what = "rounds" if len(sizes) <= _SHOWN else f"rounds, the last {_SHOWN}"
    return f"{len(sizes)} {what} of {last} MB"
