"""Reads studies from files or by the name of a built-in study, and draws seeds."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..model.study import Study
from ..studies import SERIES_FILE, builtin, names, series_names
from ..study_file import dump_study, load_study, load_text
from .catalog import catalog

Note = Callable[[str], None]
"""A function that shows a text to the user."""


def ignore(text: str) -> None:
    """Ignore the text. This is the default receiver of notes."""


def draw_seed() -> int:
    """Return a random seed of 16 bits, which is short enough to be shown in every result and typed again."""
    return secrets.randbits(16)


def study_from(text_or_path: str, seed: int | None, note: Note = ignore) -> Study:
    """Return a built-in study by name, or read a study file by path. A file with the name of a built-in study
    is read only if its path contains a directory, as in ./quick.

    seed: seed of the study; None for the seed in the file, or a random one if there is none.
    note: called with each note on the study that the user should see.

    Raises UsageError if there is no such study, StudyError if the file has mistakes.
    """
    chosen = draw_seed() if seed is None else seed
    path = Path(text_or_path)
    if text_or_path in names():
        study = load_text(builtin(text_or_path), text_or_path, catalog(), seed=chosen)
    elif path.is_dir():
        raise UsageError(
            f"the directory has no {SERIES_FILE}, so it is no study in parts",
            where=str(path),
            remedy=f"name a study file in it; nearmetal init {series_names()[0]} DIR writes a study in parts",
        )
    elif path.exists():
        study = load_study(path, catalog(), seed=chosen)
    else:
        raise UsageError(
            f"no study file {text_or_path}, and no built-in study of that name",
            remedy=f"built in: {', '.join((*names(), *series_names()))}; a file of your own: nearmetal init",
        )
    if study.design.expected_blocks is not None:
        note(
            "expected_blocks is not used any more and may be deleted from the study file: the "
            "times of the analyses do not depend on it"
        )
    return study if seed is None else replace(study, design=replace(study.design, seed=seed))


def study_text(study: Study) -> str:
    """Return the study as the text of a study file in which every value is written out, including
    defaults."""
    return dump_study(study, catalog())
