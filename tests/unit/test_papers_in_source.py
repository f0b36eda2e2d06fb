"""No module knows a paper: papers are named only in the files of the built-in studies and of the published
tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import nearmetal
from nearmetal.published import paper_keys, published
from nearmetal.studies import series_names

SOURCE = Path(nearmetal.__file__).parent
STUDIES = SOURCE / "studies"
TEXTS = (".py", ".yaml", ".html", ".js", ".css", ".toml")


def may_name(path: Path) -> bool:
    """Whether a file belongs to a study in parts, or is a published table."""
    own_study = path.parent.parent == STUDIES
    return own_study or (path.parent == SOURCE / "published" and path.suffix == ".toml")


def searched() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in TEXTS and "__pycache__" not in path.parts and not may_name(path):
            yield path


@lru_cache
def words() -> re.Pattern[str]:
    """Names of studies and tables, titles, authors' family names before 'and others', and the years with a
    word for a publication."""
    papers = [p.paper for key in paper_keys() if (p := published(key)) is not None]
    names = {*series_names(), *paper_keys(), *(p.title for p in papers)}
    modules = {n.replace("-", "_") for n in names}
    families = {a.split()[-1] for p in papers for a in re.split(r", | and ", p.authors)}
    years = "|".join(sorted({str(p.year) for p in papers}))
    others = [re.escape(n) for n in sorted(names | modules)]
    others += [rf"\b{re.escape(f)} (?:et al|and others)" for f in sorted(families)]
    publication = r"(?:papers?|study|studies)"
    return re.compile(
        "|".join([*others, rf"(?:{years}) {publication}\b", rf"\b{publication} (?:of|from) (?:{years})"]),
        re.I,
    )


def test_the_search_finds_what_it_looks_for() -> None:
    wanted = words()
    for text in (
        "the 2009 paper",
        "import containers_2015",
        "a study of 2014",
        "Tikotekar et al., section 4",
    ):
        assert wanted.search(text), text
    assert not wanted.search("QEMU Standard PC (Q35 + ICH9, 2009)")
    assert len(list(searched())) > 300


@pytest.mark.parametrize("path", list(searched()), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_names_a_paper(path: Path) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words().search(line)
    ]
    assert not found, "what a study or a table says of its paper belongs in its own file"
