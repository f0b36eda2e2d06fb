"""What users read has their words: environment, round, upper bound, running, time share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from tests.golden import sample_analysis as sample
from typer.core import TyperGroup
from typer.main import get_command

from nearmetal.cli.app import application
from nearmetal.cli.commands import COMMANDS
from nearmetal.report.forms.json_form import json_form
from nearmetal.study_file import explain

GOLDEN = Path(__file__).parents[1] / "golden" / "expected"
SPOKEN = ("*.txt", "*.md", "*.tex")
CODE_WORDS = re.compile(r"\b(arms?|fold(s|ed)?|looks?|slices?|seats?|roofs?|stands?|standing)\b", re.I)
KEYS = re.compile(
    r"<slices\|plain>|slices: |\bmode slices\b|times as slices|^ +slices +|One of slices"
    r"|default slices",
    re.MULTILINE,
)
"""Keys and values of study files and options, which keep their names."""


def code_words(text: str) -> list[str]:
    return [m[0] for m in CODE_WORDS.finditer(KEYS.sub("", text))]


@pytest.mark.parametrize(
    "path", [p for kind in SPOKEN for p in sorted(GOLDEN.glob(kind))], ids=lambda p: p.name
)
def test_reports(path: Path) -> None:
    text = path.read_text()
    assert code_words(text) == []
    assert "block" not in text.lower(), "users read of rounds"
    assert not re.search(r"\b\d+ (more )?(rounds|blocks) more\b", text), "what is missing is said in time"


def helps() -> Iterator[tuple[str, str]]:
    root = get_command(application([c.name for c in COMMANDS]))
    assert isinstance(root, TyperGroup)
    yield "nearmetal", root.get_help(typer.Context(root))
    for name, command in root.commands.items():
        yield name, command.get_help(typer.Context(command))


@pytest.mark.parametrize(("name", "text"), list(helps()))
def test_help(name: str, text: str) -> None:
    found = code_words(" ".join(text.split()))
    assert found == [], name
    commands = text.partition("Commands:")[2].splitlines()
    assert [row for row in commands if row.endswith("...")] == [], "no summary is cut"


def test_keys_of_study_files_are_explained_in_them() -> None:
    assert code_words(explain()) == []


def sentences(value: object) -> Iterator[str]:
    """The texts of JSON that have spaces; names and keys have none."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from sentences(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from sentences(inner)
    elif isinstance(value, str) and " " in value:
        yield value


def test_sentences_of_json() -> None:
    form = json_form(sample.study(), replace(sample.analysis(), question=""), results_dir="r")
    del form["meaning"]  # it explains the keys by their names
    assert [said for said in sentences(json.loads(json.dumps(form))) if code_words(said)] == []


def test_a_metric_of_the_name_of_its_workload_is_named_once() -> None:
    cell = replace(sample.analysis().cells[0], workload="latency", metric="latency")
    assert cell.label == "latency"
