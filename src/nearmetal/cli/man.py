"""The command man: prints the manual page of nearmetal, generated from its commands and their options."""

from __future__ import annotations

import re
from collections.abc import Iterator

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from .. import __version__
from ..errors import ExitCode
from .app import application
from .commands import COMMANDS
from .help_text import arguments, options
from .output import print_lines

_FILES = (
    ("results/", "results directories of runs made here"),
    ("study.yaml", "a study file, as nearmetal init writes one"),
)


def man() -> int:
    # The page shows all commands, so that all of their modules are imported.
    names = [c.name for c in COMMANDS]
    root = get_command(application(names))
    assert isinstance(root, TyperGroup), "nearmetal has commands"
    print_lines(*page(root))
    return ExitCode.DONE


def page(root: TyperGroup) -> Iterator[str]:
    """Yield the lines of the manual page, in the macros of man(7)."""
    yield f'.TH NEARMETAL 1 "" "nearmetal {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"nearmetal \- measure what containers and virtual machines cost a workload"
    yield ".SH SYNOPSIS"
    yield r"\fBnearmetal\fR \fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]"
    yield ".SH DESCRIPTION"
    yield _text(root.help or "")
    yield ".SH COMMANDS"
    for name, command in sorted(_commands(root)):
        yield from _command(name, command)
    yield ".SH FILES"
    for name, words in _FILES:
        yield from (".TP", rf"\fI{_text(name)}\fR", _text(words))
    yield ".SH EXIT STATUS"
    for code in ExitCode:
        yield from (".TP", rf"\fB{code.value}\fR", _text(code.name.lower().replace("_", " ")))


def _commands(root: TyperGroup, before: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """Yield the commands by name; those of a group have both names, such as 'image build'."""
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{before}{name} ")
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield f"{before}{name}", command


def _command(name: str, command: TyperCommand) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield ".SS " + _text(" ".join(["nearmetal", name, *command.collect_usage_pieces(context)]))
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_text(paragraph), ".PP")
    for words, description in (*arguments(command, context), *options(command, context)):
        yield from (".TP", rf"\fB{_text(words)}\fR", _text(description))


def _text(text: str) -> str:
    """Return the text, escaped for roff."""
    plain = re.sub(r"\s+", " ", text).strip().replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
