"""The events that a run reports while it is in progress. The receiver displays them; a run itself prints
nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..model.result import Analysis


@dataclass(frozen=True, kw_only=True)
class BlockDone:
    """A block has been written to disk.

    seconds: duration of the block.
    elapsed: seconds since the run began.
    rounds: total number of rounds of the run, unless verdicts end it earlier; None if it has no limit.
    left: duration of the remaining rounds in seconds; None if the run has no limit.
    """

    number: int
    seconds: float
    elapsed: float
    rounds: int | None
    left: float | None
    analysis: Analysis


class Progress(Protocol):
    """Receiver of the events of a run."""

    def phase(self, text: str) -> None:
        """Report that a step that may take a moment has begun."""

    def note(self, text: str) -> None:
        """Report something that the reader of the result must know (an arm that cannot run here, a failed
        trial)."""

    def block(self, done: BlockDone) -> None: ...


class NullProgress:
    """Receiver that displays nothing."""

    def phase(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def block(self, done: BlockDone) -> None:
        pass
