"""Errors of the programs that build, import and convert images."""

from __future__ import annotations

from ..errors import DiskFullError, NearmetalError, RunError
from ..host.processes.failure import describe_failure, find_message

FULL = "No space left on device"


def failure(
    name: str, what: str, program: str, code: int | None, output: str, remedy: str = ""
) -> NearmetalError:
    """Return the error for a program that failed while it worked on an image: DiskFullError or RunError.

    name: name of the image.
    what: what was not done, such as 'not built'.
    code: exit status of the program; None if it is not known.
    output: output of the program.
    """
    if FULL in output:
        return disk_full(name, what)
    return RunError(
        f"image {name}: {what}: {describe_failure(program, code, output, find=_find_message)}", remedy=remedy
    )


def disk_full(name: str, what: str) -> DiskFullError:
    """Return the error for an image that does not fit on the disk.

    name, what: as for failure().
    """
    return DiskFullError(
        f"image {name}: {what}: no space left on the disk",
        remedy="make room where the cache is, or set XDG_CACHE_HOME to a directory on another disk",
    )


def _find_message(output: str) -> str:
    """Return the first errors of pip, or else those of apt, in the output of a program or, if there are none,
    find_message()."""
    lines = [line.strip() for line in output.splitlines()]
    found = [[line.removeprefix(s)[:200] for line in lines if line.startswith(s)] for s in ("ERROR: ", "E: ")]
    return "; ".join(error for errors in found for error in errors[:2]) or find_message(output)
