"""Progress of nm-keeper (kernels/keeper), a program that verifies its own memory while its instance is
checkpointed or moved."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from ...host.untrusted import UntrustedDirectory

_RECORD = struct.Struct("=5Q")


@dataclass(frozen=True, kw_only=True)
class ProgramProgress:
    """The record of nm-keeper, or of several such processes together.

    steps: number of steps; the program takes one about every millisecond.
    passes: number of times that it has verified all its memory.
    wrong: number of pages whose content was wrong.
    gap: longest time between two steps after the first pass, in seconds.
    strange: number of times that the record was not what the program had written, since another copy of the
        program had overwritten it.
    """

    steps: int = 0
    passes: int = 0
    wrong: int = 0
    gap: float = 0.0
    strange: int = 0


def read_progress(record: Path) -> ProgramProgress:
    """Read the record of a program. All numbers are zero if it has not written its record yet."""
    try:
        content = UntrustedDirectory(record.parent).read_bytes(record.name)
        steps, passes, wrong, gap, strange = _RECORD.unpack(content)
    except (OSError, struct.error):
        return ProgramProgress()
    return ProgramProgress(steps=steps, passes=passes, wrong=wrong, gap=gap / 1e9, strange=strange)
