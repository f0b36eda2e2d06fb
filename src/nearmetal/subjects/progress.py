"""Progress of nm-keeper, the program that verifies its memory in an instance that is checkpointed
(kernels/keeper)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("=5Q")


@dataclass(frozen=True, kw_only=True)
class ProgramProgress:
    """The record of nm-keeper.

    passes: number of times that it has verified all its memory.
    wrong: number of pages whose content was wrong.
    gap: longest time between two steps, in seconds.
    strange: number of times that another process had written its record.
    """

    steps: int = 0
    passes: int = 0
    wrong: int = 0
    gap: float = 0.0
    strange: int = 0


def read_progress(record: Path) -> ProgramProgress:
    """Return the progress of a program; no steps if it has not written its record yet."""
    try:
        steps, passes, wrong, gap, strange = _RECORD.unpack(record.read_bytes())
    except (OSError, struct.error):
        return ProgramProgress()
    return ProgramProgress(steps=steps, passes=passes, wrong=wrong, gap=gap / 1e9, strange=strange)
