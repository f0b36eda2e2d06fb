"""The built-in studies, as the texts of their files. This package does not interpret their keys.

A study in parts is a directory with a series file and a study file for each part. In a built-in file, a line
that ends with `#: small` or `#: paper` belongs to that scale only; the mark is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..errors import UsageError

SERIES_FILE = "series.yaml"
"""Name of the file that makes a directory a series."""
_MARK = " #: "


def names() -> tuple[str, ...]:
    """Return the names of the built-in studies that are one file, sorted."""
    files = (p.name for p in resources.files(__name__).iterdir())
    return tuple(sorted(f.removesuffix(".yaml") for f in files if f.endswith(".yaml")))


def builtin(name: str) -> str:
    """Return the text of a built-in study. Raises UsageError if there is none of this name."""
    if name not in names():
        raise UsageError(f'no built-in study is called "{name}"', remedy=f"one of: {', '.join(names())}")
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def series_names() -> tuple[str, ...]:
    """Return the names of the built-in studies in parts, sorted."""
    return tuple(
        sorted(
            p.name
            for p in resources.files(__name__).iterdir()
            if (p.is_dir() and p.joinpath(SERIES_FILE).is_file())
        )
    )


def series_texts(name: str, scale: str) -> dict[str, str]:
    """Return the texts of the files of a built-in study in parts, by file name, the series file first.

    scale: 'small' or 'paper'. Lines of the other scale are left out.
    """
    files = {
        p.name: p.read_text(encoding="utf-8")
        for p in resources.files(__name__).joinpath(name).iterdir()
        if p.name.endswith(".yaml")
    }
    return {f: "".join(_at(files[f], scale)) for f in sorted(files, key=lambda f: (f != SERIES_FILE, f))}


@dataclass(frozen=True, kw_only=True)
class SeriesSource:
    """The location of the files of a series.

    builtin: name of a built-in study in parts; '' for a directory.
    directory: the directory of the files, if the study is not built in.
    """

    builtin: str = ""
    directory: Path = Path()


def find_series(text: str) -> SeriesSource | None:
    """Return the series with a name or in a directory; None if the text names none.

    text: name of a built-in study in parts, a directory with a series file, or the series file itself.
    """
    path = Path(text)
    if path.name == SERIES_FILE and path.is_file():
        return SeriesSource(directory=path.parent)
    if (path / SERIES_FILE).is_file():
        return SeriesSource(directory=path)
    return SeriesSource(builtin=text) if text in series_names() and not path.is_file() else None


def _at(text: str, scale: str) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        kept, mark, own = line.rstrip().rpartition(_MARK)
        if not mark:
            yield line
        elif own == scale:
            yield f"{kept}\n"
