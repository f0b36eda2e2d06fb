"""Compares two studies in parts, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NearmetalError, UsageError
from ..model.series import Series
from ..records import SeriesDirectory
from ..records.directory import directories_with
from ..records.series import SERIES
from ..report.tables.upgrade import Upgrade
from .comparing import compare
from .series.results import frozen_series


@dataclass(frozen=True, kw_only=True)
class ComparedPart:
    """The comparison of one part, from before and after an upgrade.

    upgrade: None if the part cannot be compared.
    why: why it cannot be compared; '' if it can.
    lost: whether the part was measured before the upgrade, but cannot be compared, so that the effect of the
        upgrade on it is unknown.
    """

    key: str
    title: str
    upgrade: Upgrade | None
    why: str = ""
    lost: bool = False


def compare_series(
    before: Sequence[Path],
    after: Sequence[Path],
    compare: Callable[[Sequence[Path], Sequence[Path]], Upgrade] = compare,
) -> tuple[ComparedPart, ...]:
    """Compare every part of series from before and after an upgrade.

    before, after: results directories of series, or directories with such directories in them.
    compare: compares the runs of one part, as api.comparing.compare does.

    Returns nothing if no path is a series. Raises UsageError if only some are, or if no part can be compared.
    """
    found = {path: _series_in(path) for path in (*before, *after)}
    if not any(found.values()):
        return ()
    if single := next((path for path, own in found.items() if not own), None):
        raise UsageError(
            f"{single} is not the results directory of a study in parts, and the others are",
            remedy="name whole studies in parts on both sides, or one part of each",
        )
    sides = [[_parts(d) for path in side for d in found[path]] for side in (before, after)]
    titles: dict[str, str] = {}
    for key, (title, _) in (part for side in sides for one in side for part in one.items()):
        titles.setdefault(key, title)
    out = []
    for key, title in titles.items():
        old, new = ([path for one in side if (path := one.get(key, ("", None))[1])] for side in sides)
        if not old or not new:
            why = f"not measured {'after' if old else 'before'}"
            out.append(ComparedPart(key=key, title=title, upgrade=None, why=why, lost=bool(old)))
            continue
        try:
            upgrade = compare(old, new)
            out.append(ComparedPart(key=key, title=title, upgrade=upgrade))
        except NearmetalError as e:
            out.append(ComparedPart(key=key, title=title, upgrade=None, why=e.what, lost=True))
    if all(part.upgrade is None for part in out):
        raise UsageError(
            "no part can be compared: " + "; ".join(f"{p.key}: {p.why}" for p in out),
            remedy="name results of one study in parts, from different boots",
        )
    return tuple(out)


def _series_in(path: Path) -> tuple[SeriesDirectory, ...]:
    """Return the series at a path, or else those directly below it, in the order of their names."""
    one = SeriesDirectory.at(path)
    return (
        (one,)
        if one is not None
        else tuple(SeriesDirectory(path=found) for found in directories_with(SERIES, path))
    )


def _parts(directory: SeriesDirectory) -> dict[str, tuple[str, Path | None]]:
    """Return title and results directory of each part, by key; None for a part without results."""
    series: Series = frozen_series(directory)
    found = ((part, directory.part(part)) for part in series.parts)
    return {part.key: (part.title, None if own is None else own.path) for part, own in found}
