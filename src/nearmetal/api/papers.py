"""The numbers and claims of papers, and those that do not follow from a paper's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.papers.check import check_paper as check_paper
from ..errors import UsageError
from ..model.keys import did_you_mean
from ..published import json_schema as json_schema
from ..published import load, paper_keys, published

if TYPE_CHECKING:
    from ..model.papers.published import Published


def find_papers(name: str | None = None) -> list[Published]:
    """Return a built-in paper, or the paper of a file; without a name, all built-in papers.

    name: key of the paper, or path of the file.

    Raises UsageError or PaperFileError.
    """
    return [_paper(key) for key in ([name] if name else paper_keys())]


def _paper(name: str) -> Published:
    if name in paper_keys() and not Path(name).exists():
        paper = published(name)
        assert paper is not None, "the key is one of them"
        return paper
    if not Path(name).exists() and not name.endswith(".toml"):
        raise UsageError(f'no paper "{name}"{did_you_mean(name, paper_keys())}', remedy="nearmetal papers")
    return load(Path(name))
