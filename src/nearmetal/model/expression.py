"""Regular expressions written by users: a check for mistakes, and a search with a time limit.

The package regex accepts the syntax of Python's own re and, unlike re, supports a time limit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LONGEST = 1000
#: Time limit of a search in seconds.
LIMIT = 3.0


@dataclass(frozen=True, kw_only=True)
class Match:
    """A match of a regular expression.

    group: text matched by the first group; None if the group did not participate.
    begin, end: where this group begins and ends in the searched text.
    """

    text: str
    group: str | None
    begin: int = -1
    end: int = -1


def mistake(expression: str, held: str | None) -> str:
    """Return an error message for an invalid expression; '' if it is valid.

    held: if given, the expression must have exactly one group, and this text says in the message what the
        group must contain ('the number'). None if groups do not matter.
    """
    if len(expression) > LONGEST:
        return f"longer than {LONGEST} characters"
    import regex

    try:
        groups: int = _compiled(expression).groups
    except regex.error as e:
        return f"not a regular expression: {e}"
    except (OverflowError, RecursionError, MemoryError) as e:
        return f"not a usable regular expression: {e}"
    if held is None or groups == 1:
        return ""
    return f"{groups} groups; one group ( ) must hold {held}, others are written (?: )"


def search(expression: str, text: str, *, limit: float = LIMIT) -> Match | None:
    """Return the first match; None if there is none. ^ and $ match at the beginning and end of lines.

    expression: a valid one, for which mistake() returns ''.
    limit: time limit in seconds.

    Raises TimeoutError if the search takes longer than the limit.
    """
    match = _compiled(expression).search(text, timeout=limit)
    if match is None:
        return None
    if not match.re.groups:
        return Match(text=match[0], group=None)
    begin, end = match.span(1)
    return Match(text=match[0], group=match[1], begin=begin, end=end)


@lru_cache
def _compiled(expression: str) -> Any:
    # Imported here, since most runs of the tool search nothing.
    import regex

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about notations that later versions may read differently
        return regex.compile(expression, regex.MULTILINE)
