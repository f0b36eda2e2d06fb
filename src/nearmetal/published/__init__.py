"""Numbers and claims of papers, which are stored as data, and files of a user's own in the same format. They
are shown beside measured results and are never part of an estimate.

This package does not know the analysis.
"""

from __future__ import annotations

from importlib import resources

from ..model.papers.published import Published
from .reading import json_schema, load, read

PHASES = ("computation", "communication", "start of MPI")
"""Phases of a process, in the order of the tables of times."""


def paper_keys() -> tuple[str, ...]:
    """Return the keys of the built-in papers, oldest first."""
    files = (f.name for f in resources.files(__name__).iterdir())
    keys = (name.removesuffix(".toml") for name in files if name.endswith(".toml"))
    return tuple(sorted(keys, key=lambda key: (key.rpartition("-")[2], key)))


def published(key: str) -> Published | None:
    """Return the numbers and claims of a built-in paper by its key; None if there is no such paper."""
    file = resources.files(__name__).joinpath(f"{key}.toml")
    return read(file.read_text(encoding="utf-8"), f"{key}.toml") if file.is_file() else None
