"""The phases of a move, and how long each took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """A phase of a checkpoint, a restore or a move, in their order.

    CONNECT: the destination is started and the connection is made.
    FREEZE: the instance is stopped.
    DUMP: its state is read while it stands still.
    COPY: its memory is sent.
    RESTORE: its state is loaded at the destination.
    THAW: it runs again; the phase ends with its first answer.
    REMOVAL: what is left at the source is removed.
    """

    CONNECT = "connect"
    FREEZE = "freeze"
    DUMP = "dump"
    COPY = "copy"
    RESTORE = "restore"
    THAW = "thaw"
    REMOVAL = "removal"


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds by phase. A method has only some of the phases; the other phases are missing, not zero.

    Raises ValueError for a negative time.
    """

    seconds: Mapping[Phase, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for phase, spent in self.seconds.items():
            if not spent >= 0:
                raise ValueError(f"phase {phase} took {spent} s")

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def record(self) -> dict[str, float]:
        """Return seconds by name of phase, the form of a record, in the order of the phases."""
        return {phase.value: self.seconds[phase] for phase in Phase if phase in self.seconds}
