"""Studies from files, from the built-in ones and from words."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..model.study import Study
from ..studies import SERIES, builtin, names
from ..study_file import dump_study, load_study, load_text
from .catalog import catalog

Note = Callable[[str], None]
"""Takes a text that the reader should see."""


def ignore(text: str) -> None:
    """Drop the text."""
    del text


def draw_seed() -> int:
    """A seed of 16 bits: short enough to be said aloud, and shown in every result."""
    return secrets.randbits(16)


def study_from(text_or_path: str, seed: int | None, note: Note = ignore) -> Study:
    """A built-in study by name, or a study file by path.

    note: called with what the reader should know about the study.

    Raises UsageError, StudyError.
    """
    chosen = draw_seed() if seed is None else seed
    path = Path(text_or_path)
    if path.exists():
        study = load_study(path, catalog(), seed=chosen)
    elif text_or_path in names():
        study = load_text(builtin(text_or_path), text_or_path, catalog(), seed=chosen)
    else:
        raise UsageError(
            f"no study file {text_or_path}, and no built-in study of that name",
            remedy=f"built in: {', '.join((*names(), *SERIES))}; a file of your own: nearmetal init",
        )
    if study.design.expected_blocks is not None:
        note(
            "expected_blocks is not used any more and may be deleted from the study file: when the "
            "results are looked at no longer depends on it"
        )
    return study if seed is None else replace(study, design=replace(study.design, seed=seed))


def study_text(study: Study) -> str:
    """The study as a study file in which nothing is left to defaults."""
    return dump_study(study, catalog())
