"""What a program had to say that failed, as an error."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import DiskFullError, NearmetalError, RunError

FULL = "No space left on device"


def failure(name: str, what: str, said: Sequence[str], code: int, remedy: str = "") -> NearmetalError:
    """what: did not work with the image of that name; said: lines, of which apt's errors count most."""
    lines = [line.strip() for line in said if line.strip()]
    if any(FULL in line for line in lines):
        return DiskFullError(
            f"image {name}: {what}: no space left on the disk",
            remedy="make room where the cache is, or set XDG_CACHE_HOME to a directory on another disk",
        )
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")] or lines[-1:]
    words = "; ".join(e[:200] for e in errors[:3]) or "no output"
    return RunError(f"image {name}: {what} (status {code}): {words}", remedy=remedy)
