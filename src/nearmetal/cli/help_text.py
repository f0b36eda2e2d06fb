"""The text of --help: the usage line, the arguments and the options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

# Typer wraps help without asking. Words with hyphens stay whole.
textwrap.TextWrapper.wordsep_re = textwrap.TextWrapper.wordsep_simple_re


class NearmetalCommand(TyperCommand):
    """A command whose help shows arguments as they are typed, without types and braces."""

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return ["[OPTIONS]", *(_written(p) for p in _shown_arguments(self, ctx))]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        for head, rows in (("Arguments", arguments(self, ctx)), ("Options", options(self, ctx))):
            if shown := list(rows):
                with formatter.section(head):
                    formatter.write_dl(shown)


def arguments(command: TyperCommand, context: Context) -> Iterator[tuple[str, str]]:
    """Yield each argument that the help shows, with its description."""
    for argument in _shown_arguments(command, context):
        _, text = argument.get_help_record(context) or ("", "")
        yield argument.display_name_raw, text


def options(command: TyperCommand, context: Context) -> Iterator[tuple[str, str]]:
    """Yield each option that the help shows, with its description."""
    for option in command.get_params(context):
        if isinstance(option, TyperOption) and (record := option.get_help_record(context)):
            yield record


def _shown_arguments(command: TyperCommand, context: Context) -> Iterator[TyperArgument]:
    for parameter in command.get_params(context):
        if isinstance(parameter, TyperArgument) and not parameter.hidden:
            yield parameter


def _written(argument: TyperArgument) -> str:
    """Return the argument as the usage line shows it: [DIR], STUDY or BLOCK..."""
    name = argument.display_name_raw
    if argument.nargs != 1 and "..." not in name:
        name += "..."
    return name if argument.required else f"[{name}]"
