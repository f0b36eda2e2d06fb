"""Commands that the program suggests exist, and have the options that it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from nearmetal.cli.app import application
from nearmetal.cli.commands import COMMANDS

SOURCE = Path(__file__).parents[2] / "src" / "nearmetal"
NAMES = [c.name for c in COMMANDS]
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


@pytest.mark.parametrize("width", [80])
def test_no_summary_in_the_list_of_commands_is_cut(width: int, root: TyperGroup) -> None:
    for group in (root, root.commands["image"]):
        text = typer.Context(group, info_name="nearmetal", terminal_width=width)
        listed = group.get_help(text)
        assert "..." not in listed.partition("Commands:")[2]
        assert max(map(len, listed.splitlines())) <= width
