"""Commands that the program suggests exist, with the options that it names. Dry runs of studies in parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.golden import sample_analysis as sample
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from nearmetal.api.series import planning
from nearmetal.cli.app import application
from nearmetal.cli.commands import COMMANDS
from nearmetal.errors import UnavailableError
from nearmetal.model.series import Part, Scale, Series
from nearmetal.model.study import Study
from nearmetal.node.progress import NullProgress

SOURCE = Path(__file__).parents[2] / "src" / "nearmetal"
NAMES = [c.name for c in COMMANDS]
WIDTH = 80
HINT = re.compile(rf"nearmetal ((?:{'|'.join(NAMES)})\b[^\n`;,)'|]*)")


def texts(tree: ast.AST) -> Iterator[str]:
    """String literals; what an f-string computes becomes X."""
    joined = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
    inner = {id(v) for n in joined for v in ast.walk(n) if v is not n}
    for text in joined:
        yield "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in text.values)
    for n in ast.walk(tree):
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in inner:
            yield n.value


def hints() -> list[str]:
    found: dict[str, None] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for text in texts(ast.parse(path.read_text())):
            found |= dict.fromkeys(m[1].strip() for m in HINT.finditer(text))
    first = (SOURCE / "study_file" / "first.yaml").read_text()  # what `nearmetal init` writes
    found |= dict.fromkeys(m[1].strip() for m in HINT.finditer(first))
    return list(found)


@pytest.fixture(scope="module")
def root() -> TyperGroup:
    command = get_command(application(NAMES))
    assert isinstance(command, TyperGroup)
    return command


def command_of(root: TyperGroup, words: list[str]) -> TyperCommand:
    """The command that words name; in a group the command of the group."""
    found = root.commands[words[0]]
    if isinstance(found, TyperGroup):
        found = found.commands[words[1]]
    assert isinstance(found, TyperCommand)
    return found


def options(command: TyperCommand) -> set[str]:
    own = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return own | {"--help", "-h"}


def test_hints_are_found_in_the_source() -> None:
    assert {"resume X", "check --all", "clean"} <= set(hints())


@pytest.mark.parametrize("hint", hints())
def test_a_hint_names_a_command_and_its_options(hint: str, root: TyperGroup) -> None:
    words = hint.partition(" -- ")[0].split()
    named = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
    assert named <= options(command_of(root, words))


def named(command: typer.core.TyperCommand | TyperGroup, *names: str) -> Iterator[tuple[str, str]]:
    """Every command below one, by its whole name, with its help on a terminal of 80 columns."""
    context = typer.Context(command, info_name=" ".join(("nearmetal", *names)), terminal_width=WIDTH)
    yield " ".join(names), command.get_help(context)
    for name, below in command.commands.items() if isinstance(command, TyperGroup) else ():
        assert isinstance(below, TyperCommand | TyperGroup)
        yield from named(below, *names, name)


def test_no_help_is_cut_or_wider_than_the_terminal(root: TyperGroup) -> None:
    seen = dict(named(root))
    assert {"", "weigh", "compare", "image", "image build"} <= set(seen)
    for name, text in seen.items():
        summaries = text.partition("Commands:")[2].splitlines()
        assert not any(line.endswith(("...", "…")) for line in summaries), name
        assert max(map(len, text.splitlines())) <= WIDTH, name
        assert not re.search(r"[a-z]-$", text, re.MULTILINE), f"{name}: a word is broken at its hyphen"


def test_the_help_shows_names_of_values_instead_of_types(root: TyperGroup) -> None:
    """Only a choice is in pointed brackets: <slices|plain>."""
    for name, text in named(root):
        assert set(re.findall(r"<(?!kvm>)[^|>]*>|\[\]|\{", text)) == set(), name


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("weigh", "weigh [OPTIONS] BASELINE ENVIRONMENT... [-- COMMAND...]"),
        ("compare", "compare [OPTIONS]"),
        ("resume", "resume [OPTIONS] [DIR]"),
        ("run-block", "run-block [OPTIONS] DIR [BLOCK...]"),
        ("image build", "image build [OPTIONS] NAME"),
    ],
)
def test_the_usage_line_shows_what_to_write(name: str, usage: str, root: TyperGroup) -> None:
    assert dict(named(root))[name].splitlines()[0] == f"Usage: nearmetal {usage}"


@pytest.mark.parametrize(
    "name", ["quick", "run", "resume", "continue", "weigh", "try", "calibrate", "compare"]
)
def test_whatever_gives_verdicts_takes_a_margin(name: str, root: TyperGroup) -> None:
    assert "--margin" in options(command_of(root, [name]))


def test_a_dry_run_of_a_series_leaves_out_what_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    study = sample.study()
    parts = [
        Part(key=key, title=key, share=0.5, study=replace(study, name=key), places={}) for key in ("a", "b")
    ]
    own = Series(name="s", title="t", scale=Scale.SMALL, paper="", seed=1, max_time=60.0, parts=tuple(parts))
    cannot = {"a"}

    def checked(study: Study, *_: object, **__: object) -> Study:
        if study.name in cannot:
            raise UnavailableError(f"{study.name} needs KVM")
        return replace(study, question="checked")

    monkeypatch.setattr(planning, "checked", checked)
    machine: Any = object()
    a, b = planning.checked_series(own, machine, NullProgress()).parts
    assert (a.study, a.absent) == (None, "a needs KVM")
    assert b.study is not None and b.study.question == "checked"
    cannot.add("b")
    with pytest.raises(UnavailableError, match="a needs KVM"):
        planning.checked_series(own, machine, NullProgress())
