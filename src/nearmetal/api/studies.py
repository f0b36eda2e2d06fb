"""Reads studies from files or by the name of a built-in study, and draws seeds."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..host import LocalHost
from ..model.study import KernelWorkload, Pages, Study
from ..studies import SERIES_FILE, builtin, names, series_names
from ..study_file import SCHEMA_NAME, dump_study, json_schema, load_study, load_text
from ..study_file import explain as _explain
from ..study_file import template as _template
from .catalog import catalog

ONE_CPU = "quick-one-cpu"
"""Name of the quick study for a machine with one CPU."""
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
            f"the directory has no {SERIES_FILE}, so it is not a study in parts",
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


def quick_study(seed: int | None, pages: Pages = Pages.HUGE, note: Note = ignore) -> Study:
    """Return the built-in study for a quick look at this machine: ONE_CPU if it has one CPU.

    pages: page size of the kernels' memory.
    seed, note: as in study_from().
    """
    study = study_from("quick" if len(LocalHost().cpus()) > 1 else ONE_CPU, seed, note)
    return _with_pages(study, pages)


def _with_pages(study: Study, pages: Pages) -> Study:
    """Set this page size for all kernels. If workloads become equal, only the first is kept."""
    if pages is Pages.HUGE:
        return study
    seen: list[tuple[str, tuple[tuple[str, str | int | float], ...]]] = []
    kept = []
    for w in study.workloads:
        if isinstance(w, KernelWorkload):
            what = (w.kernel, tuple(sorted(w.params.items())))
            if what in seen:
                continue
            seen.append(what)
            w = replace(w, pages=pages)
        kept.append(w)
    return replace(study, workloads=tuple(kept))


def study_text(study: Study) -> str:
    """Return the study as the text of a study file in which every value is written out, including
    defaults."""
    return dump_study(study, catalog())


def explanation() -> str:
    """Return a text about every key of a study file, with its unit."""
    return _explain(catalog())


def schema_of_studies() -> dict[str, object]:
    """Return the JSON Schema of study files."""
    return json_schema(catalog())


def template() -> str:
    """Return the text of a commented study file to start from."""
    return _template(catalog())


def write_template(path: Path) -> Path:
    """Write template() to a new file, and the JSON Schema beside it. Returns the path of the schema.

    Raises UsageError if the file exists or cannot be written.
    """
    if path.exists():
        raise UsageError("is there already", where=str(path), remedy="name another file")
    schema = path.parent / SCHEMA_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template(), encoding="utf-8")
        schema.write_text(json.dumps(schema_of_studies(), indent=2) + "\n")
    except OSError as e:
        raise UsageError(f"cannot be written: {e.strerror}", where=str(path)) from e
    return schema
