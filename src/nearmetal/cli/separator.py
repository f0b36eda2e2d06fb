"""Corrects a command line of weigh in which the -- before the command is missing."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from ..api.catalog import backend_names
from .app import application

WEIGH = "weigh"


def missing_separator(words: Sequence[str]) -> str | None:
    """Return the corrected command line of weigh if -- is missing before a program; else None.

    words: words of the command line, beginning with weigh.
    """
    own = _options()
    place = None if "--" in words else _program(words, own)
    if place is None:
        return None
    before, command = list(words[:place]), [words[place]]
    rest = iter(words[place + 1 :])
    for word in rest:
        name = word.partition("=")[0]
        if name.startswith("--") and name in own:  # the parser takes it as an option of weigh, wherever it is
            before += [word, next(rest, "")] if _takes_next(word, own) else [word]
        else:
            command.append(word)
    return f"a command and its options come after --: {shlex.join(['nearmetal', *before, '--', *command])}"


def _options() -> dict[str, TyperOption]:
    """Return the options of weigh by name."""
    root = get_command(application([WEIGH]))
    assert isinstance(root, TyperGroup)
    params = root.commands[WEIGH].params
    return {name: p for p in params if isinstance(p, TyperOption) for name in p.opts}


def _takes_next(word: str, own: dict[str, TyperOption]) -> bool:
    return word in own and not own[word].is_flag


def _program(words: Sequence[str], own: dict[str, TyperOption]) -> int | None:
    """Return the index of the first word that is neither an option nor an environment, if it is a program or
    a path; else None.

    words: as in missing_separator().
    own: options of weigh by name.
    """
    known = set(backend_names())
    place = 1
    while place < len(words):
        word = words[place]
        if word.startswith("-"):
            place += 2 if _takes_next(word, own) else 1
        elif known.issuperset(word.split(",")):
            place += 1
        else:
            there = "/" in word or shutil.which(word) is not None or Path(word).is_file()
            return place if there else None
    return None
