"""Code that several commands share: notes and quantities on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from ..errors import UsageError
from ..model.series import Scale
from ..studies import SERIES
from ..units import Dimension, UnitError, parse


class FailOn(StrEnum):
    """The condition under which a command ends with exit code 1."""

    NOTHING = "nothing"
    MATERIAL = "material"
    UNDECIDED = "undecided"


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    print()


def complain(text: str) -> None:
    """Print a note about a study or its results on standard error."""
    print(f"note: {text}", file=sys.stderr)


def in_parts(
    study: str, *, scale: Scale | None = None, only: Sequence[str] = (), backend: str | None = None
) -> bool:
    """Return whether a study is a built-in study in parts. Only these accept a scale, a selection of parts
    and a backend."""
    found = study in SERIES and not Path(study).exists()
    options = {"--scale": scale is not None, "--only": bool(only), "--backend": backend is not None}
    given = [name for name, given_value in options.items() if given_value]
    if not found and given:
        raise UsageError(
            f"{given[0]} belongs to studies in parts, and {study} is none",
            remedy=f"one of: {', '.join(SERIES)}",
        )
    return found


def duration(text: str | None, option: str = "--time") -> float | None:
    """Convert '90s', '10m' or '1h30m' to seconds.

    option: name of the option for error messages.
    """
    if text is None:
        return None
    try:
        seconds = parse(text, Dimension.TIME)
    except UnitError as e:
        raise UsageError(f"{option}: {e}", remedy="write 90s, 10m or 1h30m") from e
    if seconds <= 0:
        raise UsageError(f"{option}: must be longer than nothing", remedy="write 90s, 10m or 1h30m")
    return seconds
