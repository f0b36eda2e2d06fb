"""What the orchestrator tells whoever shows it; it prints nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..model.result import Analysis


@dataclass(frozen=True, kw_only=True)
class BlockDone:
    """A block is on disk.

    seconds: its length.
    elapsed: seconds of the run so far.
    left: seconds of the time budget that are left; None without a budget."""

    number: int
    seconds: float
    elapsed: float
    left: float | None
    analysis: Analysis


class Progress(Protocol):
    """Receiver of what happens during a run."""

    def phase(self, text: str) -> None:
        """A step that may take a moment has begun."""

    def note(self, text: str) -> None:
        """Something that the reader of the result must know (an arm that cannot run here, a failed trial)."""

    def block(self, done: BlockDone) -> None: ...


class Silent:
    """Shows nothing."""

    def phase(self, text: str) -> None:
        del text

    def note(self, text: str) -> None:
        del text

    def block(self, done: BlockDone) -> None:
        del done
