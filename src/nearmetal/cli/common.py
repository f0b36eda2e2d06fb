"""Code that several commands share: notes and quantities on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    print()


def show(value: object, lines: Iterable[str], *, json: bool) -> None:
    """Print a result on standard output: lines of text, or a value as JSON."""
    if json:
        print_json(value)
    else:
        print("\n".join(lines))


def complain(text: str) -> None:
    """Print a note about a study or its results on standard error."""
    print(f"note: {text}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class SeriesOptions:
    """The options of a study in parts on the command line.

    source: where its files are.
    scale: scale of a built-in series; None for the default.
    only: keys of parts, as given.
    backend: backend of its instances; None for those that the series file prefers.
    seconds: total time of all parts.
    seed: seed of the series; drawn if None.
    """

    source: SeriesSource
    scale: Scale | None
    only: Sequence[str]
    backend: str | None
    seconds: float | None
    seed: int | None


def in_parts(
    study: str,
    *,
    scale: Scale | None = None,
    only: Sequence[str] = (),
    backend: str | None = None,
    time: str | None = None,
    seed: int | None = None,
) -> SeriesOptions | None:
    """Return the options of the series with a name or in a directory; None for a study in one file. Only a
    series accepts a scale, a selection of parts and a backend.

    Raises UsageError.
    """
    found = find_series(study)
    if found is not None:
        seconds = duration(time)
        return SeriesOptions(
            source=found, scale=scale, only=only, backend=backend, seconds=seconds, seed=seed
        )
    for name, given in (("--scale", scale), ("--only", only), ("--backend", backend)):
        if given:
            raise UsageError(
                f"{name} is for studies in parts, and {study} is not one",
                remedy=f"one of: {', '.join(series_names())}; or a directory with {SERIES_FILE}",
            )
    return None


def duration(text: str | None, option: str = "--time") -> float | None:
    """Convert '90s', '10m' or '1h30m' to seconds, as quantity."""
    return quantity(option, text, parse_time, "90s, 10m or 1h30m")


Number = TypeVar("Number", int, float)


def quantity(option: str, text: str | None, parse: Callable[[str], Number], example: str) -> Number | None:
    """Return the value of an option in base units; None if the option is not given.

    option: name of the option for error messages.

    Raises UsageError if the text is not such a quantity, or not above zero.
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
