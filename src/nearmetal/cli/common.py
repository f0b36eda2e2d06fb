"""Code that several commands share: values of options."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from ..errors import UsageError
from ..model.series import Scale
from ..studies import SERIES_FILE, SeriesSource, find_series, series_names
from ..units import UnitError, parse_time


class FailOn(StrEnum):
    """The condition under which a command ends with exit code 1."""

    NOTHING = "nothing"
    MATERIAL = "material"
    UNDECIDED = "undecided"


def command_line() -> str:
    """Return the command line of this process as one would type it."""
    return shlex.join(["nearmetal", *sys.argv[1:]])


def in_parts(
    study: str, *, scale: Scale | None = None, only: Sequence[str] = (), backend: str | None = None
) -> SeriesSource | None:
    """Return the location of the files of a study in parts; None if the study is a single file.

    study: as typed: a name, a file or a directory.
    scale, only, backend: options that only a study in parts accepts.

    Raises UsageError if one of these options is given for a single file.
    """
    found = find_series(study)
    if found is not None:
        return found
    for name, given in (("--scale", scale), ("--only", only), ("--backend", backend)):
        if given:
            raise UsageError(
                f"{name} is for studies in parts, and {study} is not one",
                remedy=f"one of: {', '.join(series_names())}; or a directory with {SERIES_FILE}",
            )
    return None


def duration(text: str | None, option: str = "--time") -> float | None:
    """Return the value of an option such as '90s', '10m' or '1h30m' in seconds; None if it is not given.

    Raises UsageError, as quantity() does.
    """
    return quantity(option, text, parse_time, "90s, 10m or 1h30m")


Number = TypeVar("Number", int, float)


def quantity(option: str, text: str | None, parse: Callable[[str], Number], example: str) -> Number | None:
    """Return the value of an option in base units; None if the option is not given.

    option: name of the option, for error messages.
    parse: converts the text to base units.
    example: a valid value, for error messages.

    Raises UsageError if `parse` rejects the text, or if the value is not above zero.
    """
    if text is None:
        return None
    try:
        value = parse(text)
    except UnitError as e:
        raise UsageError(f"{option}: {e}", remedy=f"write {example}") from e
    if value <= 0:
        raise UsageError(f"{option}: must be above zero", remedy=f"write {example}")
    return value
