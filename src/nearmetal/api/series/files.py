"""Reads studies in parts, either built-in ones by name or from directories of files. Writes the files of the
built-in ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ...errors import PaperFileError, StudyProblem, UsageError
from ...host.untrusted import UntrustedDirectory
from ...images import known_names
from ...model.environments.image import ImageDefinition
from ...model.keys import did_you_mean
from ...model.papers.published import Published
from ...model.series import Scale
from ...model.series_file import SeriesFiles
from ...node.machine import image_store
from ...published import paper_keys, published, read
from ...records import SeriesDirectory
from ...studies import SERIES_FILE, SeriesSource, series_names, series_texts
from ...study_file import SCHEMA_LINE, SCHEMA_NAME, json_schema
from ...study_file.problems import MAX_BYTES
from ...study_file.series import (
    SERIES_SCHEMA_LINE,
    SERIES_SCHEMA_NAME,
    load_series,
    series_schema,
)
from ..catalog import catalog


def read_series(source: SeriesSource, *, scale: Scale | None, seed: int) -> SeriesFiles:
    """Read the files of a series.

    scale: scale of a built-in series; None for small. The files in a directory have one scale only.

    Raises StudyError if the files have mistakes, UsageError if they cannot be read.
    """
    if source.builtin:
        texts = series_texts(source.builtin, scale or Scale.SMALL)
        return _load(_from(texts), lambda file: f"{source.builtin}/{file}", seed)
    directory = source.directory
    if scale is not None:
        raise UsageError(
            f"--scale is for built-in studies, and the files in {directory} have one scale",
            remedy=f"nearmetal init {series_names()[0]} --scale {scale} DIR writes files of that scale",
        )

    def text_of(file: str) -> str:
        return UntrustedDirectory(directory).read_bytes(file, MAX_BYTES).decode("utf-8-sig")

    try:
        return _load(text_of, lambda file: str(directory / file), seed)
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "not UTF-8"
        raise UsageError(f"cannot read the series: {why}", where=str(directory / SERIES_FILE)) from e


def _load(text_of: Callable[[str], str], name_of: Callable[[str], str], seed: int) -> SeriesFiles:
    # An image that is not built yet is built before the part that needs it.
    known = replace(catalog(), no_image=_unknown_image)
    return load_series(
        text_of, name_of, known, seed=seed, published=paper_keys(), table_problems=_table_problems
    )


def series_output(name: str, scale: Scale) -> dict[str, str]:
    """Return the text of each file that write_series_files() writes, by name of the file."""
    lines = {SERIES_FILE: SERIES_SCHEMA_LINE}
    texts = {f: f"{lines.get(f, SCHEMA_LINE)}\n{t}" for f, t in series_texts(name, scale).items()}
    schemas = {
        SERIES_SCHEMA_NAME: series_schema(),
        SCHEMA_NAME: json_schema(catalog()),
    }
    return texts | {f: json.dumps(schema, indent=2) + "\n" for f, schema in schemas.items()}


def write_series_files(name: str, scale: Scale, directory: Path) -> list[Path]:
    """Write the files of a built-in study in parts, and the JSON Schemas for editors. Returns their paths.

    Raises UsageError if a file exists already, or cannot be written.
    """
    texts = series_output(name, scale)
    files = UntrustedDirectory(directory)
    for file in texts:
        if files.exists(file):
            raise UsageError("is there already", where=str(directory / file), remedy="name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            files.write_bytes(file, text.encode())
    except OSError as e:
        raise UsageError(f"cannot be written: {e.strerror}", where=str(directory)) from e
    return [directory / file for file in texts]


def paper_of(directory: SeriesDirectory, key: str) -> Published | None:
    """Return the published table with which a series is shown: the one in its directory, or else one that
    comes with nearmetal; None if there is none.

    key: name of a table that comes with nearmetal; may be ''.
    """
    text = directory.table
    return read(text, str(directory.table_file)) if text else published(key)


def _table_problems(text: str, name: str) -> tuple[StudyProblem, ...]:
    try:
        read(text, name)
    except PaperFileError as e:
        return e.problems
    return ()


def _unknown_image(name: str, own: Mapping[str, ImageDefinition], file: str) -> str | None:
    """Return why no instance can use an image; None if the image exists or can be built."""
    known = known_names(image_store(), own)
    return None if name in known else f'unknown image "{name}"{did_you_mean(name, ("host", *known))}'


def _from(texts: dict[str, str]) -> Callable[[str], str]:
    def text_of(file: str) -> str:
        if file not in texts:
            raise FileNotFoundError(2, "no such file")
        return texts[file]

    return text_of
