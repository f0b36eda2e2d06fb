"""What a run reports while it goes on. The receiver displays it; a run itself prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..model.result import Analysis


@dataclass(frozen=True, kw_only=True)
class BlockDone:
    """A block has been written to disk.

    seconds: duration of the block.
    elapsed: seconds since the run began.
    rounds: rounds that the run will have in all, unless verdicts end it before; None if it has no limit.
    left: seconds that the rounds to come take; None if the run has no limit.
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
        """A step that may take a moment has begun."""

    def note(self, text: str) -> None:
        """Report something that the reader of the result must know (an arm that cannot run here, a failed
        trial)."""

    def block(self, done: BlockDone) -> None: ...


class Silent:
    """Receiver that displays nothing."""

    def phase(self, text: str) -> None:
        del text

    def note(self, text: str) -> None:
        del text

    def block(self, done: BlockDone) -> None:
        del done
