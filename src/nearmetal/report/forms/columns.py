"""Text in the columns of a terminal: width, padding and wrapping."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...model.result import Verdict
from ..text import one_line, tight

if TYPE_CHECKING:
    from rich.text import Text

STYLES: Mapping[Verdict, str] = {
    Verdict.SLOWER: "bold red",
    Verdict.FASTER: "bold cyan",
    Verdict.EQUIVALENT: "green",
    Verdict.NONE: "dim",
    Verdict.INCONSISTENT: "bold magenta",
}
"""Styles of verdicts in a terminal."""


def columns(text: str) -> int:
    """Return the number of columns that a text takes in a terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text padded with spaces to the width; right-aligned if `right`."""
    space = " " * max(0, width - columns(text))
    return space + text if right else text + space


def cut(text: str, width: int) -> str:
    """Return the text, or its beginning with an ellipsis if it is wider."""
    return text if columns(text) <= width else f"{text[: max(0, width - 1)].rstrip()}…"


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` columns, but not less than 20. A longer word stays whole,
    and a line never ends between a number and its unit."""
    # textwrap does not break at a no-break space.
    lines = textwrap.wrap(
        tight(one_line(text)), max(20, width), break_on_hyphens=False, break_long_words=False
    )
    return [line.replace("\u00a0", " ") for line in lines]


def append_wrapped(out: Text, text: str, width: int, style: str | None = None) -> None:
    """Append a text to `out`, in the lines that wrap() returns."""
    out.append("\n".join(wrap(text, width)) + "\n", style=style)
